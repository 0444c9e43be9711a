"""Distribute reductions along a row of memory over the 32 lanes of a warp, or all threads of a block.

    for i (thread.y): for j: s[i] += x[i, j]   ->   for i (thread.y): for j_in (lane): for j (of 32): s[i] += x[i, j]

Neighbouring lanes read neighbouring elements, 128 bytes at a time; the five exchanges at the end cost what five
steps do. A long row has a block: j_in (lane) of 1024 values. A reduction down a column stays as it is: there
neighbouring threads have neighbouring columns.
"""

from __future__ import annotations

from polyfuse.errors import IllegalSchedule, InvalidSchedule
from polyfuse.ir.tree import Loop
from polyfuse.schedule import Schedule
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.match.lane_reductions import lane_loop
from polyfuse.strategy.transforms.band_verbs import constant_extent, inside, reordered


def by_lanes(schedule: Schedule, counts: Counts, name: str, loops: tuple[Loop, ...], lanes: int) -> Schedule:
    """A reduction's loops with so many lanes outside them; as it was if that is not legal."""
    loop = lane_loop(counts, name, loops)
    if loop is None:
        return schedule
    try:
        done = schedule.split(name, loop.name, lanes)
        lane = inside(done, name, loop.name).name
        done = reordered(done, name, (lane, *(x.name for x in loops)))
        return done.bind(name, **{lane: "lane"})
    except (IllegalSchedule, InvalidSchedule):
        return schedule


def within(schedule: Schedule, statement: str, loop: Loop, lanes: int) -> bool:
    """True if all values of a loop are numbers of lanes."""
    size = constant_extent(schedule, loop)
    values = schedule.nest.domains[statement].apply(loop.date(statement).as_map())
    return size is not None and (
        values.is_empty() or (values.dim_min_val(0) >= 0 and values.dim_max_val(0) < lanes)
    )

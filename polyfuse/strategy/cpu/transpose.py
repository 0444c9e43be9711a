"""Tile pointwise loops whose accesses are contiguous in different loops (transposes), by cache lines.

    for i: for j (vector): y[j, i] = x[i, j]
    ->  for i (of 16): for j (of 64): for i_in: for j_in (vector): y[j, i] = x[i, j]

        x . . . . j        y . . . . i       a row of x is a column of y: 1024 lines go by before the next element
          . # # .            . # # .         of any of them, in a tile 16, whose squares code generation transposes
          i                  j               in registers (transposed/stores.py)

A transpose of 1024 x 1024 floats took 4.6 ms and takes 0.5; x + z' of 1000 x 1000 took 0.88 and takes 0.3 to 0.9 in
different runs, 0.24 to 0.55 of NumPy's time in the same ones (one Zen 4 core).
"""

from __future__ import annotations

from dataclasses import dataclass

from polyfuse.errors import InvalidSchedule
from polyfuse.ir.tree import Loop
from polyfuse.schedule import Schedule
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.kernel_model import LINE
from polyfuse.strategy.transforms.band_verbs import contiguous, goes, is_perfect, reordered, vectorized

LINES = 4
"""Lines of a row in a tile: 16 x 64 floats. Of 1000 x 1000 and 1024 x 1024 x + z' took 0.55 and 0.61 ms so, with
16 x 16 0.38 and 0.96; a transpose 0.27 and 0.51, and 0.17 and 0.46 (one Zen 4 core)."""

FLOATS = ("float32", "float64")
"""Numbers of which code generation has squares for what reads them."""

LEAST = 4
"""Values of either loop, at least: squares of less are no gain."""


@dataclass(frozen=True)
class _Across:
    """The loop for vectors, and the one that other accesses go along memory with."""

    vector: Loop
    other: Loop


def across_lines(schedule: Schedule, counts: Counts, unit: tuple[str, ...]) -> Schedule | None:
    """A pointwise nest in tiles of lines; None if no access goes across."""
    loops = schedule.loops(unit[0])
    if len(loops) < 2 or not is_perfect(schedule, unit) or not all(map(counts.parallel, loops)):
        return None
    found = _across(schedule, unit, loops, contiguous(counts, schedule, unit, loops))
    if found is None or min(counts.extent(found.vector), counts.extent(found.other)) < LEAST:
        return None
    name = unit[0]
    line = LINE // max(schedule.nest.tensor(schedule.nest.statement(n).write.tensor).itemsize for n in unit)
    tiles, points = [], []
    for loop, size in ((found.other, line), (found.vector, LINES * line)):
        point = loop.name
        if counts.extent(loop) > size:
            schedule = schedule.split(name, loop.name, size)
            around = [each.name for each in schedule.loops(name)]
            point = around[around.index(loop.name) + 1]
            tiles.append(loop.name)
        points.append(point)
    outer = [loop.name for loop in loops if loop is not found.other and loop is not found.vector]
    schedule = reordered(schedule, name, (*outer, *tiles, *points))
    inner = schedule.loops(name)[-1]
    if inner.name != points[1]:
        return None
    schedule = vectorized(schedule, name, inner)
    try:
        return schedule.separate(name, points[0]) if tiles else schedule
    except InvalidSchedule:  # all tiles are full
        return schedule


def _across(
    schedule: Schedule, unit: tuple[str, ...], loops: tuple[Loop, ...], vector: Loop
) -> _Across | None:
    """The accesses across memory; if only a write is contiguous along the vectors, the loops are interchanged."""
    statements = [schedule.nest.statement(name) for name in unit]
    writes = [(s.name, s.write) for s in statements]
    reads = [(s.name, access) for s in statements for access in s.reads]
    for other in loops:
        across = [each for each in (*writes, *reads) if goes(each, other, 1) and goes(each, vector, 2)]
        if other is vector or not across:
            continue
        if any(each in across for each in writes):
            return _Across(vector, other)
        if any(goes(each, vector, 1) for each in reads):
            floats = all(schedule.nest.tensor(access.tensor).dtype in FLOATS for _, access in across)
            return _Across(vector, other) if floats else None
        return _Across(other, vector)
    return None

"""Lengthen short rows of vector loops by collapsing two loops along neighbouring axes of all arrays.

    for k: for l < 28 (vector): s += x[i, k, l]   ->   for k_l < 784 (vector): s += x[i, k_l // 28, k_l % 28]

A vector loop of 28 values costs as much to enter and to leave as its values do: the sum over the images and pixels of
32 × 32 × 28 × 28 took 0.157 ms in rows of 28 and 0.098 in rows of 784 (one core of a Xeon).
"""

from __future__ import annotations

import islpy as isl

from polyfuse.errors import IllegalSchedule, InvalidSchedule
from polyfuse.ir.access import Access
from polyfuse.ir.tree import Loop, loops, loops_around, statements
from polyfuse.measure import duration
from polyfuse.schedule import Schedule
from polyfuse.schedule.binding import extent
from polyfuse.sets import IN, OUT
from polyfuse.strategy.cost.counts import Counts, dims_of
from polyfuse.strategy.cost.cpu_loops import LOOP_SECONDS
from polyfuse.strategy.fusion.group_search import part_with

SHORT = 256
"""Values of a row from which on entering its loop costs little beside them."""


def in_long_rows(schedule: Schedule, counts: Counts, first: str) -> tuple[Schedule, tuple[str, ...]]:
    """The kernel that holds a statement with its short rows joined, and a sentence on each."""
    said: list[str] = []
    found = _next(schedule, first)
    while found is not None:
        around, within = found
        name, size = statements(within)[0], extent(schedule.nest, within)
        try:
            schedule = schedule.collapse(name, around.name, within.name)
        except (IllegalSchedule, InvalidSchedule):
            break
        joined = schedule.loops(name)[-1]
        saved = counts.work(name).instances / (size or 1) * LOOP_SECONDS
        said.append(
            f"{around.name} and {within.name} are one loop of {extent(schedule.nest, joined)} values: "
            f"{duration(saved)} less to enter loops of {size}."
        )
        found = _next(schedule, first)
    return schedule, tuple(said)


def _next(schedule: Schedule, first: str) -> tuple[Loop, Loop] | None:
    """A loop, and the short vector loop that is all there is in it, which walk along the same memory."""
    for around in loops(part_with(schedule, first)):
        within = around.body
        if not isinstance(within, Loop) or within.bind != "vector" or around.bind or around.buffers:
            continue
        size = extent(schedule.nest, within)
        if size is not None and 1 < size < SHORT and _alike(schedule, around, within, size):
            return around, within
    return None


def _alike(schedule: Schedule, around: Loop, within: Loop, size: int) -> bool:
    """True if every access moves with neither loop, or along two neighbouring axes, the last ones, with both."""
    for name in statements(within):
        held = {
            b.tensor for loop in loops_around(schedule.tree, name) if loop is not within for b in loop.buffers
        }
        for access in schedule.nest.statement(name).accesses:
            dims = dims_of(around.date(name)) | dims_of(within.date(name))
            moving = [axis for axis in range(access.map.dim(OUT)) if _involves(access, axis, dims)]
            if not moving:
                continue
            axes, tensor = access.map.dim(OUT), schedule.nest.tensor(access.tensor)
            shape = tensor.shape
            if (
                tensor.gather is not None
                or access.tensor in held
                or moving != [axes - 2, axes - 1]
                or shape[-1] != size
            ):
                return False
            domain = schedule.nest.domains[name]
            dates = around.date(name), within.date(name)
            if not all(_is(access, axes - 2 + k, date, domain) for k, date in enumerate(dates)):
                return False
    return True


def _involves(access: Access, axis: int, dims: frozenset[int]) -> bool:
    value = access.subscripts().get_pw_aff(axis)
    return any(value.involves_dims(IN, d, 1) for d in dims)


def _is(access: Access, axis: int, date: isl.PwAff, domain: isl.Set) -> bool:
    """True if a subscript is a loop's value."""
    value = access.subscripts().get_pw_aff(axis)
    same = value.as_map().intersect_domain(domain).is_equal(date.as_map().intersect_domain(domain))
    return bool(same)

"""Schedule the copies of a product's factors by all threads of a block, in public verbs.

    for e0: for e1: load   ->   for e0_out: for e1_out: for e1_x (thread.x): for e0_y (thread.y): for l (vector): load

Neighbours in memory are on thread.x, 16 bytes of them a thread; the other axes have what else there is. Where a shape
asks for it, neighbours on thread.y go on with neighbours in memory, or some on thread.x have them:

    for e0: for e1: load   ->   … for e1_x (thread.x): for e0_y_e1_y (thread.y; e1_y inside): load
    for e0: for e1: load   ->   … for e0_x_e1_x (thread.x; e1_x inside): load

and where neighbours on an axis are to lie apart, a thread has what is between them: for e1_x: for e1 (serial): load.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from polyfuse.analysis.storage import BLOCKS
from polyfuse.ir.tree import Loop
from polyfuse.schedule import Schedule
from polyfuse.strategy.cuda.tiles.tile_shape import WRITTEN_OUT, ThreadValues, TileShape
from polyfuse.strategy.transforms.band_verbs import constant_extent, inside


def by_threads(
    schedule: Schedule,
    copy: str,
    loops: tuple[str, str],
    values: ThreadValues,
    shape: TileShape,
    *,
    placed: Mapping[str, str] = MappingProxyType({}),
    together: bool = False,
) -> Schedule:
    """A copy with its loops (steps, elements along the results) over threads, as a thread-value layout has them.

    `placed` is a loop that has a place already. Where a thread copies more elements than are written out, it has so
    many on their way `together`.
    """
    step, element = loops
    fine, other = (step, element) if values.by_steps else (element, step)
    places, lanes = dict(placed), tuple[str, ...]()
    if values.vector > 1:
        schedule = schedule.split(copy, fine, values.vector)
        lanes = (inside(schedule, copy, fine).name,)
    order = ((values.steps, step), (values.elements, element))[:: 1 if values.by_steps else -1]
    for several, along in order:
        for axis in several:
            if axis == values.folds and values.folded > 1:
                schedule, on_axis = _folded(schedule, copy, (other, fine), shape.on(axis), values.folded)
            else:
                if values.gap(axis) > 1:
                    schedule = schedule.split(copy, along, values.gap(axis))
                schedule = schedule.split(copy, along, shape.on(axis))
                on_axis = inside(schedule, copy, along).name
            places[on_axis] = f"thread.{axis}"
    if together:  # for e: load  ->  for e: for e_in (of 8, written out): load
        for name in loops:
            if (constant_extent(schedule, _loop(schedule, copy, name)) or WRITTEN_OUT + 1) > WRITTEN_OUT:
                schedule = schedule.split(copy, name, WRITTEN_OUT)
    own = _own(schedule, copy)
    serial = [loop for loop in own if loop not in places and loop not in lanes]
    schedule = schedule.reorder(copy, *serial, *places, *lanes).bind(copy, **places)
    for loop in schedule.loops(copy):
        if loop.name in serial and (constant_extent(schedule, loop) or 65) <= WRITTEN_OUT:
            schedule = schedule.unroll(copy, loop.name)
    return schedule.vectorize(copy, lanes[0]) if lanes else schedule


def _folded(
    schedule: Schedule, copy: str, loops: tuple[str, str], threads: int, folded: int
) -> tuple[Schedule, str]:
    """One loop over the innermost `folded` values of the second loop, around them as many of the first as there are."""
    pair = []
    for loop, count in zip(loops, (threads // folded, folded), strict=True):
        schedule = schedule.split(copy, loop, count)
        pair.append(inside(schedule, copy, loop).name)
    others = [name for name in _own(schedule, copy) if name not in pair]
    schedule = schedule.reorder(copy, *others, *pair)
    before = set(_own(schedule, copy))
    schedule = schedule.collapse(copy, *pair, width=folded)
    (made,) = set(_own(schedule, copy)) - before
    return schedule, made


def _loop(schedule: Schedule, copy: str, name: str) -> Loop:
    return next(loop for loop in schedule.loops(copy) if loop.name == name)


def _own(schedule: Schedule, copy: str) -> list[str]:
    """The loops of the copy alone, and of what clears its buffer, but those over blocks."""
    buffer = schedule.nest.statement(copy).write.tensor
    return [
        loop.name
        for loop in schedule.loops(copy)
        if loop.bind not in BLOCKS
        and all(schedule.nest.statement(name).write.tensor == buffer for name in loop.names)
    ]

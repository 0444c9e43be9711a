"""The axes of a GPU's blocks and threads, and which of them a loop runs along."""

from __future__ import annotations

import islpy as isl

from polyfuse.analysis.banks import WARP
from polyfuse.analysis.storage import BLOCKS, LANE, THREADS
from polyfuse.errors import InvalidSchedule
from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import Loop
from polyfuse.schedule.binding import extent

AXES = (*BLOCKS, *THREADS)

LANES = THREADS[0]
"""The axis that lanes run along."""


def axis_name(bind: str) -> str:
    """The variable that holds a hardware index: "block.x" -> "bx", "thread.y" -> "ty"."""
    unit, axis = bind.split(".")
    return f"{unit[0]}{axis}"


def axis_of(loop: Loop) -> str | None:
    """The hardware axis that a loop runs along; None for a loop that is one."""
    return LANES if loop.bind == LANE else loop.bind if loop.bind in AXES else None


def lanes_along(nest: Nest, bound: list[Loop], least: isl.Val, largest: isl.Val) -> int:
    """How long the axis of lanes is: whole warps, as many as its widest loop over lanes needs.

    A warp's threads are then at the same place whatever a row's guard says. Raises InvalidSchedule if other loops on
    the axis have more values.
    """
    most = max(extent(nest, loop) or 1 for loop in bound if loop.bind == LANE)
    count = -(-most // WARP) * WARP
    if least.is_int() and largest.is_int() and least >= 0 and largest < count:
        return count
    lanes, others = ([x.name for x in bound if (x.bind == LANE) is which] for which in (True, False))
    raise InvalidSchedule(
        f"{lanes[0]} is bound to lanes, so that {LANES} has {count} values, 0…{count - 1}; "
        f"{', '.join(dict.fromkeys(others))} on {LANES} has others: split it by {count}"
    )

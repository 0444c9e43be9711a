"""Map loops to the axes of a GPU's blocks and threads, with their bounds."""

from __future__ import annotations

import ast
from collections.abc import Mapping

import islpy as isl

from polyfuse.analysis.banks import WARP
from polyfuse.analysis.storage import BLOCKS, LANE, THREADS
from polyfuse.codegen.looptree.index import binary, plus, to_python
from polyfuse.codegen.looptree.nodes import Axis
from polyfuse.errors import InvalidSchedule, quantity
from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import CLUSTER, Loop, Tree, loops, statements
from polyfuse.schedule.binding import extent
from polyfuse.sets import greatest, least

AXES = (*BLOCKS, *THREADS)

LANES = THREADS[0]
"""The axis that lanes run along."""

PARTS_OF_A_WARP = (4, 8, 16)
"""The numbers of lanes that may share a reduction's values if a warp has several rows."""


Bounds = Mapping[str, tuple[ast.expr, ast.expr]]
"""The smallest value along each axis that a launch has, and one past the largest."""


def axis_name(bind: str) -> str:
    """The variable that holds a hardware index: "block.x" -> "bx", "thread.y" -> "ty"."""
    unit, axis = bind.split(".")
    return f"{unit[0]}{axis}"


def axis_of(loop: Loop) -> str | None:
    """The hardware axis that a loop runs along; None for a loop that is one."""
    return LANES if loop.bind == LANE else loop.bind if loop.bind in AXES else None


def bounds_of(nest: Nest, part: Tree) -> Bounds:
    """The axes that the loops of a launch run along, in order."""
    bound = {axis_of(loop) for loop in loops(part)}
    return {bind: axis_bounds(nest, part, bind) for bind in AXES if bind in bound}


def axes_of(bounds: Bounds) -> tuple[Axis, ...]:
    """The axes of a launch, each as long as it has values."""
    return tuple(Axis(bind, binary(ast.Sub(), high, low)) for bind, (low, high) in bounds.items())


def axis_bounds(nest: Nest, part: Tree, bind: str) -> tuple[ast.expr, ast.expr]:
    """The smallest value and one past the largest of all loops bound to an axis, as expressions in sizes.

    A statement without such a loop runs at value 0, which is then one of them.
    """
    bound = [loop for loop in loops(part) if axis_of(loop) == bind]
    everywhere = {name for loop in bound for name, _ in loop.dates} == set(statements(part))
    zero = isl.PwAff.val_on_domain(nest.context, isl.Val(0))
    low, high = (None, None) if everywhere else (zero, zero)
    for loop in bound:
        for name, date in loop.dates:
            values = date.intersect_domain(nest.domains[name]).as_map().range()
            if values.is_empty():
                continue
            low = values.dim_min(0) if low is None else low.union_min(values.dim_min(0))
            high = values.dim_max(0) if high is None else high.union_max(values.dim_max(0))
    if low is None or high is None:
        return ast.Constant(0), ast.Constant(0)
    smallest, largest = least(low), greatest(high)
    if any(loop.bind == LANE for loop in bound):
        return ast.Constant(0), ast.Constant(lanes_along(nest, bound, smallest, largest))
    if bind in (*THREADS, *CLUSTER) and smallest.is_int() and largest.is_int():
        # a block's shape, and a cluster's, is fixed when the kernel is compiled; smaller sizes are guarded
        return _number(smallest), plus(_number(largest), 1)
    build = isl.AstBuild.from_context(nest.context)
    first, last = (to_python(build.expr_from_pw_aff(value), {}) for value in (low, high))
    return first, plus(last, 1)


def _number(value: isl.Val) -> ast.expr:
    return ast.Constant(int(value.to_python()))


def lanes_along(nest: Nest, bound: list[Loop], smallest: isl.Val, largest: isl.Val) -> int:
    """The extent of the axis of lanes: whole warps, as many as its widest loop over lanes needs.

    A warp's threads are then at the same place whatever a row's guard says. Where every loop over lanes has the same
    power of two of values, less than a warp, so many lanes are a row's, and a warp has several rows. Raises
    InvalidSchedule if other loops on the axis have more values.
    """
    values = {extent(nest, loop) or 1 for loop in bound if loop.bind == LANE}
    most = max(values)
    count = most if values <= {*PARTS_OF_A_WARP} and len(values) == 1 else -(-most // WARP) * WARP
    if smallest.is_int() and largest.is_int() and smallest >= 0 and largest < count:
        return count
    lanes, others = ([x.name for x in bound if (x.bind == LANE) is which] for which in (True, False))
    raise InvalidSchedule(
        f"{lanes[0]} is bound to lanes, so that {LANES} has {quantity(count, 'value')}, 0…{count - 1}; "
        f"{', '.join(dict.fromkeys(others))} on {LANES} has others: split it by {count}"
    )

"""A microkernel's loops over one row and a window as one call: row_mac_windows(…).

::

    for r = max(0, 1 - k) … min(3, 29 - k): for s < 3: for q = max(0, 1 - s) … min(28, 29 - s):
        y[q] += w[r, s] * x[k + r - 1, q + s - 1]
    ->  row_mac_windows(
            TileSpec(rows=1, columns=28),
            y=y, y_at=(0,),
            a=w, a_at=(max(0, 1 - k), 0), a_column=0, …,
            b=x, b_at=(k + max(0, 1 - k) - 1, -1), b_column=1, …,
            counts=(min(3, 29 - k) - max(0, 1 - k),), lows=(1, 0, 0), highs=(28, 28, 27),
        )

The last two say which columns each value of s has.
"""

from __future__ import annotations

import ast

from polyfuse.codegen.cpu.intrinsics.microkernels.tile_spec import TileSpec
from polyfuse.codegen.cpu.patterns.calls import of_tile
from polyfuse.codegen.cpu.patterns.window_steps import (
    Steps,
    bounds_of,
    inner_movement,
    is_box,
    numbers,
    steps_of,
    where_present,
)
from polyfuse.codegen.looptree.index import binary, mentions
from polyfuse.codegen.looptree.intervals import interval
from polyfuse.codegen.looptree.joint_values import Facts
from polyfuse.codegen.looptree.nodes import Element, For, Node, Store
from polyfuse.codegen.looptree.product import corner, movement
from polyfuse.ir.number_types import ITEMSIZE
from polyfuse.schedule.microkernel_verb import MOST_SUMS, NEAR_COLUMNS, padded


def row_over_windows(top: For, facts: Facts) -> ast.Call | None:
    """The call for loops of steps and columns around a store.

    None if the sum has rows too, where bounds change with other steps, or where no numbers bound the columns.
    """
    *steps, columns, store = _chain(top)
    if not steps or not isinstance(columns, For) or not isinstance(store, Store) or len(store.reads) != 2:
        return None
    loops = tuple(loop for loop in (*steps, columns) if isinstance(loop, For))
    around = Steps(loops[:-1], None, range(1))
    if any(loop.step != 1 for loop in loops) or any(_moves(store.target, loop) for loop in around.loops):
        return None
    return _call(loops, store, facts)


def _chain(top: For) -> list[Node]:
    """A loop, the loops inside it, one in the other, and what the innermost one holds."""
    found: list[Node] = [top]
    while isinstance(found[-1], For):
        found.append(found[-1].body)
    return found


def _moves(element: Element, loop: For) -> bool:
    return any(mentions(subscript, loop.variable) for subscript in element.subscripts)


def _call(loops: tuple[For, ...], store: Store, facts: Facts) -> ast.Call | None:
    *every_step, columns = loops
    steps = steps_of(every_step, facts.ranges)
    if not is_box(loops, columns, steps.inner):
        return None
    bounds = bounds_of(columns, steps, facts.ranges)
    starts = [interval(one.low, facts.ranges).low for one in bounds]
    ends = [interval(one.high, facts.ranges).high for one in bounds]
    known = [end for end in (*starts, *ends) if end is not None]
    itemsize = ITEMSIZE[store.target.dtype]
    if len(known) < 2 * len(bounds) or padded(max(known) - min(known), itemsize) > MOST_SUMS:
        return None
    first = {loop.variable: loop.low for loop in steps.loops} | steps.first(steps.values.start)
    first[columns.variable] = ast.Constant(min(known))
    factors = [_factor(read, columns, steps, first) for read in store.reads]
    if _along(store.target, columns) != 1 or None in factors:
        return None
    present = where_present(bounds, steps, facts.ranges)
    start = ast.Constant(min(known))
    left, right = (dict(zip(FACTOR, factor or (), strict=True)) for factor in factors)
    return of_tile(
        "row_mac_windows",
        TileSpec(1, max(known) - min(known)),
        y=ast.Name(store.target.array),
        y_at=corner(store.target, first),
        **{f"a{name}": value for name, value in left.items()},
        **{f"b{name}": value for name, value in right.items()},
        counts=ast.Tuple([binary(ast.Sub(), loop.high, loop.low) for loop in steps.loops]),
        lows=ast.Tuple([binary(ast.Sub(), one.low, start) for one in present]),
        highs=ast.Tuple([binary(ast.Sub(), one.high, start) for one in present]),
    )


FACTOR = ("", "_at", "_column", "_steps")
"""The suffixes of a factor's arguments, after its name."""


def _factor(
    element: Element, columns: For, steps: Steps, first: dict[str, ast.expr]
) -> list[ast.expr] | None:
    """A factor's arguments: its array, where it begins, numbers between columns, and how it moves with each step."""
    along = _along(element, columns)
    by_loops = [movement(element, loop) for loop in steps.loops]
    inner = inner_movement(element, steps)
    if along is None or inner is None or None in by_loops:
        return None
    moved = ast.Tuple([numbers(by) for by in (*by_loops, inner)])
    return [ast.Name(element.array), corner(element, first), ast.Constant(along), moved]


def _along(element: Element, columns: For) -> int | None:
    """The distance in elements to the next column along the last axis; None if it lies elsewhere or too far."""
    moved = movement(element, columns)
    if moved is None or any(moved[:-1]):
        return None
    return moved[-1] if moved and 0 <= moved[-1] <= NEAR_COLUMNS else 0 if not moved else None

"""A microkernel's loops over one row and a window as one line of source: row_mac_windows(…).

for r = max(0, 1 - k) … min(3, 29 - k): for s < 3: for q = max(0, 1 - s) … min(28, 29 - s):
    y[q] += w[r, s] * x[k + r - 1, q + s - 1]
->  row_mac_windows(28, y, (0,), w, (max(0, 1 - k), 0), 0, …, x, (k + max(0, 1 - k) - 1, -1), 1, …,
                    (min(3, 29 - k) - max(0, 1 - k),), (1, 0, 0), (28, 28, 27))

The last two say which columns each value of s has.
"""

from __future__ import annotations

import ast

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
from polyfuse.schedule.microkernel_verb import MOST_SUMS, NEAR_COLUMNS, padded


def row_over_windows(top: For, facts: Facts) -> ast.expr | None:
    """The call for loops of steps and columns around a store.

    None where the sum has rows too, where bounds change with other steps, or where no numbers bound the columns.
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


def _call(loops: tuple[For, ...], store: Store, facts: Facts) -> ast.expr | None:
    *every_step, columns = loops
    steps = steps_of(every_step, facts.ranges)
    if not is_box(loops, columns, steps.inner):
        return None
    bounds = bounds_of(columns, steps, facts.ranges)
    starts = [interval(one.low, facts.ranges).low for one in bounds]
    ends = [interval(one.high, facts.ranges).high for one in bounds]
    known = [end for end in (*starts, *ends) if end is not None]
    itemsize = int(store.target.dtype.removeprefix("float")) // 8
    if len(known) < 2 * len(bounds) or padded(max(known) - min(known), itemsize) > MOST_SUMS:
        return None
    first = {loop.variable: loop.low for loop in steps.loops} | steps.first(steps.values.start)
    first[columns.variable] = ast.Constant(min(known))
    factors = [_factor(read, columns, steps, first) for read in store.reads]
    if _along(store.target, columns) != 1 or None in factors:
        return None
    present = where_present(bounds, steps, facts.ranges)
    start = ast.Constant(min(known))
    arguments: list[ast.expr] = [
        ast.Constant(max(known) - min(known)),
        *(ast.Name(store.target.array), corner(store.target, first)),
        *(argument for factor in factors for argument in factor or ()),
        ast.Tuple([binary(ast.Sub(), loop.high, loop.low) for loop in steps.loops]),
        ast.Tuple([binary(ast.Sub(), one.low, start) for one in present]),
        ast.Tuple([binary(ast.Sub(), one.high, start) for one in present]),
    ]
    return ast.Call(ast.Name("row_mac_windows"), arguments, [])


def _factor(
    element: Element, columns: For, steps: Steps, first: dict[str, ast.expr]
) -> list[ast.expr] | None:
    """A factor's arguments: its array, where it begins, numbers between columns, and how it moves with each step."""
    along = _along(element, columns)
    by_loops = [movement(element, loop) for loop in steps.loops]
    inner = inner_movement(element, steps)
    if along is None or inner is None or None in by_loops:
        return None
    moved = ast.Tuple([numbers(by) for by in by_loops])
    return [ast.Name(element.array), corner(element, first), ast.Constant(along), moved, numbers(inner)]


def _along(element: Element, columns: For) -> int | None:
    """How many numbers further the next column is, along the last axis; None where it is elsewhere, or too far."""
    moved = movement(element, columns)
    if moved is None or any(moved[:-1]):
        return None
    return moved[-1] if moved and 0 <= moved[-1] <= NEAR_COLUMNS else 0 if not moved else None

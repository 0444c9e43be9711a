"""Separate the steps that all rows of a tile have from those of some rows: the border of a triangle.

    for k < 64: for r < min(6, k - 6*i): for c < 32: y[6*i + r, c] += a[k, 6*i + r] * b[k, c]
    ->  for k < 6*i + 6: for r < k - 6*i: for c: …            few steps, as loops
        for k = 6*i + 6 … 64: for r < 6: for c: …             the tile

All steps stay in their order. Rows begin or end one further with each step, so the ones with all rows are an interval.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace

from polyfuse.codegen.looptree.index import binary, mentions, solved
from polyfuse.codegen.looptree.nodes import Block, For, Guard, Let, Node
from polyfuse.codegen.looptree.product import parts_of, tile_of


def steps_apart(top: For, unused: Callable[[str], str]) -> Block | None:
    """A product's loops in pieces; None if its rows are the same for all steps, or no interval of steps has all.

    `unused` makes a name of its own for a variable.
    """
    tile = tile_of(top)
    if tile is None or len(tile.steps) > 1 or tile.rows is not top.body:
        return None
    rows, k = tile.rows, top.variable
    if not any(mentions(bound, k) for bound in (rows.low, rows.high)):
        return None
    low, high = (_same(bound, of, k) for bound, of in ((rows.low, "max"), (rows.high, "min")))
    if low is None or high is None:
        return None
    reached = with_all_rows(top, rows, low, high)
    if reached is None:
        return None
    first, end = reached
    start, stop = (unused(f"{k}_{what}") for what in ("first", "end"))
    until = ast.Call(ast.Name("min"), [ast.Name(start), top.high], [])
    after = ast.Call(ast.Name("max"), [ast.Name(start), ast.Name(stop)], [])
    whole = replace(top, low=ast.Name(start), high=ast.Name(stop), body=replace(rows, low=low, high=high))
    pieces: list[Node] = [
        Let(start, _of("max", first)),
        Let(stop, _of("min", end)),
        replace(top, bind=None, high=until),
        Guard(ast.Compare(ast.Name(start), [ast.Lt()], [ast.Name(stop)]), whole),
    ]
    return Block((*pieces, replace(top, bind=None, low=after)) if len(end) > 1 else tuple(pieces))


def with_all_rows(
    steps: For, rows: For, low: ast.expr, high: ast.expr
) -> tuple[list[ast.expr], list[ast.expr]] | None:
    """The steps in which rows begin at `low` at most and end at `high` at least: (from the largest, to the least of).

    Parts of the rows' bounds that are the same in all steps are left out. None if this is no interval that is seen.
    """
    first, end = [steps.low], [steps.high]
    for bound, of, box in ((rows.low, "max", low), (rows.high, "min", high)):
        for part in (p for p in parts_of(bound, of) if mentions(p, steps.variable)):
            reached = solved(part, steps.variable, of == "max", box)
            if reached is None:
                return None
            most, value = reached
            if most:
                end.append(binary(ast.Add(), value, ast.Constant(1)))
            else:
                first.append(value)
    return first, end


def _same(bound: ast.expr, of: str, variable: str) -> ast.expr | None:
    """The parts of a bound that do not change with a variable; None if there are none."""
    kept = [part for part in parts_of(bound, of) if not mentions(part, variable)]
    return _of(of, kept) if kept else None


def _of(name: str, values: list[ast.expr]) -> ast.expr:
    return values[0] if len(values) == 1 else ast.Call(ast.Name(name), values, [])

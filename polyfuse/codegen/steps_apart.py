"""Steps that all rows of a tile have, apart from those that only some have: the border of a triangle of steps.

    for k < 64: for r < min(6, k - 6*i): for c < 32: y[6*i + r, c] += a[k, 6*i + r] * b[k, c]
    ->  for k < 6*i + 6: for r < k - 6*i: for c: …            few steps, as loops
        for k = 6*i + 6 … 64: for r < 6: for c: …             the tile

All steps stay in their order. Rows begin or end one further with each step, so the ones with all rows are an interval.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace

from polyfuse.codegen.index import binary, mentions, substituted
from polyfuse.codegen.looptree import Block, For, Guard, Let, Node
from polyfuse.codegen.product_loops import growth, parts_of, tile_of


def steps_apart(top: For, unused: Callable[[str], str]) -> Block | None:
    """A product's loops in pieces; None if its rows are the same for all steps, or change by more than one a step.

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
    first, end = [top.low], [top.high]
    for bound, of, box in ((rows.low, "max", low), (rows.high, "min", high)):
        for part in (p for p in parts_of(bound, of) if mentions(p, k)):
            by = growth(part, top)
            if by not in (1, -1):
                return None
            where = binary(ast.Sub(), box, substituted(part, {k: ast.Constant(0)}))  # the part is `box` here
            reached = where if by == 1 else binary(ast.Sub(), ast.Constant(0), where)
            if (by == 1) == (of == "min"):
                first.append(reached)
            else:
                end.append(binary(ast.Add(), reached, ast.Constant(1)))
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


def _same(bound: ast.expr, of: str, variable: str) -> ast.expr | None:
    """The parts of a bound that do not change with a variable; None if there are none."""
    kept = [part for part in parts_of(bound, of) if not mentions(part, variable)]
    return _of(of, kept) if kept else None


def _of(name: str, values: list[ast.expr]) -> ast.expr:
    return values[0] if len(values) == 1 else ast.Call(ast.Name(name), values, [])

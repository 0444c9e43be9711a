"""A microkernel's loops of steps, rows, columns and lanes of steps as one call: tile_dot(…)."""

from __future__ import annotations

import ast

from polyfuse.codegen.cpu.intrinsics.microkernels.tile_spec import TileSpec
from polyfuse.codegen.cpu.patterns.calls import of_tile
from polyfuse.codegen.looptree.index import binary, is_number, mentions, substituted
from polyfuse.codegen.looptree.nodes import Element, For, Store
from polyfuse.codegen.looptree.product import axis, corner, growth, most_of, movement, moves, parts_of


def dot_products(top: For) -> ast.Call | None:
    """The call for the loops of a tile of dot products; None if these are not of that form.

    ::

        for k: for r < 3: for c < 4: for l < min(8, n - 8*k):
            y[3*i + r, 4*j + c] += x[3*i + r, 8*k + l] * w[4*j + c, 8*k + l]
        ->  tile_dot(
                TileSpec(rows=3, columns=4, lanes=8), rows_here=3, columns_here=4,
                y=y, y_at=(3 * i, 4 * j), y_row=0,
                a=x, a_at=(3 * i, 0), a_row=0,
                b=w, b_at=(4 * j, 0), b_row=0,
                steps=n,
            )
    """
    match top.body:
        case For(body=For(body=For(body=Store() as store) as lanes) as second) as first:
            pass
        case _:
            return None
    every = (top, first, second, lanes)
    if any(loop.step != 1 for loop in every) or moves(store.target, top) or moves(store.target, lanes):
        return None
    across = axis(store.target, first) == len(store.target.subscripts) - 1
    rows, columns = (second, first) if across else (first, second)
    a, b = store.reads if moves(store.reads[0], rows) else reversed(store.reads)
    sums_row, sums_column, a_row, b_row = (
        axis(element, loop)
        for element, loop in ((store.target, rows), (store.target, columns), (a, rows), (b, columns))
    )
    high, wide, many = (most_of(loop) for loop in (rows, columns, lanes))
    if high is None or wide is None or many is None or None in (sums_row, a_row, b_row):
        return None
    if moves(a, columns) or moves(b, rows):
        return None
    if sums_column != len(store.target.subscripts) - 1 or not is_number(lanes.low, 0):
        return None
    if not all(_along(element, lanes, 1) and _along(element, top, many) for element in (a, b)):
        return None
    depends = ((rows, (top, columns, lanes)), (columns, (top, rows, lanes)), (lanes, (rows, columns)))
    if any(
        mentions(bound, other.variable)
        for loop, others in depends
        for bound in (loop.low, loop.high)
        for other in others
    ):
        return None
    steps = _steps(top, lanes, many)
    if steps is None:
        return None
    start = {loop.variable: loop.low for loop in every}
    return of_tile(
        "tile_dot",
        TileSpec(high, 1 << (wide - 1).bit_length(), lanes=many),
        rows_here=binary(ast.Sub(), rows.high, rows.low),
        columns_here=binary(ast.Sub(), columns.high, columns.low),
        y=ast.Name(store.target.array),
        y_at=corner(store.target, start),
        y_row=ast.Constant(sums_row),
        a=ast.Name(a.array),
        a_at=corner(a, start),
        a_row=ast.Constant(a_row),
        b=ast.Name(b.array),
        b_at=corner(b, start),
        b_row=ast.Constant(b_row),
        steps=steps,
    )


def _along(element: Element, loop: For, by: int) -> bool:
    """True if an element goes along its last axis with a loop, so many places at a time."""
    moved = movement(element, loop)
    return bool(moved) and moved is not None and moved[-1] == by and not any(moved[:-1])


def _steps(top: For, lanes: For, many: int) -> ast.expr | None:
    """The number of steps: as many vectors as the outer loop has values, of which the last one may be cut short."""
    whole = binary(ast.Mult(), ast.Constant(many), binary(ast.Sub(), top.high, top.low))
    short = [part for part in parts_of(lanes.high, "min") if not is_number(part, many)]
    if not short:
        return whole
    if len(short) > 1 or growth(short[0], top) != -many:
        return None
    rest = substituted(short[0], {top.variable: top.low})
    return ast.Call(ast.Name("min"), [whole, rest], [])

"""A product in a tile that a border cuts aslant as one call: tile_mac_slanted(…).

::

    for k: for r < min(6, n - 6*i): for c = max(0, 6*i + r - 32*j) … 32: y[6*i + r, 32*j + c] += …
    ->  tile_mac_slanted(TileSpec(rows=6, columns=32), rows_here=min(6, n - 6 * i),
                         lows=((0, 0), (6 * i - 32 * j, 1)), highs=((32, 0),), y=y, …)
"""

from __future__ import annotations

import ast

from polyfuse.codegen.cpu.intrinsics.microkernels.tile_spec import TileSpec
from polyfuse.codegen.cpu.patterns.calls import of_tile
from polyfuse.codegen.cpu.patterns.microkernel import named_operands
from polyfuse.codegen.looptree.index import binary, mentions, substituted
from polyfuse.codegen.looptree.nodes import For
from polyfuse.codegen.looptree.product import ProductLoops, growth, most_of, numbers_in, parts_of
from polyfuse.schedule.microkernel_verb import padded


def slanted_product(tile: ProductLoops) -> ast.Call | None:
    """The call; None unless columns alone change with rows, by the same number for each, and numbers bound both."""
    top, rows, columns = tile.steps[0], tile.rows, tile.columns
    most_rows, most_columns = most_of(rows), most_of(columns)
    if len(tile.steps) > 1 or most_rows is None or most_columns is None:
        return None
    inside = (top, rows.variable), (top, columns.variable), (rows, top.variable), (rows, columns.variable)
    if any(_changes(loop, variable) for loop, variable in (*inside, (columns, top.variable))):
        return None
    begin = ast.Constant(max(numbers_in(columns.low, "max")))
    lows, highs = (
        _bounds(bound, of, rows, begin) for bound, of in ((columns.low, "max"), (columns.high, "min"))
    )
    first = {top.variable: top.low, rows.variable: rows.low, columns.variable: begin}
    passed = named_operands(tile, first)
    if lows is None or highs is None or passed is None:
        return None
    spec = TileSpec(most_rows, padded(most_columns, tile.itemsize))
    here = binary(ast.Sub(), rows.high, rows.low)
    return of_tile("tile_mac_slanted", spec, rows_here=here, lows=lows, highs=highs, **passed)


def _changes(loop: For, variable: str) -> bool:
    return any(mentions(bound, variable) for bound in (loop.low, loop.high))


def _bounds(bound: ast.expr, of: str, rows: For, begin: ast.expr) -> ast.Tuple | None:
    """max(0, 3 + r)  ->  ((0, 0), (3, 1)), counted from where columns begin; None if a part does not grow evenly."""
    pairs: list[ast.expr] = []
    for part in parts_of(bound, of):
        by = growth(part, rows)
        if by is None:
            return None
        first = binary(ast.Sub(), substituted(part, {rows.variable: rows.low}), begin)
        pairs.append(ast.Tuple([first, ast.Constant(by)]))
    return ast.Tuple(pairs)

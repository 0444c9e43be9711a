"""A microkernel's loops of steps, rows and columns as one call: tile_mac(…)."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from polyfuse.codegen.cpu.intrinsics.microkernels.tile_spec import TileSpec
from polyfuse.codegen.cpu.patterns.calls import of_tile
from polyfuse.codegen.cpu.patterns.prefetch_panel import asked_ahead, asked_further_on
from polyfuse.codegen.looptree.index import binary, is_number, mentions
from polyfuse.codegen.looptree.joint_values import Facts
from polyfuse.codegen.looptree.nodes import For
from polyfuse.codegen.looptree.product import ProductLoops, corner, last_of, most_of, operands
from polyfuse.schedule.microkernel_verb import padded

OPERANDS = ("y", "y_at", "y_row", "a", "a_at", "a_row", "a_step", "b", "b_at", "b_step", "steps")
"""The parameter names, in operations on a tile, of the values that `operands` gives."""


def one_loop_of_steps(tile: ProductLoops, around: Sequence[For], facts: Facts) -> ast.Call | None:
    """`tile_mac`, one of it that asks for memory ahead, or `tile_mac_cut`; None if the loops are not of that form.

    for k: for r: for c: y[r, c] += a[r, k] * b[k, c]   ->   for r < 8, c < 32 in all:

    x[8*i + r, k] * w[k, 32*j + c]   ->   tile_mac(TileSpec(rows=8, columns=32), y=y, …, a=x, …, b=w, …, steps=n)
    where r < min(8, m - 8*i)        ->   tile_mac_cut(TileSpec(…), rows_here=min(8, m - 8 * i), columns_here=32, …)
    where r < min(8, 21 - 8*i)       ->   tile_mac_cut(TileSpec(rows=8, columns=32, last_rows=5, last_columns=32), …)
    that asks for a next panel       ->   tile_mac_ahead(…, steps=n, following=(j + 1, 0, 0), part=i, share=4)
    … of the rows' factor            ->   tile_mac_rows_ahead(…, steps=n, following=(i + 1, 0, 0), part=j, share=4)
    … of the columns two tiles on    ->   tile_mac_columns_ahead(…, steps=n, further=64)

    `around` are the loops outside, outermost first, and `facts` what is known of their variables.
    """
    top, rows, columns = tile.steps[0], tile.rows, tile.columns
    most_rows, most_columns = most_of(rows), most_of(columns)
    if (
        len(tile.steps) > 1
        or most_rows is None
        or most_columns is None
        or _depends(rows, columns, top)
        or _depends(columns, rows, top)
    ):
        return None
    first = {loop.variable: loop.low for loop in (top, rows, columns)}
    passed = named_operands(tile, first)
    if passed is None:
        return None
    width = padded(most_columns, tile.itemsize)
    here = [binary(ast.Sub(), loop.high, loop.low) for loop in (rows, columns)]
    most = most_rows, most_columns
    if not is_number(here[0], most_rows) or not is_number(here[1], width):
        last_rows, last_columns = map(last_of, here, most)
        spec = TileSpec(*most, last_rows, last_columns)
        return of_tile("tile_mac_cut", spec, rows_here=here[0], columns_here=here[1], **passed)
    # a tile that is cut short is one of the last: the others have asked
    of_rows = bool(top.ahead) and top.ahead[0][0].array == tile.left.array != tile.right.array
    panels, width = (tile.left, most_rows) if of_rows else (tile.right, most_columns)
    further = None if of_rows else asked_further_on(top, corner(panels, first), first)
    if further is not None:
        return of_tile("tile_mac_columns_ahead", TileSpec(*most), **passed, further=ast.Constant(further))
    asked = asked_ahead(top, around, facts, corner(panels, first), first, width)
    if asked is None:
        return of_tile("tile_mac", TileSpec(*most), **passed)
    following, part, share = asked
    called = "tile_mac_rows_ahead" if of_rows else "tile_mac_ahead"
    return of_tile(called, TileSpec(*most), **passed, following=following, part=part, share=share)


def named_operands(tile: ProductLoops, first: dict[str, ast.expr]) -> dict[str, ast.expr] | None:
    """The operands of a product by the names of an operation's arguments, each from where the loops begin.

    None if an element does not go along one axis with each loop.
    """
    passed = operands(tile, first)
    return None if passed is None else dict(zip(OPERANDS, passed, strict=True))


def _depends(loop: For, *others: For) -> bool:
    """True if a loop's bounds change with other loops."""
    return any(mentions(bound, other.variable) for bound in (loop.low, loop.high) for other in others)

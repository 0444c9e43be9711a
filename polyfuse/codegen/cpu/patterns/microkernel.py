"""A microkernel's loops of steps, rows and columns as one line of source: tile_mac(…)."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from polyfuse.codegen.cpu.patterns.prefetch_panel import asked_ahead
from polyfuse.codegen.looptree.index import binary, is_number, mentions
from polyfuse.codegen.looptree.joint_values import Facts
from polyfuse.codegen.looptree.nodes import For
from polyfuse.codegen.looptree.product import ProductLoops, corner, last_of, most_of, operands
from polyfuse.schedule.microkernel_verb import padded


def one_loop_of_steps(tile: ProductLoops, around: Sequence[For], facts: Facts) -> ast.expr | None:
    """`tile_mac`, `tile_mac_ahead` or `tile_mac_cut`; None where the loops are not of that form.

    for k: for r: for c: y[r, c] += a[r, k] * b[k, c]   ->   for r < 8, c < 32 in all:

    x[8*i + r, k] * w[k, 32*j + c]   ->   tile_mac(8, 32, y, (0, 0), 0, x, (8 * i, 0), 0, 1, w, (0, 32 * j), 0, n)
    where r < min(8, m - 8*i)        ->   tile_mac_cut(8, 32, 0, 32, min(8, m - 8 * i), 32, y, (0, 0), …)
    where r < min(8, 21 - 8*i)       ->   tile_mac_cut(8, 32, 5, 32, min(8, 21 - 8 * i), 32, y, (0, 0), …)
    that asks for a next panel       ->   tile_mac_ahead(8, 32, y, …, w, (j, 0, 0), 1, n, (j + 1, 0, 0), i, 4)

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
    passed = operands(tile, first)
    if passed is None:
        return None
    width = padded(most_columns, tile.itemsize)
    here = [binary(ast.Sub(), loop.high, loop.low) for loop in (rows, columns)]
    whole = is_number(here[0], most_rows) and is_number(here[1], width)
    most = most_rows, most_columns
    sizes = [*most] if whole else [*most, *map(last_of, here, most)]
    arguments = [*map(ast.Constant, sizes), *([] if whole else here), *passed]
    # a tile that is cut short is one of the last: the others have asked
    panel = corner(tile.right, first)
    asked = asked_ahead(top, around, facts, panel, first, most_columns) if whole else None
    if asked is not None:
        return ast.Call(ast.Name("tile_mac_ahead"), [*arguments, *asked], [])
    return ast.Call(ast.Name("tile_mac" if whole else "tile_mac_cut"), arguments, [])


def _depends(loop: For, *others: For) -> bool:
    """Whether a loop's bounds change with other loops."""
    return any(mentions(bound, other.variable) for bound in (loop.low, loop.high) for other in others)

"""A microkernel's loops over one row as one call: row_mac(…)."""

from __future__ import annotations

import ast

from polyfuse.codegen.cpu.intrinsics.microkernels.tile_spec import TileSpec
from polyfuse.codegen.cpu.patterns.calls import of_tile
from polyfuse.codegen.looptree.index import binary, mentions, substituted
from polyfuse.codegen.looptree.nodes import Element, For, Store
from polyfuse.codegen.looptree.product import axis, moves
from polyfuse.ir.number_types import ITEMSIZE
from polyfuse.schedule.microkernel_verb import padded


def row_product(top: For) -> ast.Call | None:
    """The call for the loops steps and columns around a store; None where these are not all, or of no known number.

    ::

        for k: for c in 0 … 64: y[c] += x[0, k] * w[j, k, c]
        ->  row_mac(
                TileSpec(rows=1, columns=64),
                y=y, y_at=(0,),
                a=x, a_at=(0, 0), a_step=1,
                b=w, b_at=(j, 0, 0), b_step=1,
                steps=n,
            )
    """
    match top.body:
        case For(body=Store() as store) as columns:
            width = binary(ast.Sub(), columns.high, columns.low)
        case _:
            return None
    across = [any(mentions(s, columns.variable) for s in read.subscripts) for read in store.reads]
    columns_of_row = _whole_columns(width, store)
    if across.count(True) != 1 or columns_of_row is None:
        return None
    left, right = store.reads if across[1] else reversed(store.reads)
    axes = [axis(element, top) for element in (left, right)]
    if None in axes or any(axis(each, columns) != len(each.subscripts) - 1 for each in (right, store.target)):
        return None
    if moves(store.target, top):
        return None
    first = {top.variable: top.low, columns.variable: columns.low}

    def at(element: Element) -> ast.expr:
        return ast.Tuple([substituted(subscript, first) for subscript in element.subscripts])

    return of_tile(
        "row_mac",
        TileSpec(1, columns_of_row),
        y=ast.Name(store.target.array),
        y_at=at(store.target),
        a=ast.Name(left.array),
        a_at=at(left),
        a_step=ast.Constant(axes[0]),
        b=ast.Name(right.array),
        b_at=at(right),
        b_step=ast.Constant(axes[1]),
        steps=binary(ast.Sub(), top.high, top.low),
    )


def _whole_columns(width: ast.expr, store: Store) -> int | None:
    """The columns of a row, if they are a known, whole number of vectors."""
    itemsize = ITEMSIZE[store.target.dtype]
    match width:
        case ast.Constant(value=int(columns)) if padded(columns, itemsize) == columns:
            return columns
    return None

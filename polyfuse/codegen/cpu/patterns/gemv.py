"""A microkernel's loops over one row as one line of source: row_mac(…)."""

from __future__ import annotations

import ast

from polyfuse.codegen.looptree.index import binary, mentions, substituted
from polyfuse.codegen.looptree.nodes import Element, For, Store
from polyfuse.codegen.looptree.product import axis, moves
from polyfuse.schedule.microkernel_verb import padded


def row_product(top: For) -> ast.expr | None:
    """The call for the loops steps and columns around a store; None where these are not all, or of no known number.

    for k: for c in 0 … 64: y[c] += x[0, k] * w[j, k, c]   ->   row_mac(64, y, (0,), x, (0, 0), 1, w, (j, 0, 0), 1, n)
    """
    match top.body:
        case For(body=Store() as store) as columns:
            width = binary(ast.Sub(), columns.high, columns.low)
        case _:
            return None
    across = [any(mentions(s, columns.variable) for s in read.subscripts) for read in store.reads]
    if across.count(True) != 1 or not _is_whole(width, store):
        return None
    left, right = store.reads if across[1] else reversed(store.reads)
    axes = [axis(element, top) for element in (left, right)]
    if None in axes or any(axis(each, columns) != len(each.subscripts) - 1 for each in (right, store.target)):
        return None
    if moves(store.target, top):
        return None
    first = {top.variable: top.low, columns.variable: columns.low}

    def operand(element: Element) -> list[ast.expr]:
        corner = ast.Tuple([substituted(subscript, first) for subscript in element.subscripts])
        return [ast.Name(element.array), corner]

    arguments = [
        width,
        *operand(store.target),
        *operand(left),
        ast.Constant(axes[0]),
        *operand(right),
        ast.Constant(axes[1]),
        binary(ast.Sub(), top.high, top.low),
    ]
    return ast.Call(ast.Name("row_mac"), arguments, [])


def _is_whole(width: ast.expr, store: Store) -> bool:
    """Whether a row is a known, whole number of vectors."""
    itemsize = int(store.target.dtype.removeprefix("float")) // 8
    match width:
        case ast.Constant(value=int(columns)):
            return padded(columns, itemsize) == columns
    return False

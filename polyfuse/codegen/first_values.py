"""The zeros that a tile's sums begin with, as one operation: whole vectors, like those that the product then loads.

    for r: for c: y[8*i + r, 32*j + c] = 0   ->   tile_zero(8, 32, y, (8 * i, 32 * j), 0)

As loops LLVM stores them in vectors of half a register (its choice where both widths exist), and a load of a whole one
has to wait until two such stores have reached L1, for which their line must have come from memory: 512 ran at 84 % of
the peak, and with whole vectors at 86 (one core of a Xeon).
"""

from __future__ import annotations

import ast
from typing import Any

from numba import types
from numba.extending import intrinsic

from polyfuse.codegen.index import binary, is_number
from polyfuse.codegen.looptree import For, Store
from polyfuse.codegen.product_loops import axis, corner, most_of
from polyfuse.codegen.tiles import VECTOR_BYTES, Operand, Tile, are_literals

MOST = 32
"""Vectors that are stored one by one: what registers hold."""


@intrinsic(prefer_literal=True)
def tile_zero(typingctx: Any, rows: Any, columns: Any, y: Any, y_index: Any, y_row_axis: Any) -> Any:
    """Set a tile's sums to zero: `rows` along `y_row_axis`, `columns` along the last axis, from `y_index` on."""
    if not are_literals(rows, columns, y_row_axis):
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        tile = Tile(builder, sig.args[2].dtype, sig.args[0].literal_value, sig.args[1].literal_value)
        sums = Operand(context, builder, sig.args[2], args[2])
        stride = sums.strides[sig.args[4].literal_value]
        zeros = tile.broadcast(tile.element(0.0))
        for position, address in enumerate(tile.addresses(sums.at(sig.args[3], args[3]), stride)):
            tile.store(zeros, address, position % tile.vectors)
        return context.get_dummy_value()

    return types.void(rows, columns, y, y_index, y_row_axis), codegen


def zeros_of_tile(rows: For) -> ast.expr | None:
    """The call for two loops that set a tile of whole vectors to zero; None where they do not."""
    columns = rows.body
    if not isinstance(columns, For) or not isinstance(columns.body, Store):
        return None
    store, height, width = columns.body, _values(rows), _values(columns)
    if store.op != "=" or not store.body.is_zero or store.target.dtype not in ("float32", "float64"):
        return None
    row_axis = axis(store.target, rows)
    if row_axis is None or axis(store.target, columns) != len(store.target.subscripts) - 1:
        return None
    itemsize = int(store.target.dtype.removeprefix("float")) // 8
    nbytes = height * width * itemsize
    if nbytes == 0 or width * itemsize % VECTOR_BYTES or nbytes > MOST * VECTOR_BYTES:
        return None
    first = {loop.variable: loop.low for loop in (rows, columns)}
    sums = ast.Name(store.target.array), corner(store.target, first), ast.Constant(row_axis)
    return ast.Call(ast.Name("tile_zero"), [ast.Constant(height), ast.Constant(width), *sums], [])


def _values(loop: For) -> int:
    """How many values a loop has, one after the other, wherever it begins; 0 where that is not known."""
    count = most_of(loop)
    known = count is not None and loop.step == 1 and is_number(binary(ast.Sub(), loop.high, loop.low), count)
    return count if known and count is not None else 0

"""The values that a tile's sums begin with, as one operation: whole vectors, like those that the product then loads.

    for r: for c: y[8*i + r, 32*j + c] = 0             ->   tile_zero(8, 32, y, (8 * i, 32 * j), 0)
    for r: for c: y[8*i + r, 32*j + c] = b[32*j + c]   ->   tile_first(8, 32, y, (8 * i, 32 * j), 0, b, (32 * j,))

As loops LLVM stores them in vectors of half a register (its choice where both widths exist), and a load of a whole one
has to wait until two such stores have reached L1, for which their line must have come from memory: 512 ran at 84 % of
the peak, and with whole vectors at 86; where sums begin as biases, 2500 x 512 x 2048 at 74 and at 77 (one core of a
Xeon, each in turns).
"""

from __future__ import annotations

import ast
from typing import Any

from numba import types
from numba.extending import intrinsic

from polyfuse.codegen.cpu.intrinsics.tile_mac import VECTOR_BYTES, Operand, Tile, are_literals, plus
from polyfuse.codegen.looptree.index import binary, is_number
from polyfuse.codegen.looptree.nodes import Element, For, Store
from polyfuse.codegen.looptree.product import axis, corner, most_of, moves
from polyfuse.ir.scalar import Read

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


@intrinsic(prefer_literal=True)
def tile_first(
    typingctx: Any, rows: Any, columns: Any, y: Any, y_index: Any, y_row_axis: Any, b: Any, b_index: Any
) -> Any:
    """Set each row of a tile's sums to one row of numbers: those along b's last axis from `b_index` on."""
    if not are_literals(rows, columns, y_row_axis):
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        tile = Tile(builder, sig.args[2].dtype, sig.args[0].literal_value, sig.args[1].literal_value)
        sums, row = (Operand(context, builder, sig.args[p], args[p]) for p in (2, 5))
        start, stride = row.at(sig.args[6], args[6]), sums.strides[sig.args[4].literal_value]
        numbers = [tile.load(plus(builder, start, v * tile.bytes), v) for v in range(tile.vectors)]
        for position, address in enumerate(tile.addresses(sums.at(sig.args[3], args[3]), stride)):
            vector = position % tile.vectors
            tile.store(numbers[vector], address, vector)
        return context.get_dummy_value()

    return types.void(rows, columns, y, y_index, y_row_axis, b, b_index), codegen


def first_values(rows: For) -> ast.expr | None:
    """The call for two loops that set a tile of whole vectors to zero, or each row to the same; else None."""
    columns = rows.body
    if not isinstance(columns, For) or not isinstance(columns.body, Store):
        return None
    store, height, width = columns.body, _values(rows), _values(columns)
    if store.op != "=" or store.target.dtype not in ("float32", "float64"):
        return None
    row = None if store.body.is_zero else _row_of(store, rows, columns)
    if not store.body.is_zero and row is None:
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
    shape = ast.Constant(height), ast.Constant(width)
    if row is None:
        return ast.Call(ast.Name("tile_zero"), [*shape, *sums], [])
    return ast.Call(ast.Name("tile_first"), [*shape, *sums, ast.Name(row.array), corner(row, first)], [])


def _row_of(store: Store, rows: For, columns: For) -> Element | None:
    """The numbers that every row of a tile is set to, if they lie one after the other in another array."""
    if not isinstance(store.body, Read):
        return None
    read = store.reads[store.body.position]
    same = read.dtype == store.target.dtype and read.array != store.target.array
    chosen = any(isinstance(part, ast.Subscript) for index in read.subscripts for part in ast.walk(index))
    along = axis(read, columns) == len(read.subscripts) - 1
    return read if same and along and not chosen and not moves(read, rows) else None


def _values(loop: For) -> int:
    """How many values a loop has, one after the other, wherever it begins; 0 where that is not known."""
    count = most_of(loop)
    known = count is not None and loop.step == 1 and is_number(binary(ast.Sub(), loop.high, loop.low), count)
    return count if known and count is not None else 0

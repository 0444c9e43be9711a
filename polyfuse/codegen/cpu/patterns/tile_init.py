"""The values that a tile's sums begin with, as one operation: whole vectors, like those that the product then loads.

    for r: for c: y[8*i + r, 32*j + c] = 0
    ->  tile_zero(TileSpec(rows=8, columns=32), y=y, y_at=(8 * i, 32 * j), y_row=0)
    for r: for c: y[8*i + r, 32*j + c] = b[32*j + c]
    ->  tile_first(TileSpec(rows=8, columns=32), y=y, y_at=(8 * i, 32 * j), y_row=0, b=b, b_at=(32 * j,))

As loops LLVM stores them in vectors of half a register (its choice where both widths exist), and a load of a whole one
has to wait until two such stores have reached L1, for which their line must have come from memory: 512 ran at 84 % of
the peak, and with whole vectors at 86; where sums begin as biases, 2500 x 512 x 2048 at 74 and at 77 (one core of a
Xeon, each in turns).
"""

from __future__ import annotations

import ast

from polyfuse.codegen.cpu.intrinsics.microkernels.tile_mac import VECTOR_BYTES
from polyfuse.codegen.cpu.intrinsics.microkernels.tile_spec import TileSpec
from polyfuse.codegen.cpu.patterns.calls import of_tile
from polyfuse.codegen.looptree.index import binary, is_number
from polyfuse.codegen.looptree.nodes import Element, For, Store
from polyfuse.codegen.looptree.product import axis, corner, most_of, moves
from polyfuse.ir.number_types import ITEMSIZE
from polyfuse.ir.scalar import Read

MOST = 32
"""Vectors that are stored one by one: what registers hold."""


def first_values(rows: For) -> ast.Call | None:
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
    itemsize = ITEMSIZE[store.target.dtype]
    nbytes = height * width * itemsize
    if nbytes == 0 or width * itemsize % VECTOR_BYTES or nbytes > MOST * VECTOR_BYTES:
        return None
    first = {loop.variable: loop.low for loop in (rows, columns)}
    sums: dict[str, ast.expr] = {
        "y": ast.Name(store.target.array),
        "y_at": corner(store.target, first),
        "y_row": ast.Constant(row_axis),
    }
    if row is None:
        return of_tile("tile_zero", TileSpec(height, width), **sums)
    return of_tile(
        "tile_first", TileSpec(height, width), **sums, b=ast.Name(row.array), b_at=corner(row, first)
    )


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
    """The extent of a loop, wherever it begins; 0 if unknown."""
    count = most_of(loop)
    known = count is not None and loop.step == 1 and is_number(binary(ast.Sub(), loop.high, loop.low), count)
    return count if known and count is not None else 0

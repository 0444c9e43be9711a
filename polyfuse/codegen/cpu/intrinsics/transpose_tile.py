"""Operations for numba source that store a tile of results transposed, by whole vectors.

    out_tile = tile_like(out, 14, 32)                                14 rows of 32 on the stack
    for c in range(32): for r in range(14): out_tile[r, c] = …       vectors along c
    store_transposed(14, 32, out_tile, out, (i, 0, k, 14 * l), 1)
    ->  out[i, c, k, 14 * l + r] = out_tile[r, c]                    vectors along r

and one that is loaded so: load_transposed(14, 32, x_tile, …) for x_tile[r, c] = x[i, c, k, 14 * l + r]. A last argument
2 stores every second of the columns' axis: out[i, 2 * c, k, 14 * l + r] = out_tile[r, c].

Squares of as many rows as a vector has lanes are transposed in registers, one instruction for each vector and power of
two: with squares of 4, rows two apart exchange halves, then neighbours exchange every second number.

    a0 a1 a2 a3      a0 a1 c0 c1      a0 b0 c0 d0
    b0 b1 b2 b3  ->  b0 b1 d0 d1  ->  a1 b1 c1 d1
    c0 c1 c2 c3      a2 a3 c2 c3      a2 b2 c2 d2
    d0 d1 d2 d3      b2 b3 d2 d3      a3 b3 c3 d3
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from polyfuse.codegen.cpu.intrinsics.microkernels.tile_mac import Operand, Tile, are_literals, exchanged, plus
from polyfuse.codegen.cpu.intrinsics.stack_arrays import array_on_stack
from polyfuse.schedule.microkernel_verb import padded

Move = Callable[[Tile, Operand, list[Any], int], None]
"""A function that copies a tile to an operand or back: shape, tile, places in the operand, its rows."""


@intrinsic(prefer_literal=True)
def tile_like(typingctx: Any, array: Any, rows: Any, columns: Any) -> Any:
    """`rows` of `columns` elements like an array's, on the stack; uninitialised. Both are literals.

    It is no `on_stack`, since numba takes the constants of tuples out of a parallel loop's body.
    """
    if not are_literals(rows, columns):
        return None
    kind = types.Array(array.dtype, 2, "C")

    def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        return array_on_stack(context, builder, kind, (rows.literal_value, columns.literal_value))

    return kind(array, rows, columns), code


@intrinsic(prefer_literal=True)
def store_transposed(
    typingctx: Any,
    rows: Any,
    columns: Any,
    tile: Any,
    y: Any,
    y_index: Any,
    y_column_axis: Any,
    y_column_step: Any = None,
) -> Any:
    """Store the first `rows` and `columns` of a tile in y, from its element at `y_index` on.

    Columns lie `y_column_step` elements apart along `y_column_axis`, one where it is not given, and rows along y's last
    axis. All numbers but the index are literals.
    """
    return _moved(_store, rows, columns, tile, y, y_index, y_column_axis, y_column_step)


def _store(stored: Tile, held: Operand, places: list[Any], rows: int) -> None:
    """Square after square: loaded as it lies, transposed, stored."""
    builder, lanes = stored.builder, stored.lanes
    for first in range(0, stored.rows, lanes):
        for vector in range(stored.vectors):
            square = [ir.Constant(stored.vector, ir.Undefined)] * lanes
            for r in range(vector * lanes, min(rows, (vector + 1) * lanes)):
                line = builder.add(held.data, builder.mul(held.strides[0], ir.Constant(ir.IntType(64), r)))
                place = builder.inttoptr(
                    plus(builder, line, first * stored.itemsize), stored.vector.as_pointer()
                )
                square[r - vector * lanes] = builder.load(place, align=stored.itemsize)
            for c, value in enumerate(transposed(builder, square)[: stored.rows - first], first):
                stored.store(value, places[c * stored.vectors + vector], vector)


@intrinsic(prefer_literal=True)
def load_transposed(
    typingctx: Any,
    rows: Any,
    columns: Any,
    tile: Any,
    x: Any,
    x_index: Any,
    x_column_axis: Any,
    x_column_step: Any = None,
) -> Any:
    """Load the first `rows` and `columns` of a tile from x, whose axes are those of `store_transposed`'s y."""
    return _moved(_load, rows, columns, tile, x, x_index, x_column_axis, x_column_step)


def _moved(
    move: Move, rows: Any, columns: Any, tile: Any, other: Any, index: Any, axis: Any, step: Any
) -> Any:
    """The operation that moves a tile to or from another array, with columns along one of its axes."""
    stepped = () if step is None else (step,)
    if not are_literals(rows, columns, axis, *stepped):
        return None

    def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        kinds = signature.args
        shape = _tile(builder, kinds[3].dtype, columns.literal_value, rows.literal_value)
        held, far = (Operand(context, builder, kinds[p], args[p]) for p in (2, 3))
        stride = far.strides[axis.literal_value]
        if stepped:
            stride = builder.mul(stride, ir.Constant(stride.type, step.literal_value))
        places = shape.addresses(far.at(kinds[4], args[4]), stride)
        move(shape, held, places, rows.literal_value)
        return context.get_dummy_value()

    return types.void(rows, columns, tile, other, index, axis, types.none if step is None else step), code


def _load(loaded: Tile, held: Operand, places: list[Any], rows: int) -> None:
    """Square after square: loaded by columns, transposed, stored as whole vectors of rows."""
    builder, lanes = loaded.builder, loaded.lanes
    for first in range(0, loaded.rows, lanes):
        for vector in range(loaded.vectors):
            square = [ir.Constant(loaded.vector, ir.Undefined)] * lanes
            for c in range(first, min(loaded.rows, first + lanes)):
                square[c - first] = loaded.load(places[c * loaded.vectors + vector], vector)
            there = max(0, rows - vector * lanes)  # whole lines may have more vectors than rows fill
            lines = transposed(builder, square)[:there]
            for r, value in enumerate(lines, vector * lanes):
                line = builder.add(held.data, builder.mul(held.strides[0], ir.Constant(ir.IntType(64), r)))
                loaded.store_where(value, plus(builder, line, first * loaded.itemsize), None)


def _tile(builder: ir.IRBuilder, dtype: Any, rows: int, columns: int) -> Tile:
    """A tile of numbers that are only moved: integers as floats of their size. Its squares are no wider than high.

    In squares of 16 half of a panel of 8 columns would be nothing.
    """
    kind = types.float32 if dtype.bitwidth == 32 else types.float64
    return Tile(builder, kind, rows, columns, most=padded(rows, dtype.bitwidth // 8))


def transposed(builder: Any, square: list[Any]) -> list[Any]:
    """As many vectors as each has lanes, a power of two, with rows and lanes exchanged."""
    lanes = len(square)
    by = lanes // 2
    while by:
        for r in range(lanes):
            if not r & by:
                square[r], square[r + by] = exchanged(builder, square[r], square[r + by], by, lanes)
        by //= 2
    return square

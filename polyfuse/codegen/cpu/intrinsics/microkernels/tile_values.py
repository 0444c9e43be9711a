"""The values that a tile's sums begin with: whole vectors, stored as the product then loads them.

patterns/tile_init.py says which loops become one of these operations, and why.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic

from polyfuse.codegen.cpu.intrinsics.microkernels.tile_mac import Operand, Tile, are_literals, plus
from polyfuse.codegen.cpu.intrinsics.microkernels.tile_spec import TileSpecType


@intrinsic(prefer_literal=True)
def tile_zero(typingctx: Any, tile: Any, y: Any, y_at: Any, y_row: Any) -> Any:
    """Set a tile's sums to zero: those of y from `y_at` on, rows along the axis `y_row`, columns along the last one."""
    if not isinstance(tile, TileSpecType) or not are_literals(y_row):
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        made = Tile(builder, sig.args[1].dtype, tile.spec.rows, tile.spec.columns)
        sums = Operand(context, builder, sig.args[1], args[1])
        stride = sums.strides[y_row.literal_value]
        zeros = made.broadcast(made.element(0.0))
        for position, address in enumerate(made.addresses(sums.at(sig.args[2], args[2]), stride)):
            made.store(zeros, address, position % made.vectors)
        return context.get_dummy_value()

    return types.void(tile, y, y_at, y_row), codegen


@intrinsic(prefer_literal=True)
def tile_first(typingctx: Any, tile: Any, y: Any, y_at: Any, y_row: Any, b: Any, b_at: Any) -> Any:
    """Set each row of a tile's sums to one row of numbers: those along b's last axis from `b_at` on."""
    if not isinstance(tile, TileSpecType) or not are_literals(y_row):
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        made = Tile(builder, sig.args[1].dtype, tile.spec.rows, tile.spec.columns)
        sums, row = (Operand(context, builder, sig.args[p], args[p]) for p in (1, 4))
        start, stride = row.at(sig.args[5], args[5]), sums.strides[y_row.literal_value]
        numbers = [made.load(plus(builder, start, v * made.bytes), v) for v in range(made.vectors)]
        for position, address in enumerate(made.addresses(sums.at(sig.args[2], args[2]), stride)):
            vector = position % made.vectors
            made.store(numbers[vector], address, vector)
        return context.get_dummy_value()

    return types.void(tile, y, y_at, y_row, b, b_at), codegen

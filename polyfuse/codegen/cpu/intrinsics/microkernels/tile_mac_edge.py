"""Tiles that a product's border cuts short, as one operation.

    for k: for r < min(6, 512 - 6*i): for c: y[6*i + r, c] += a[6*i + r, k] * b[k, c]
    ->  tile_mac_cut(TileSpec(6, 64, 2, 64), min(6, 512 - 6*i), 64, y, …)

Where its rows and columns are known beforehand it has code of its own: 511 rows in tiles of 6 end in one of 1, 333
columns in tiles of 64 in one of 13, which is one vector with lanes masked. Else it runs the steps of a whole one:
columns that it lacks are masked lanes, and for rows that it lacks its last row is read again and nothing is stored. No
element outside the tile is touched. With code of its own 257 x 333 x 1000 runs at 80 % of the peak and had 72, 511 at
88 and had 85 (one core of a Xeon, float32, in turns).
"""

from __future__ import annotations

from itertools import product
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from polyfuse.codegen.cpu.intrinsics.microkernels.tile_mac import Cut, Tile, are_literals, emit_product
from polyfuse.codegen.cpu.intrinsics.microkernels.tile_spec import TileSpecType


@intrinsic(prefer_literal=True)
def tile_mac_cut(
    typingctx: Any,
    tile: Any,
    rows_here: Any,
    columns_here: Any,
    y: Any,
    y_at: Any,
    y_row: Any,
    a: Any,
    a_at: Any,
    a_row: Any,
    a_step: Any,
    b: Any,
    b_at: Any,
    b_step: Any,
    steps: Any,
) -> Any:
    """`tile_mac` for a tile that may be cut short: of its rows and columns the first `rows_here` and `columns_here`."""
    operands = (y, y_at, y_row, a, a_at, a_row, a_step, b, b_at, b_step)
    if not isinstance(tile, TileSpecType) or not are_literals(y_row, a_row, a_step, b_step):
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        high, wide, last_high, last_wide = (
            tile.spec.rows, tile.spec.columns, tile.spec.last_rows, tile.spec.last_columns,
        )  # fmt: skip
        here, dtype = (args[1], args[2]), sig.args[3].dtype
        zero = ir.Constant(ir.IntType(64), 0)
        if last_high == 0 or last_wide == 0:
            some = [builder.icmp_signed(">", each, zero) for each in here]
            with builder.if_then(builder.and_(*some)):
                emit_product(Tile(builder, dtype, high, wide, Cut(*here)), context, sig.args[3:], args[3:])
            return context.get_dummy_value()
        for shape in product(dict.fromkeys((high, last_high)), dict.fromkeys((wide, last_wide))):
            same = [
                builder.icmp_signed("==", each, zero.type(size))
                for each, size in zip(here, shape, strict=True)
            ]
            with builder.if_then(builder.and_(*same)):
                emit_product(Tile(builder, dtype, *shape), context, sig.args[3:], args[3:])
        return context.get_dummy_value()

    return types.void(tile, types.int64, types.int64, *operands, types.int64), codegen

"""The innermost product of a triangular tile as one operation: each row has different columns.

    for k: for r: for c = max(0, 3 + r) … min(32, n): y[r, c] += a[r, k] * b[k, c]
    ->  tile_mac_slanted(TileSpec(rows, columns), rows_here, ((0, 0), (3, 1)), ((32, 0), (n, 0)), y, …)

As `tile_mac_cut`, with a mask for each row: the whole tile is computed, and of each row what it has is stored. On the
diagonal of a triangle half of that is for nothing, and it is still several times as fast as the loops. Of b the columns
are loaded that some row has, so that no element outside of the loops' is touched.
"""

from __future__ import annotations

from functools import reduce
from itertools import pairwise
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from polyfuse.codegen.cpu.intrinsics.microkernels.tile_mac import Cut, Operand, Tile, are_literals
from polyfuse.codegen.cpu.intrinsics.microkernels.tile_spec import TileSpecType

INT = ir.IntType(64)


@intrinsic(prefer_literal=True)
def tile_mac_slanted(
    typingctx: Any,
    tile: Any,
    rows_here: Any,
    lows: Any,
    highs: Any,
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
    """`tile_mac_cut` whose columns differ: row r has those from the largest of `lows` up to the smallest of `highs`.

    A bound is a pair (of row 0, more with each row): ((0, 0), (3, 1)) is max(0, 3 + r).
    """
    if not isinstance(tile, TileSpecType) or not are_literals(y_row, a_row, a_step, b_step):
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        first, after = (_bounds(context, builder, sig.args[p], args[p]) for p in (2, 3))
        shape = tile.spec.rows, tile.spec.columns
        borders = _Borders(builder, shape[0], args[1], first, after)
        with builder.if_then(builder.icmp_signed(">", borders.columns.columns, _int(0))):
            made = _Slanted(builder, sig.args[4].dtype, *shape, borders)
            kinds, operands = sig.args[4:], args[4:]
            sums, left, right = (Operand(context, builder, kinds[p], operands[p]) for p in (0, 3, 7))
            y_rows, a_rows = sums.strides[y_row.literal_value], left.strides[a_row.literal_value]
            addresses = made.addresses(made.begin(sums.at(kinds[1], operands[1]), y_rows), y_rows)
            places = (
                made.begin(left.at(kinds[4], operands[4]), a_rows),
                right.at(kinds[8], operands[8]),
            )
            along = left.strides[a_step.literal_value], right.strides[b_step.literal_value]
            strides = made.row_strides(a_rows), *along
            made.emit(addresses, places, strides, operands[10])
        return context.get_dummy_value()

    operands = (y, y_at, y_row, a, a_at, a_row, a_step, b, b_at, b_step)
    return types.void(tile, types.int64, lows, highs, *operands, types.int64), codegen


def _int(value: int) -> Any:
    return ir.Constant(INT, value)


def _bounds(context: Any, builder: Any, kind: Any, value: Any) -> list[tuple[Any, Any]]:
    """The pairs of a tuple of pairs, as integers of 64 bits."""
    found = []
    for position, pair in enumerate(kind):
        both = builder.extract_value(value, position)
        parts = (builder.extract_value(both, part) for part in (0, 1))
        first, step = (context.cast(builder, p, k, types.int64) for p, k in zip(parts, pair, strict=True))
        found.append((first, step))
    return found


class _Borders:
    """For each row of a tile the columns that it has, and whether it has any."""

    def __init__(self, builder: Any, rows: int, here: Any, lows: Any, highs: Any) -> None:
        self.builder = builder
        self.low = [self._bound(lows, row, ">") for row in range(rows)]
        self.high = [self._bound(highs, row, "<") for row in range(rows)]
        self.present = [
            builder.and_(
                builder.icmp_signed("<", _int(row), here),
                builder.icmp_signed("<", self.low[row], self.high[row]),
            )
            for row in range(rows)
        ]
        first = self._of_some(self.low, "<", 2**62)
        after = self._of_some(self.high, ">", 0)
        self.first, self.columns = first, Cut(here, after)

    def _bound(self, bounds: Any, row: int, order: str) -> Any:
        builder = self.builder
        values = [builder.add(first, builder.mul(step, _int(row))) for first, step in bounds]
        return reduce(self._chosen(order), values)

    def _of_some(self, values: list[Any], order: str, nothing: int) -> Any:
        """The least or the largest bound among the rows that have columns."""
        asked = zip(self.present, values, strict=True)
        return reduce(self._chosen(order), [self.builder.select(has, v, _int(nothing)) for has, v in asked])

    def _chosen(self, order: str) -> Any:
        builder = self.builder
        return lambda a, b: builder.select(builder.icmp_signed(order, a, b), a, b)


class _Slanted(Tile):
    """A tile whose rows have columns of their own; rows before its first one and after its last are read as these."""

    def __init__(self, builder: Any, dtype: Any, rows: int, columns: int, borders: _Borders) -> None:
        self.borders = borders
        super().__init__(builder, dtype, rows, columns, borders.columns)
        self.masks = [
            builder.and_(mask, self._from(borders.first, vector)) for vector, mask in enumerate(self.masks)
        ]

    def begin(self, address: Any, stride: Any) -> Any:
        """The address of the first row that the tile has, given that of row 0."""
        builder, lacking, none = self.builder, _int(0), ir.Constant(ir.IntType(1), 1)
        for has in self.borders.present:
            none = builder.and_(none, builder.not_(has))
            lacking = builder.add(lacking, builder.zext(none, INT))
        return builder.add(address, builder.mul(lacking, stride))

    def row_strides(self, stride: Any) -> list[Any]:
        """From each row to the next one; nothing where the tile lacks either."""
        builder, present = self.builder, self.borders.present
        return [builder.select(builder.and_(a, b), stride, _int(0)) for a, b in pairwise(present)]

    def _of_row(self, row: int, vector: int) -> Any:
        """The lanes that a row has of one vector."""
        borders, builder = self.borders, self.builder
        lanes = builder.and_(self._from(borders.low[row], vector), self._below(borders.high[row], vector))
        return builder.select(borders.present[row], lanes, ir.Constant(self.flags, None))

    def _from(self, first: Any, vector: int) -> Any:
        """Lanes of one vector that lie at a column or behind it."""
        return self.builder.not_(self._below(first, vector))

"""The innermost product over windows as one operation: several loops of steps, and rows that some steps lack.

    for c: for r: for s = 0, 1, 2: for q = low(s) … high(s): for f: y[q, f] += x[c, r, q + s] * w[c, r, s, f]
    ->  tile_mac_windows(rows, columns, …, (16, 3), …, lows, highs, "1:14 0:14 0:13")

As `tile_mac`, with the loops of steps nested and the innermost of them written out: at the border of an image its steps
differ in the rows that they add to, and what they lack is neither read nor added. Where a row is surely present the
code asks nothing; elsewhere a mask, which no step changes, keeps an absent row's sums as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import reduce
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from polyfuse.codegen.tiles import Cut, Operand, Tile, plus


@intrinsic(prefer_literal=True)
def tile_mac_windows(
    typingctx: Any,
    rows: Any,
    columns: Any,
    columns_here: Any,
    y: Any,
    y_index: Any,
    y_row: Any,
    a: Any,
    a_index: Any,
    a_row: Any,
    a_steps: Any,
    a_inner: Any,
    b: Any,
    b_index: Any,
    b_steps: Any,
    b_inner: Any,
    counts: Any,
    lows: Any,
    highs: Any,
    sure: Any,
) -> Any:
    """Add a product over nested loops of steps to a tile of sums.

    y, a, b: the element at `_index` goes with the tile's row 0, its first column and the first value of every loop.
    `y_row`, `a_row` say how many elements along each axis a row is from the next one; `a_steps`, `b_steps` the same for
    each loop of steps but the innermost, whose numbers of values are `counts`; `a_inner`, `b_inner` for that one.
    Columns lie along the last axes of y and b. `lows` and `highs` bound the rows of each value of the innermost loop,
    and `sure` is text with bounds of rows that are there whatever these are: "1:14 0:14 0:13".
    """
    if not isinstance(rows, types.IntegerLiteral) or not isinstance(columns, types.IntegerLiteral):
        return None
    if not isinstance(sure, types.StringLiteral):
        return None
    whole = (
        isinstance(columns_here, types.IntegerLiteral) and columns_here.literal_value == columns.literal_value
    )
    certain = [(int(low), int(high)) for low, high in (one.split(":") for one in sure.literal_value.split())]

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        cut = (
            None
            if whole
            else Cut(ir.Constant(ir.IntType(64), rows.literal_value), _int64(context, builder, sig, args, 2))
        )
        tile = Tile(builder, sig.args[3].dtype, rows.literal_value, columns.literal_value, cut)
        _Windows(tile, context, sig, args, certain).emit()
        return context.get_dummy_value()

    operands = (y, y_index, y_row, a, a_index, a_row, a_steps, a_inner, b, b_index, b_steps, b_inner)
    return types.void(rows, columns, columns_here, *operands, counts, lows, highs, sure), codegen


def _int64(context: Any, builder: Any, sig: Any, args: Any, position: int) -> Any:
    return context.cast(builder, args[position], sig.args[position], types.int64)


class _Windows:
    """The code of one call."""

    def __init__(self, tile: Tile, context: Any, sig: Any, args: Any, sure: list[tuple[int, int]]) -> None:
        self.tile, self.context, self.builder, self.sure = tile, context, tile.builder, sure
        kinds = sig.args
        self.y, self.a, self.b = (Operand(context, self.builder, kinds[p], args[p]) for p in (3, 6, 11))
        self.places = tuple(
            operand.at(kinds[p], args[p]) for operand, p in ((self.y, 4), (self.a, 7), (self.b, 12))
        )
        self.y_row, self.a_row, self.a_inner, self.b_inner = (
            operand.moved(kinds[p], args[p])
            for operand, p in ((self.y, 5), (self.a, 8), (self.a, 10), (self.b, 14))
        )
        self.a_steps, self.b_steps = (
            [operand.moved(kind, self.builder.extract_value(args[p], d)) for d, kind in enumerate(kinds[p])]
            for operand, p in ((self.a, 9), (self.b, 13))
        )
        self.counts, self.lows, self.highs = (
            [self._number(kinds[p], args[p], d) for d in range(len(kinds[p]))] for p in (15, 16, 17)
        )
        nowhere = cgutils.alloca_once_value(self.builder, ir.Constant(tile.element, 0.0))
        self.nowhere = self.builder.ptrtoint(nowhere, ir.IntType(64))

    def _number(self, kind: Any, value: Any, position: int) -> Any:
        part = self.builder.extract_value(value, position)
        return self.context.cast(self.builder, part, kind[position], types.int64)

    def emit(self) -> None:
        """Load the sums, run the loops of steps, store the sums."""
        builder, tile = self.builder, self.tile
        first, left, right = self.places
        sums = [
            [plus(builder, self._row(first, self.y_row, r), v * tile.bytes) for v in range(tile.vectors)]
            for r in range(tile.rows)
        ]
        lacking = [self._lacking(range(len(self.lows)), r) for r in range(tile.rows)]
        masks = [[self._lacking([step], r) for r in range(tile.rows)] for step in range(len(self.lows))]
        held = [[cgutils.alloca_once(builder, tile.vector) for _ in row] for row in sums]
        for row, slots, mask in zip(sums, held, lacking, strict=True):
            for v, (address, slot) in enumerate(zip(row, slots, strict=True)):
                builder.store(tile.load(address, v, mask), slot)
        with ExitStack() as loops:
            for count, a_step, b_step in zip(self.counts, self.a_steps, self.b_steps, strict=True):
                index = loops.enter_context(cgutils.for_range(builder, count)).index
                left = builder.add(left, builder.mul(index, a_step))
                right = builder.add(right, builder.mul(index, b_step))
            for step, rows in enumerate(masks):
                numbers = self._unknown(self._row(left, self.a_inner, step))
                self._step(step, rows, held, numbers, self._row(right, self.b_inner, step))
        for row, slots, mask in zip(sums, held, lacking, strict=True):
            for v, (address, slot) in enumerate(zip(row, slots, strict=True)):
                tile.store(builder.load(slot), address, v, mask)

    def _step(self, step: int, masks: list[Any], held: list[list[Any]], left: Any, right: Any) -> None:
        """One value of the innermost loop: a row of b, and for each row present one number of a, broadcast."""
        builder, tile = self.builder, self.tile
        low, high = self.sure[step]
        with ExitStack() as guard:
            if low >= high:
                some = builder.icmp_signed("<", self.lows[step], self.highs[step])
                guard.enter_context(builder.if_then(some))
            loaded = [tile.load(plus(builder, right, v * tile.bytes), v) for v in range(tile.vectors)]
            for r, (mask, slots) in enumerate(zip(masks, held, strict=True)):
                address = self._row(left, self.a_row, r)
                if mask is not None:
                    address = builder.select(self._has(step, r), address, self.nowhere)
                spread = tile.spread(address)
                for slot, b in zip(slots, loaded, strict=True):
                    before = builder.load(slot)
                    after = tile.multiply_add(spread, b, before)
                    builder.store(after if mask is None else builder.select(mask, after, before), slot)

    def _lacking(self, steps: Sequence[int], row: int) -> Any:
        """Lanes that are set where one of these steps has the row; None where it is sure that one has."""
        if any(low <= row < high for low, high in (self.sure[step] for step in steps)):
            return None
        builder, lanes = self.builder, ir.IntType(self.tile.lanes)
        here = reduce(builder.or_, [self._has(step, row) for step in steps])
        all_lanes = builder.select(here, ir.Constant(lanes, -1), ir.Constant(lanes, 0))
        return builder.bitcast(self._unknown(all_lanes), self.tile.flags)

    def _has(self, step: int, row: int) -> Any:
        number = ir.Constant(ir.IntType(64), row)
        after = self.builder.icmp_signed("<=", self.lows[step], number)
        return self.builder.and_(after, self.builder.icmp_signed("<", number, self.highs[step]))

    def _row(self, address: Any, stride: Any, number: int) -> Any:
        """So many strides further."""
        return self.builder.add(address, self.builder.mul(stride, ir.Constant(ir.IntType(64), number)))

    def _unknown(self, value: Any) -> Any:
        """The same number, of which LLVM knows nothing.

        For addresses: else it would see that neighbouring steps read the same numbers, and keep them in registers that
        the sums need. For lanes: it would see that all are equal, and branch. (88 and 156 GFLOP/s instead of 230, a
        3 x 3 window on one core of a Xeon with 64-byte vectors.)
        """
        wide = self.builder.zext(value, ir.IntType(64)) if value.type.width < 64 else value
        kind = ir.FunctionType(wide.type, [wide.type])
        hidden = self.builder.call(ir.InlineAsm(kind, "", "=r,0"), [wide])
        return self.builder.trunc(hidden, value.type) if value.type.width < 64 else hidden

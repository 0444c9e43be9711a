"""The innermost product over windows as one operation: several loops of steps, and rows that some steps lack.

    for c: for r: for s = 0, 1, 2: for q = low(s) … high(s): for f: y[q, f] += x[c, r, q + s] * w[c, r, s, f]
    ->  tile_mac_windows(TileSpec(rows, columns, cases="1:14 0:14 0:14 or 0:14 0:14 0:13"), …, (16, 3), …, lows, highs)

As `tile_mac`, with the loops of steps nested and the innermost of them written out: at the border of an image its steps
differ in the rows that they add to, and what they lack is neither read nor added. Where all is known that the rows can
be, each of these cases has code of its own, which asks nothing. Else the code asks nothing where a row is surely
present; elsewhere a mask, which no step changes, keeps an absent row's sums as they are. Such code is slow where it
needs more masks than the seven that there are registers for: tiles of 12 x 32 of 56 rows in one code for the first and
the last, which has 8, took 2.2 times as long as whole ones (one core of a Xeon, 64 channels, 3 x 3), 6 x 64 1.4 times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import reduce
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from polyfuse.codegen.cpu.intrinsics.microkernels.tile_mac import Cut, Operand, Tile, plus
from polyfuse.codegen.cpu.intrinsics.microkernels.tile_spec import AT_LEAST, TileSpecType


@intrinsic(prefer_literal=True)
def tile_mac_windows(
    typingctx: Any,
    tile: Any,
    columns_here: Any,
    y: Any,
    y_at: Any,
    y_row: Any,
    a: Any,
    a_at: Any,
    a_row: Any,
    a_steps: Any,
    b: Any,
    b_at: Any,
    b_steps: Any,
    counts: Any,
    lows: Any,
    highs: Any,
) -> Any:
    """Add a product over nested loops of steps to a tile of sums.

    y, a, b: the element at `_at` goes with the tile's row 0, its first column and the first value of every loop.
    `y_row`, `a_row` say how many elements along each axis a row is from the next one; `a_steps`, `b_steps` the same for
    each loop of steps, the innermost one's last; `counts` are the numbers of values of the others.
    Columns lie along the last axes of y and b. `lows` and `highs` bound the rows of each value of the innermost loop,
    and the spec's `cases` say what they can be.
    """
    if not isinstance(tile, TileSpecType):
        return None
    spec = tile.spec
    whole = isinstance(columns_here, types.IntegerLiteral) and columns_here.literal_value == spec.columns
    known = _known(spec.cases)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        cut = (
            None
            if whole
            else Cut(ir.Constant(ir.IntType(64), spec.rows), _int64(context, builder, sig, args, 1))
        )
        made = Tile(builder, sig.args[2].dtype, spec.rows, spec.columns, cut)
        for case in known:
            with ExitStack() as guard:
                if len(known) > 1:
                    bounds = [_int64s(context, builder, sig, args, p) for p in (13, 14)]
                    guard.enter_context(builder.if_then(case.are(builder, *bounds)))
                _Windows(made, context, sig, args, case).emit()
        return context.get_dummy_value()

    operands = (y, y_at, y_row, a, a_at, a_row, a_steps, b, b_at, b_steps)
    return types.void(tile, columns_here, *operands, counts, lows, highs), codegen


def _int64(context: Any, builder: Any, sig: Any, args: Any, position: int) -> Any:
    return context.cast(builder, args[position], sig.args[position], types.int64)


def _int64s(context: Any, builder: Any, sig: Any, args: Any, position: int) -> list[Any]:
    """The numbers of a tuple."""
    parts = (builder.extract_value(args[position], d) for d in range(len(sig.args[position])))
    return [
        context.cast(builder, part, kind, types.int64)
        for part, kind in zip(parts, sig.args[position], strict=True)
    ]


@dataclass(frozen=True)
class _Rows:
    """Bounds of the rows of each value of the innermost loop of steps: all that are there, or those surely there."""

    bounds: tuple[tuple[int, int], ...]
    all: bool

    def are(self, builder: Any, lows: Sequence[Any], highs: Sequence[Any]) -> Any:
        """True if the bounds are these."""
        pairs = [
            pair
            for one in zip(self.bounds, lows, highs, strict=True)
            for pair in zip(one[0], one[1:], strict=True)
        ]
        return reduce(builder.and_, [builder.icmp_signed("==", here, here.type(end)) for end, here in pairs])

    def has(self, step: int, row: int) -> bool | None:
        """True if a step has a row; None if that is known at a call only."""
        low, high = self.bounds[step]
        return True if low <= row < high else False if self.all else None


def _known(text: str) -> list[_Rows]:
    """The cases that a text tells of.

    >>> _known("1:6 0:6 or 0:2 0:1")[1]
    _Rows(bounds=((0, 2), (0, 1)), all=True)
    >>> _known("at least 1:6 0:5")
    [_Rows(bounds=((1, 6), (0, 5)), all=False)]
    """
    words = text.removeprefix(AT_LEAST)
    cases = (tuple(_pair(one) for one in case.split()) for case in words.split(" or "))
    return [_Rows(case, words == text) for case in cases]


def _pair(text: str) -> tuple[int, int]:
    low, high = text.split(":")
    return int(low), int(high)


class _Windows:
    """The code of one call."""

    def __init__(self, tile: Tile, context: Any, sig: Any, args: Any, rows: _Rows) -> None:
        self.tile, self.context, self.builder, self.rows = tile, context, tile.builder, rows
        kinds = sig.args
        self.y, self.a, self.b = (Operand(context, self.builder, kinds[p], args[p]) for p in (2, 5, 9))
        self.places = tuple(
            operand.at(kinds[p], args[p]) for operand, p in ((self.y, 3), (self.a, 6), (self.b, 10))
        )
        self.y_row, self.a_row = (
            operand.moved(kinds[p], args[p]) for operand, p in ((self.y, 4), (self.a, 7))
        )
        (*self.a_steps, self.a_inner), (*self.b_steps, self.b_inner) = (
            [operand.moved(kind, self.builder.extract_value(args[p], d)) for d, kind in enumerate(kinds[p])]
            for operand, p in ((self.a, 8), (self.b, 11))
        )
        self.counts, self.lows, self.highs = (
            _int64s(context, self.builder, sig, args, p) for p in (12, 13, 14)
        )
        nowhere = cgutils.alloca_once_value(self.builder, ir.Constant(tile.element, 0.0))
        self.nowhere = self.builder.ptrtoint(nowhere, ir.IntType(64))

    def emit(self) -> None:
        """Load the sums, run the loops of steps, store the sums."""
        builder, tile = self.builder, self.tile
        first, left, right = self.places
        steps = range(len(self.lows))
        here = [r for r in range(tile.rows) if any(self.rows.has(step, r) is not False for step in steps)]
        if not here:
            return
        lacking = {r: self._lacking(steps, r) for r in here}
        masks = [
            {r: self._lacking([step], r) for r in here if self.rows.has(step, r) is not False}
            for step in steps
        ]
        sums = {
            r: [plus(builder, self._row(first, self.y_row, r), v * tile.bytes) for v in range(tile.vectors)]
            for r in here
        }
        held = {r: [cgutils.alloca_once(builder, tile.vector) for _ in row] for r, row in sums.items()}
        for r, row in sums.items():
            for v, (address, slot) in enumerate(zip(row, held[r], strict=True)):
                builder.store(tile.load(address, v, lacking[r]), slot)
        with ExitStack() as loops:
            for count, a_step, b_step in zip(self.counts, self.a_steps, self.b_steps, strict=True):
                index = loops.enter_context(cgutils.for_range(builder, count)).index
                left = builder.add(left, builder.mul(index, a_step))
                right = builder.add(right, builder.mul(index, b_step))
            for step, rows in enumerate(masks):
                numbers = self._unknown(self._row(left, self.a_inner, step))
                self._step(step, rows, held, numbers, self._row(right, self.b_inner, step))
        for r, row in sums.items():
            for v, (address, slot) in enumerate(zip(row, held[r], strict=True)):
                tile.store(builder.load(slot), address, v, lacking[r])

    def _step(
        self, step: int, masks: Mapping[int, Any], held: Mapping[int, list[Any]], left: Any, right: Any
    ) -> None:
        """One value of the innermost loop: a row of b, and for each row present one number of a, broadcast."""
        builder, tile = self.builder, self.tile
        if not masks:
            return
        with ExitStack() as guard:
            if not any(self.rows.has(step, r) for r in masks):
                some = builder.icmp_signed("<", self.lows[step], self.highs[step])
                guard.enter_context(builder.if_then(some))
            loaded = [tile.load(plus(builder, right, v * tile.bytes), v) for v in range(tile.vectors)]
            for r, mask in masks.items():
                address = self._row(left, self.a_row, r)
                if mask is not None:
                    address = builder.select(self._has(step, r), address, self.nowhere)
                spread = tile.spread(address)
                for slot, b in zip(held[r], loaded, strict=True):
                    before = builder.load(slot)
                    after = tile.multiply_add(spread, b, before)
                    builder.store(after if mask is None else builder.select(mask, after, before), slot)

    def _lacking(self, steps: Sequence[int], row: int) -> Any:
        """Lanes that are set where one of these steps has the row; None if it is sure that one has."""
        if any(self.rows.has(step, row) for step in steps):
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

"""A row of sums over a window as one operation: vectors of sums that stay in registers for all of its elements.

    for r: for s = 0, 1, 2: for q = low(s) … high(s): y[q] += w[r, s] * x[r, 2*q + s]
    ->  row_mac_windows(TileSpec(1, 28), y, …, w, …, x, …, (3,), lows, highs)

        s = 0   |. q q q q q q q|q q q q q . . .|     vectors of sums, and the columns that a step has
        s = 1   |q q q q q q q q|q q q q q . . .|     masked lanes are neither read nor added
        s = 2   |q q q q q q q q|q q q q . . . .|

A factor is a number for the whole row, as a depthwise filter's are for neighbouring pixels, or a row of its own, as
pixels are, and as filters are for neighbouring channels. Where sizes are known LLVM knows the masks, and loads whole
vectors where all lanes are there. Else a row that has all its columns in all steps, which most have, takes code without
masks. Every second or third number of a row is taken from as many vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import reduce
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from polyfuse.codegen.cpu.intrinsics.microkernels.tile_mac import Operand, Tile, are_literals, plus
from polyfuse.codegen.cpu.intrinsics.microkernels.tile_spec import TileSpecType

INT32, INT64 = ir.IntType(32), ir.IntType(64)


@intrinsic(prefer_literal=True)
def row_mac_windows(
    typingctx: Any,
    tile: Any,
    y: Any,
    y_at: Any,
    a: Any,
    a_at: Any,
    a_column: Any,
    a_steps: Any,
    b: Any,
    b_at: Any,
    b_column: Any,
    b_steps: Any,
    counts: Any,
    lows: Any,
    highs: Any,
) -> Any:
    """Add a product over nested loops of steps to a tile of one row.

    y, a, b: the element at `_at` goes with the first column and the first value of every loop. Columns lie along the
    last axes, `a_column` and `b_column` numbers apart (literals); 0: one number for all of them. `a_steps`, `b_steps`
    say how many elements along each axis the next value of each loop is, the innermost one's last. `counts` are the
    numbers of values of the others, and `lows` and `highs` bound the columns of each value of the innermost one.
    """
    if not isinstance(tile, TileSpecType) or not are_literals(a_column, b_column):
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        row = _Row(Tile(builder, sig.args[1].dtype, 1, tile.spec.columns), context, sig.args, args)
        row.emit()
        return context.get_dummy_value()

    left, right = (a, a_at, a_column, a_steps), (b, b_at, b_column, b_steps)
    return types.void(tile, y, y_at, *left, *right, counts, lows, highs), codegen


def _from_first_to_last(lows: Any, highs: Any, columns: int) -> bool:
    """True if numbers say that the first column is in a step, and the last one: then all sums are loaded and stored.

    Sums of 14 columns are stored in pieces of 8, 4 and 2 then. Under a mask of 14 lanes of 16 the load of the row
    behind them, whose first numbers are the other two lanes, would wait for them: 144 depthwise filters of 3 x 3 on
    rows of 14, with the product behind them, took 42.9 µs under masks, and take 21.9 (one Zen 5 core).
    """
    if not all(isinstance(kind, types.IntegerLiteral) for kind in (*lows, *highs)):
        return False
    first = min(kind.literal_value for kind in lows)
    last = max(kind.literal_value for kind in highs)
    return bool(first <= 0 and columns <= last)


@dataclass(frozen=True)
class _Factor:
    """A factor's address, the distance between its columns, and its stride in bytes for each loop of steps."""

    start: Any
    column: int
    steps: list[Any]
    inner: Any


class _Row:
    """The code of one call."""

    def __init__(self, tile: Tile, context: Any, kinds: Any, args: Any) -> None:
        self.tile, self.builder, self.columns = tile, tile.builder, kinds[0].spec.columns
        self.sums = Operand(context, self.builder, kinds[1], args[1]).at(kinds[2], args[2])
        self.factors = [self._factor(context, kinds[p : p + 4], args[p : p + 4]) for p in (3, 7)]
        self.counts, self.lows, self.highs = (
            [
                context.cast(self.builder, self.builder.extract_value(args[p], d), kind, types.int64)
                for d, kind in enumerate(kinds[p])
            ]
            for p in (11, 12, 13)
        )
        self.has_all = _from_first_to_last(kinds[12], kinds[13], self.columns)
        nowhere = cgutils.alloca_once_value(self.builder, ir.Constant(tile.element, 0.0))
        self.nowhere = self.builder.ptrtoint(nowhere, INT64)

    def _factor(self, context: Any, kinds: Any, args: Any) -> _Factor:
        operand = Operand(context, self.builder, kinds[0], args[0])
        *steps, inner = [
            operand.moved(kind, self.builder.extract_value(args[3], d)) for d, kind in enumerate(kinds[3])
        ]
        return _Factor(operand.at(kinds[1], args[1]), kinds[2].literal_value, steps, inner)

    def emit(self) -> None:
        """One code for a row with all its columns in each step, and one for others."""
        builder, zero, end = self.builder, INT64(0), INT64(self.columns)
        whole = [builder.icmp_signed("<=", low, zero) for low in self.lows]
        whole += [builder.icmp_signed(">=", high, end) for high in self.highs]
        with builder.if_else(reduce(builder.and_, whole)) as (then, otherwise):
            with then:
                self._emit([self.tile.masks] * len(self.lows), self.tile.masks)
            with otherwise:
                steps = [self._between(low, high) for low, high in zip(self.lows, self.highs, strict=True)]
                self._emit(steps, self.tile.masks if self.has_all else self._any_step())

    def _any_step(self) -> list[Any]:
        """For each vector the lanes of the columns from the first to the last one of any step."""
        least = reduce(self._smaller, self.lows)
        most = reduce(lambda a, b: self._smaller(a, b, ">"), self.highs)
        return self._between(least, most)

    def _smaller(self, a: Any, b: Any, order: str = "<") -> Any:
        return self.builder.select(self.builder.icmp_signed(order, a, b), a, b)

    def _between(self, low: Any, high: Any) -> list[Any]:
        """For each vector the lanes of the columns from one to before another, INT32 holds any."""
        builder, lanes, found = self.builder, self.tile.lanes, []
        first, end = (self.tile.broadcast(builder.trunc(each, INT32)) for each in (low, high))
        for vector in range(self.tile.vectors):
            columns = ir.Constant(
                ir.VectorType(INT32, lanes), list(range(vector * lanes, (vector + 1) * lanes))
            )
            behind, before = builder.icmp_signed(">=", columns, first), builder.icmp_signed("<", columns, end)
            found.append(builder.and_(behind, before))
        return found

    def _emit(self, masks: Sequence[Sequence[Any]], every: Sequence[Any]) -> None:
        """Load the sums, run the loops of steps, store the sums."""
        builder, tile = self.builder, self.tile
        places = [plus(builder, self.sums, v * tile.bytes) for v in range(tile.vectors)]
        held = [cgutils.alloca_once(builder, tile.vector) for _ in places]
        for place, slot, mask in zip(places, held, every, strict=True):
            builder.store(tile.load_where(place, mask), slot)
        with ExitStack() as loops:
            starts = [factor.start for factor in self.factors]
            for depth, count in enumerate(self.counts):
                index = loops.enter_context(cgutils.for_range(builder, count)).index
                starts = [
                    builder.add(start, builder.mul(index, factor.steps[depth]))
                    for start, factor in zip(starts, self.factors, strict=True)
                ]
            for step, lanes in enumerate(masks):
                self._step(step, starts, lanes, held)
        for place, slot, mask in zip(places, held, every, strict=True):
            tile.store_where(builder.load(slot), place, mask)

    def _step(self, step: int, starts: Sequence[Any], masks: Sequence[Any], held: Sequence[Any]) -> None:
        """One value of the innermost loop: each factor a number for all vectors, or a vector for each."""
        builder, tile = self.builder, self.tile
        here = builder.icmp_signed("<", self.lows[step], self.highs[step])
        at = [
            builder.add(start, builder.mul(factor.inner, INT64(step)))
            for start, factor in zip(starts, self.factors, strict=True)
        ]
        spread = [
            None if factor.column else tile.spread(builder.select(here, place, self.nowhere))
            for place, factor in zip(at, self.factors, strict=True)
        ]
        for vector, (slot, mask) in enumerate(zip(held, masks, strict=True)):
            left, right = (
                self._vector(place, factor.column, vector, mask) if number is None else number
                for place, factor, number in zip(at, self.factors, spread, strict=True)
            )
            before = builder.load(slot)
            after = tile.multiply_add(left, right, before)
            builder.store(after if mask is None else builder.select(mask, after, before), slot)

    def _vector(self, start: Any, column: int, vector: int, mask: Any) -> Any:
        """The numbers of one vector of columns, so many numbers apart in memory.

        column 2:  |x0 . x1 . x2 . x3 .| and |x4 . x5 . x6 . x7 .|  ->  |x0 x1 x2 x3 x4 x5 x6 x7|
        """
        builder, tile = self.builder, self.tile
        first = plus(builder, start, vector * tile.bytes * column)
        if column == 1:
            return tile.load_where(first, mask)
        lanes = tile.lanes
        found = ir.Constant(tile.vector, None)
        for part in range(column):
            numbers = [part * lanes + lane for lane in range(lanes)]
            wanted = ir.Constant(tile.flags, [number % column == 0 for number in numbers])
            there = wanted
            if mask is not None:
                each = ir.Constant(ir.VectorType(INT32, lanes), [number // column for number in numbers])
                there = builder.and_(builder.shuffle_vector(mask, mask, each), wanted)
            loaded = tile.load_where(plus(builder, first, part * tile.bytes), there)
            taken = [
                lanes + lane * column - part * lanes if lane * column // lanes == part else lane
                for lane in range(lanes)
            ]
            order = ir.Constant(ir.VectorType(INT32, lanes), taken)
            found = builder.shuffle_vector(found, loaded, order)
        return found

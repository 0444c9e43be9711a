"""A product whose factors both lie along the sum, as one operation: each sum is a vector of partial sums meanwhile.

    for k: for r: for c: for l < 8: y[r, c] += a[r, 8*k + l] * b[c, 8*k + l]
    ->  tile_dot(TileSpec(rows=3, columns=4, lanes=8), y, a, …, b, …, steps)

A step loads a vector of each of a's rows and of b's, and multiplies each pair. Nothing is broadcast, so that no factor
has to be transposed: torch's weights, (outputs, inputs), are read as they lie. Behind the last step the partial sums of
a row's columns are added up, in a tree of shuffles as for a transpose, and then added to y. A sum has other roundings
than in the order of k: as many additions, fewer of them one after the other.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from polyfuse.codegen.cpu.intrinsics.microkernels.tile_mac import (
    Cut,
    Operand,
    Tile,
    are_literals,
    exchanged,
    plus,
)
from polyfuse.codegen.cpu.intrinsics.microkernels.tile_spec import TileSpecType

LEAST_BYTES = 16
"""Bytes of the smallest vector."""


@intrinsic(prefer_literal=True)
def tile_dot(
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
    b: Any,
    b_at: Any,
    b_row: Any,
    steps: Any,
) -> Any:
    """Add to a tile of sums the products of rows of a and of b, of so many numbers, in vectors of the spec's lanes.

    Of the tile's rows and columns there are the first `rows_here` and `columns_here`; of those that it lacks the last
    one is read again, and nothing is stored. The last vector may have fewer lanes.

    y: its element at `y_at` is the tile's first sum; rows lie along the axis `y_row`, columns along its last axis.
    a: its element at `a_at` goes with the first row and step; rows lie along axis `a_row`, steps along its last one.
    b: the same for the tile's columns. Axes are literals.
    """
    operands = (y, y_at, y_row, a, a_at, a_row, b, b_at, b_row)
    if not isinstance(tile, TileSpecType) or not are_literals(y_row, a_row, b_row):
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        spec, (high, wide) = tile.spec, sig.args[1:3]
        whole = all(
            isinstance(kind, types.IntegerLiteral) and kind.literal_value == most
            for kind, most in ((high, spec.rows), (wide, spec.columns))
        )
        here = [
            context.cast(builder, value, kind, types.int64)
            for value, kind in zip(args[1:3], (high, wide), strict=True)
        ]
        dots = _Dots(
            builder, sig.args[3].dtype, spec.rows, spec.columns, spec.lanes, None if whole else Cut(*here)
        )
        sums, left, right = (Operand(context, builder, sig.args[p], args[p]) for p in (3, 6, 9))
        axes = [sig.args[p].literal_value for p in (5, 8, 11)]
        some = ir.Constant(ir.IntType(1), 1)
        for each in () if whole else here:
            some = builder.and_(some, builder.icmp_signed(">", each, each.type(0)))
        with builder.if_then(some):
            dots.emit(
                (sums.at(sig.args[4], args[4]), sums.strides[axes[0]]),
                (left.at(sig.args[7], args[7]), left.strides[axes[1]]),
                (right.at(sig.args[10], args[10]), right.strides[axes[2]]),
                args[12],
            )
        return context.get_dummy_value()

    return types.void(tile, rows_here, columns_here, *operands, types.int64), codegen


class _Dots:
    """The shape of a tile of dot products, and the code for it; `cut` if it may lack rows and columns."""

    def __init__(
        self, builder: Any, dtype: Any, rows: int, columns: int, lanes: int, cut: Cut | None
    ) -> None:
        self.builder, self.rows, self.columns, self.lanes, self.cut = builder, rows, columns, lanes, cut
        self.summed = Tile(builder, dtype, 1, lanes)
        """A vector of partial sums."""
        self.wide = max(columns, LEAST_BYTES // self.summed.itemsize)
        self.stored = Tile(builder, dtype, 1, self.wide)
        """A row of sums, in the smallest vector that there is, or a wider one."""
        self.bytes = lanes * self.summed.itemsize

    def emit(self, sums: Any, left: Any, right: Any, count: Any) -> None:
        """Run the steps with partial sums in phis, add them up row by row, add these to y."""
        builder, cut = self.builder, self.cut
        rows = self._lines(left[0], left[1], self.rows, None if cut is None else cut.rows)
        columns = self._lines(right[0], right[1], self.columns, None if cut is None else cut.columns)
        zero = ir.Constant(self.summed.vector, None)
        lanes = ir.Constant(ir.IntType(64), self.lanes)
        rest = builder.and_(count, ir.Constant(ir.IntType(64), self.lanes - 1))
        whole = builder.mul(builder.sub(count, rest), ir.Constant(ir.IntType(64), self.summed.itemsize))
        totals = [zero] * (self.rows * self.columns)
        first = ir.Constant(ir.IntType(64), 0)
        entry = builder.block
        loop, stepped = builder.append_basic_block("steps"), builder.append_basic_block("stepped")
        last, done = builder.append_basic_block("last"), builder.append_basic_block("done")
        builder.cbranch(builder.icmp_signed("<", first, whole), loop, stepped)
        builder.position_at_end(loop)
        at = builder.phi(first.type)
        held = [builder.phi(zero.type) for _ in totals]
        new = self._step(held, rows, columns, at, None)
        following = plus(builder, at, self.bytes)
        for phi, begun, value in zip((at, *held), (first, *totals), (following, *new), strict=True):
            phi.add_incoming(begun, entry)
            phi.add_incoming(value, loop)
        builder.cbranch(builder.icmp_signed("<", following, whole), loop, stepped)
        builder.position_at_end(stepped)
        behind = [builder.phi(zero.type) for _ in totals]
        for phi, begun, value in zip(behind, totals, new, strict=True):
            phi.add_incoming(begun, entry)
            phi.add_incoming(value, loop)
        builder.cbranch(builder.icmp_signed(">", rest, first), last, done)
        builder.position_at_end(last)
        some = builder.icmp_signed(
            "<", _numbers(self.lanes), self.summed.broadcast(builder.urem(rest, lanes))
        )
        more = self._step(behind, rows, columns, whole, some)
        builder.branch(done)
        builder.position_at_end(done)
        found = [builder.phi(zero.type) for _ in totals]
        for phi, value, also in zip(found, behind, more, strict=True):
            phi.add_incoming(value, stepped)
            phi.add_incoming(also, last)
        self._store(sums, found)

    def _lines(self, first: Any, stride: Any, count: int, here: Any) -> list[Any]:
        """The addresses of so many lines; those behind the last one that there is are that one's."""
        builder, found = self.builder, [first]
        for line in range(1, count):
            by = stride
            if here is not None:
                there = builder.icmp_signed("<", ir.Constant(ir.IntType(64), line), here)
                by = builder.select(there, stride, ir.Constant(ir.IntType(64), 0))
            found.append(builder.add(found[-1], by))
        return found

    def _step(self, held: Any, rows: Any, columns: Any, at: Any, mask: Any) -> list[Any]:
        """One step: a vector of each line of the factor with fewer of them, then those of the other one by one."""
        builder, tile = self.builder, self.summed
        by_rows = self.rows <= self.columns
        few, many = (rows, columns) if by_rows else (columns, rows)
        kept = [tile.load_where(builder.add(line, at), mask) for line in few]
        new = list(held)
        for m, line in enumerate(many):
            number = tile.load_where(builder.add(line, at), mask)
            for f, other in enumerate(kept):
                r, c = (f, m) if by_rows else (m, f)
                position = r * self.columns + c
                new[position] = tile.multiply_add(other, number, new[position])
        return new

    def _store(self, sums: Any, found: list[Any]) -> None:
        """Each row's partial sums, added up, onto its sums."""
        builder, stored, (first, stride) = self.builder, self.stored, sums
        columns = None
        if self.cut is not None:
            columns = builder.icmp_signed("<", _numbers(self.wide), stored.broadcast(self.cut.columns))
        elif self.columns < self.wide:
            columns = ir.Constant(stored.flags, [c < self.columns for c in range(self.wide)])
        address = first
        for r in range(self.rows):
            added = self._added(found[r * self.columns : (r + 1) * self.columns])
            there = ir.Constant(ir.IntType(1), 1)
            if self.cut is not None and r:
                there = builder.icmp_signed("<", ir.Constant(ir.IntType(64), r), self.cut.rows)
            with builder.if_then(there) if self.cut is not None and r else nullcontext():
                total = builder.fadd(stored.load_where(address, columns), added)
                stored.store_where(total, address, columns)
            address = builder.add(address, stride)

    def _added(self, vectors: list[Any]) -> Any:
        """A vector of as many sums as there are vectors, a power of two: each of all lanes of one.

        a0 a1 a2 a3, b0 b1 b2 b3   ->   a0+a1 b0+b1 a2+a3 b2+b3   ->   …   ->   the halves added
        """
        builder, by = self.builder, 1
        vectors = [*vectors, *[ir.Constant(self.summed.vector, None)] * (self.wide - self.columns)]
        while len(vectors) > 1:
            pairs = zip(vectors[::2], vectors[1::2], strict=True)
            vectors = [builder.fadd(*exchanged(builder, a, b, by, self.lanes)) for a, b in pairs]
            by *= 2
        (total,), lanes = vectors, self.lanes
        while lanes > self.wide:
            lanes //= 2
            undefined = ir.Constant(total.type, ir.Undefined)
            low, high = (
                builder.shuffle_vector(
                    total,
                    undefined,
                    ir.Constant(ir.VectorType(ir.IntType(32), lanes), list(range(start, start + lanes))),
                )
                for start in (0, lanes)
            )
            total = builder.fadd(low, high)
        return total


def _numbers(lanes: int) -> Any:
    """0, 1, … in so many lanes."""
    return ir.Constant(ir.VectorType(ir.IntType(64), lanes), list(range(lanes)))

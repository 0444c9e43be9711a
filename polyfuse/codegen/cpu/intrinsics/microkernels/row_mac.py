"""One row times a matrix as one operation: vectors of sums that stay in registers while the contraction runs.

    for k: for c: y[c] += a[k] * b[k, c]   ->   row_mac(TileSpec(1, columns), y, …, a, …, b, …, steps)

Each step broadcasts one number of a and multiplies it with a row of b, read once and in order: nothing but b's bytes
costs time. A few vectors of sums alone would wait for each other, as a multiply-add takes four cycles and two begin in
each: fewer than LATENCY vectors are added up in several sets, which share the steps out and are added at the end.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from polyfuse.codegen.cpu.intrinsics.microkernels.tile_mac import VECTOR_BYTES, Operand, are_literals
from polyfuse.codegen.cpu.intrinsics.microkernels.tile_spec import TileSpecType

LATENCY = 8
"""Vectors of sums that keep the multipliers busy."""


@intrinsic(prefer_literal=True)
def row_mac(
    typingctx: Any,
    tile: Any,
    y: Any,
    y_at: Any,
    a: Any,
    a_at: Any,
    a_step: Any,
    b: Any,
    b_at: Any,
    b_step: Any,
    steps: Any,
) -> Any:
    """Add a product of so many steps to a tile of one row; its columns are a whole number of vectors.

    y: its element at `y_at` is the first of the sums, which lie along its last axis.
    a: its element at `a_at` goes with the first step; steps lie along the axis `a_step`.
    b: its element at `b_at` goes with the first step and column; steps lie along the axis `b_step`, columns along its
    last one. Axes are literals.
    """
    if not isinstance(tile, TileSpecType) or not are_literals(a_step, b_step):
        return None

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = signature.args
        sums, left, right = (Operand(context, builder, kinds[p], args[p]) for p in (1, 3, 6))
        row = _Row(builder, kinds[1].dtype, tile.spec.columns)
        at = sums.at(kinds[2], args[2]), left.at(kinds[4], args[4]), right.at(kinds[7], args[7])
        first, *starts = (builder.inttoptr(address, cgutils.voidptr_t) for address in at)
        strides = left.strides[kinds[5].literal_value], right.strides[kinds[8].literal_value]
        row.emit(first, (starts[0], starts[1]), strides, args[9])
        return context.get_dummy_value()

    indices = y, y_at, a, a_at, a_step, b, b_at, b_step
    return types.void(tile, *indices, types.int64), codegen


class _Row:
    """A row of sums in vectors, and the code that multiplies into it."""

    def __init__(self, builder: Any, dtype: Any, columns: int) -> None:
        self.builder, self.itemsize = builder, dtype.bitwidth // 8
        self.element = ir.FloatType() if dtype == types.float32 else ir.DoubleType()
        lanes = min(columns, VECTOR_BYTES // self.itemsize)
        self.vector, self.width = ir.VectorType(self.element, lanes), lanes * self.itemsize
        self.vectors = columns // lanes
        self.sets = max(1, LATENCY // self.vectors)

    def emit(self, sums: Any, starts: tuple[Any, Any], strides: tuple[Any, Any], count: Any) -> None:
        """Load the sums, run the steps a set at a time and those left over one by one, store the sums."""
        builder = self.builder
        places = [self._plus(sums, v * self.width) for v in range(self.vectors)]
        held = [self._load(place) for place in places]
        if self.sets > 1:
            passes = builder.sdiv(count, ir.Constant(count.type, self.sets))
            zeros = [ir.Constant(self.vector, None)] * (self.vectors * (self.sets - 1))
            every, starts = self._steps([*held, *zeros], starts, strides, passes, self.sets)
            held = self._together(every)
            count = builder.srem(count, ir.Constant(count.type, self.sets))
        held, _ = self._steps(held, starts, strides, count, 1)
        for place, value in zip(places, held, strict=True):
            builder.store(value, self._as_vector(place), align=self.itemsize)

    def _steps(
        self, start: list[Any], starts: tuple[Any, Any], strides: tuple[Any, Any], passes: Any, sets: int
    ) -> tuple[list[Any], tuple[Any, Any]]:
        """A loop whose passes make one step with each set of sums: the sums, and where a and b go on."""
        builder, one = self.builder, ir.Constant(passes.type, 1)
        entry, loop = builder.block, builder.append_basic_block("steps")
        done = builder.append_basic_block("stepped")
        first = [ir.Constant(passes.type, 0), *starts, *start]
        some = builder.icmp_signed(">", passes, first[0])
        builder.cbranch(some, loop, done)
        builder.position_at_end(loop)
        phis = [builder.phi(value.type) for value in first]
        number, left, right, *held = phis
        new: list[Any] = []
        for each in range(sets):
            new += self._step(held[each * self.vectors : (each + 1) * self.vectors], left, right)
            left, right = builder.gep(left, [strides[0]]), builder.gep(right, [strides[1]])
        after = [builder.add(number, one), left, right, *new]
        builder.cbranch(builder.icmp_signed("<", after[0], passes), loop, done)
        builder.position_at_end(done)
        last = [builder.phi(value.type) for value in first]
        for phi, result, before, following in zip(phis, last, first, after, strict=True):
            for joined in (phi, result):
                joined.add_incoming(before, entry)
                joined.add_incoming(following, loop)
        return last[3:], (last[1], last[2])

    def _step(self, held: list[Any], left: Any, right: Any) -> list[Any]:
        builder = self.builder
        number = builder.load(builder.bitcast(left, self.element.as_pointer()), align=self.itemsize)
        kind = ir.FunctionType(self.vector, [self.vector] * 3)
        name = f"llvm.fma.v{self.vector.count}f{8 * self.itemsize}"
        fma = cgutils.get_or_insert_function(builder.module, kind, name)
        spread = self._broadcast(number)
        rows = [self._load(self._plus(right, v * self.width)) for v in range(self.vectors)]
        return [builder.call(fma, [spread, row, total]) for row, total in zip(rows, held, strict=True)]

    def _together(self, every: list[Any]) -> list[Any]:
        """The sets added up, half of them to the other half each time."""
        while len(every) > self.vectors:
            half = len(every) // 2
            every = [self.builder.fadd(a, b) for a, b in zip(every[:half], every[half:], strict=True)]
        return every

    def _plus(self, address: Any, amount: int) -> Any:
        return self.builder.gep(address, [ir.Constant(ir.IntType(64), amount)]) if amount else address

    def _as_vector(self, address: Any) -> Any:
        return self.builder.bitcast(address, self.vector.as_pointer())

    def _load(self, address: Any) -> Any:
        return self.builder.load(self._as_vector(address), align=self.itemsize)

    def _broadcast(self, number: Any) -> Any:
        undefined = ir.Constant(self.vector, ir.Undefined)
        one = self.builder.insert_element(undefined, number, ir.Constant(ir.IntType(32), 0))
        mask = ir.Constant(ir.VectorType(ir.IntType(32), self.vector.count), [0] * self.vector.count)
        return self.builder.shuffle_vector(one, undefined, mask)

"""The innermost product as one operation: a tile of sums that stays in vector registers while the contraction runs.

    for k: for r: for c: y[r, c] += a[r, k] * b[k, c]   ->   tile_mac(rows, columns, y, a, …, b, …, count)

Goto & van de Geijn, Anatomy of High-Performance Matrix Multiplication (2008), section 4: the micro-kernel. One
intrinsic emits the whole k loop: `rows` x `columns` sums are loaded once, each step broadcasts `rows` numbers of a and
loads one row of b, and the sums are stored once. Every sum is added up in the order of k, one fused multiply-add a
step, as the loops would with contraction on.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

VECTOR_BYTES = 64
"""The width that code is written in; LLVM splits it where the CPU's registers are narrower."""


@intrinsic(prefer_literal=True)
def tile_mac(
    typingctx: Any,
    rows: Any,
    columns: Any,
    y: Any,
    y_index: Any,
    y_row_axis: Any,
    a: Any,
    a_index: Any,
    row_axis: Any,
    a_step_axis: Any,
    b: Any,
    b_index: Any,
    b_step_axis: Any,
    count: Any,
) -> Any:
    """Add a product of `count` steps to a tile of sums.

    y: its element at `y_index` is the tile's first sum; rows lie along `y_row_axis`, columns along its last axis.
    a: its element at `a_index` goes with the first row and step; rows lie along `row_axis`, steps along `a_step_axis`.
    b: its element at `b_index` goes with the first step and column; steps lie along `b_step_axis`, columns along its
    last axis. `rows`, `columns` and the axes are literals; a row of `columns` numbers is a whole number of vectors.
    """
    literals = (rows, columns, y_row_axis, row_axis, a_step_axis, b_step_axis)
    if not all(isinstance(value, types.IntegerLiteral) for value in literals):
        return None
    tile = _Tile(y.dtype, rows.literal_value, columns.literal_value)
    y_row, a_row, a_step, b_step = (axis.literal_value for axis in literals[2:])
    operands = (y, y_index, y_row_axis, a, a_index, row_axis, a_step_axis, b, b_index, b_step_axis)
    signature = types.void(rows, columns, *operands, types.int64)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        sums = _Operand(context, builder, sig.args[2], args[2])
        left = _Operand(context, builder, sig.args[5], args[5])
        right = _Operand(context, builder, sig.args[9], args[9])
        addresses = tile.addresses(builder, sums.at(sig.args[3], args[3]), sums.strides[y_row])
        places = left.at(sig.args[6], args[6]), right.at(sig.args[10], args[10])
        strides = left.strides[a_row], left.strides[a_step], right.strides[b_step]
        tile.emit(builder, addresses, places, strides, args[12])
        return context.get_dummy_value()

    return signature, codegen


class _Operand:
    """An array argument: where its data starts, its strides in bytes, the address of one of its elements."""

    def __init__(self, context: Any, builder: Any, kind: Any, value: Any) -> None:
        array = make_array(kind)(context, builder, value)
        self.context, self.builder = context, builder
        self.data = builder.ptrtoint(array.data, ir.IntType(64))
        self.strides = cgutils.unpack_tuple(builder, array.strides, kind.ndim)

    def at(self, kind: Any, index: Any) -> Any:
        """The address of an element, as an integer."""
        address = self.data
        for position, stride in enumerate(self.strides):
            part = self.builder.extract_value(index, position)
            whole = self.context.cast(self.builder, part, kind[position], types.int64)
            address = self.builder.add(address, self.builder.mul(whole, stride))
        return address


class _Tile:
    """The shape of a tile in vectors, and the code that multiplies into it."""

    def __init__(self, dtype: Any, rows: int, columns: int) -> None:
        self.element = ir.FloatType() if dtype == types.float32 else ir.DoubleType()
        self.itemsize = dtype.bitwidth // 8
        self.rows, self.lanes = rows, min(columns, VECTOR_BYTES // self.itemsize)
        self.vectors = columns // self.lanes
        self.vector = ir.VectorType(self.element, self.lanes)

    def addresses(self, builder: Any, first: Any, row_stride: Any) -> list[Any]:
        """Where each vector of sums lies, row by row."""
        found, row = [], first
        for r in range(self.rows):
            found += [_plus(builder, row, v * self.lanes * self.itemsize) for v in range(self.vectors)]
            row = builder.add(row, row_stride) if r + 1 < self.rows else row
        return found

    def emit(self, builder: Any, addresses: list[Any], places: Any, strides: Any, count: Any) -> None:
        """Load the sums, run the steps with the sums in phis, store them."""
        zero = ir.Constant(ir.IntType(64), 0)
        entry = builder.block
        start = [self._load(builder, address) for address in addresses]
        loop, done = builder.append_basic_block("steps"), builder.append_basic_block("stepped")
        builder.cbranch(builder.icmp_signed(">", count, zero), loop, done)
        builder.position_at_end(loop)
        step, left, right = (builder.phi(ir.IntType(64)) for _ in range(3))
        held = [builder.phi(self.vector) for _ in start]
        new = self._step(builder, held, left, right, strides[0])
        after = builder.add(step, ir.Constant(ir.IntType(64), 1))
        moved = [after, builder.add(left, strides[1]), builder.add(right, strides[2]), *new]
        for phi, first, following in zip(
            [step, left, right, *held], [zero, *places, *start], moved, strict=True
        ):
            phi.add_incoming(first, entry)
            phi.add_incoming(following, loop)
        builder.cbranch(builder.icmp_signed("<", after, count), loop, done)
        builder.position_at_end(done)
        totals = [builder.phi(self.vector) for _ in start]
        for total, first, last, address in zip(totals, start, new, addresses, strict=True):
            total.add_incoming(first, entry)
            total.add_incoming(last, loop)
            builder.store(total, builder.inttoptr(address, self.vector.as_pointer()), align=self.itemsize)

    def _step(self, builder: Any, held: Any, left: Any, right: Any, row_stride: Any) -> Any:
        """One step: a row of b, and for each row of the tile one number of a, broadcast."""
        fma = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(self.vector, [self.vector] * 3),
            f"llvm.fma.v{self.lanes}f{8 * self.itemsize}",
        )
        width = self.lanes * self.itemsize
        loaded = [self._load(builder, _plus(builder, right, v * width)) for v in range(self.vectors)]
        new, address = [], left
        for r in range(self.rows):
            row = held[r * self.vectors : (r + 1) * self.vectors]
            number = builder.load(builder.inttoptr(address, self.element.as_pointer()), align=self.itemsize)
            spread = self._broadcast(builder, number)
            new += [builder.call(fma, [spread, b, y]) for b, y in zip(loaded, row, strict=True)]
            address = builder.add(address, row_stride) if r + 1 < self.rows else address
        return new

    def _broadcast(self, builder: Any, number: Any) -> Any:
        undefined = ir.Constant(self.vector, ir.Undefined)
        one = builder.insert_element(undefined, number, ir.Constant(ir.IntType(32), 0))
        mask = ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), [0] * self.lanes)
        return builder.shuffle_vector(one, undefined, mask)

    def _load(self, builder: Any, address: Any) -> Any:
        return builder.load(builder.inttoptr(address, self.vector.as_pointer()), align=self.itemsize)


def _plus(builder: Any, address: Any, amount: int) -> Any:
    return builder.add(address, ir.Constant(ir.IntType(64), amount)) if amount else address

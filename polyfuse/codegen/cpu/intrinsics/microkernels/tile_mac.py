"""The innermost product as one operation: a tile of sums that stays in vector registers while the contraction runs.

    for k: for r: for c: y[r, c] += a[r, k] * b[k, c]   ->   tile_mac(TileSpec(rows, columns), y, a, …, b, …, steps)

Goto & van de Geijn, Anatomy of High-Performance Matrix Multiplication (2008), section 4: the micro-kernel. One
intrinsic emits the whole k loop: `rows` x `columns` sums are loaded once, each step broadcasts `rows` numbers of a and
loads one row of b, and the sums are stored once. A pass through the loop is two steps. Every sum is added up in the
order of k, one fused multiply-add a step, as the loops would with contraction on.

A tile may ask for numbers that later ones need (tile_mac_ahead for b, tile_mac_rows_ahead for a), some bytes with each
step, so that they come from memory while it computes; or with each row of b for what lies further on in that row
(tile_mac_columns_ahead). Asking reads nothing: what lies behind an array's end may be asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from polyfuse.codegen.array_fields import ADDRESS, STRIDES, parts_of
from polyfuse.codegen.cpu.intrinsics.microkernels.tile_spec import TileSpec, TileSpecType
from polyfuse.schedule.microkernel_verb import padded

VECTOR_BYTES = 64
"""The width that code is written in; LLVM splits it where the CPU's registers are narrower."""

LINE = 64
"""Bytes that come from memory together."""

TOGETHER = 2
"""Steps in one pass of the loop. What counts them and goes on may take a multiply-add's port, three or four for 24: in
parts of the peak, with one, two and four steps a pass, 512 77, 84 and 79 to 82 %, 1024 79, 83 and 86, in float64 74, 82
and 82, 73, 79 and 80 (one core of a Xeon, in turns)."""

READ, WRITE = 0, 1
NEAREST_CACHE, SECOND_CACHE = 3, 2
DATA = 1
"""Arguments of LLVM's prefetch: read or write, locality, and data instead of instructions."""


def ask_for(builder: Any, place: Any, nbytes: int, purpose: int, cache: int) -> None:
    """Ask for the lines of memory that so many bytes from an address lie in. Nothing is loaded or can fault."""
    flag = ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, flag, flag, flag])
    ask = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    for line in range(0, nbytes, LINE):
        address = builder.inttoptr(plus(builder, place, line), cgutils.voidptr_t)
        builder.call(ask, [address, flag(purpose), flag(cache), flag(DATA)])


@intrinsic(prefer_literal=True)
def tile_mac(
    typingctx: Any,
    tile: Any,
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
    """Add a product of so many steps to a tile of sums; a row of its columns is a whole number of vectors.

    y: its element at `y_at` is the tile's first sum; rows lie along the axis `y_row`, columns along its last axis.
    a: its element at `a_at` goes with the first row and step; rows lie along the axis `a_row`, steps along `a_step`.
    b: its element at `b_at` goes with the first step and column; steps lie along the axis `b_step`, columns along its
    last one. Axes are literals.
    """
    operands = (y, y_at, y_row, a, a_at, a_row, a_step, b, b_at, b_step)
    if not isinstance(tile, TileSpecType) or not are_literals(y_row, a_row, a_step, b_step):
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        made = Tile(builder, sig.args[1].dtype, tile.spec.rows, tile.spec.columns)
        emit_product(made, context, sig.args[1:], args[1:])
        return context.get_dummy_value()

    return types.void(tile, *operands, types.int64), codegen


@intrinsic(prefer_literal=True)
def tile_mac_ahead(
    typingctx: Any,
    tile: Any,
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
    following: Any,
    part: Any,
    share: Any,
) -> Any:
    """`tile_mac` that asks for numbers of b from its element at `following` on: as many as `part` tiles ask for later.

    A tile asks for `share` numbers, a literal, with each step. Whole panels are contiguous.
    """
    operands = (y, y_at, y_row, a, a_at, a_row, a_step, b, b_at, b_step)
    if not isinstance(tile, TileSpecType) or not are_literals(y_row, a_row, a_step, b_step, share):
        return None
    kinds = types.void(tile, *operands, types.int64, following, types.int64, share)
    return kinds, _asking(tile.spec, 8, share.literal_value)


@intrinsic(prefer_literal=True)
def tile_mac_rows_ahead(
    typingctx: Any,
    tile: Any,
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
    following: Any,
    part: Any,
    share: Any,
) -> Any:
    """`tile_mac_ahead` that asks for numbers of a, whose panels have the rows of a tile side by side."""
    operands = (y, y_at, y_row, a, a_at, a_row, a_step, b, b_at, b_step)
    if not isinstance(tile, TileSpecType) or not are_literals(y_row, a_row, a_step, b_step, share):
        return None
    kinds = types.void(tile, *operands, types.int64, following, types.int64, share)
    return kinds, _asking(tile.spec, 4, share.literal_value)


@intrinsic(prefer_literal=True)
def tile_mac_columns_ahead(
    typingctx: Any,
    tile: Any,
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
    further: Any,
) -> Any:
    """`tile_mac` that asks in each row of b for as many numbers as it reads, `further` numbers on, a literal."""
    operands = (y, y_at, y_row, a, a_at, a_row, a_step, b, b_at, b_step)
    if not isinstance(tile, TileSpecType) or not are_literals(y_row, a_row, a_step, b_step, further):
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        made = Tile(builder, sig.args[1].dtype, tile.spec.rows, tile.spec.columns)
        made.further = further.literal_value * made.itemsize
        emit_product(made, context, sig.args[1:], args[1:])
        return context.get_dummy_value()

    return types.void(tile, *operands, types.int64, further), codegen


def _asking(spec: TileSpec, operand: int, share: int) -> Callable[[Any, Any, Any, Any], Any]:
    """The code for a product of such a tile that asks for numbers of one argument, so many with each step."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        made = Tile(builder, sig.args[1].dtype, spec.rows, spec.columns)
        each = ir.Constant(ir.IntType(64), share * made.itemsize)
        begun = builder.mul(builder.mul(args[13], args[11]), each)
        panels = Operand(context, builder, sig.args[operand], args[operand])
        made.ahead = Ahead(builder.add(panels.at(sig.args[12], args[12]), begun), each)
        emit_product(made, context, sig.args[1:], args[1:])
        return context.get_dummy_value()

    return codegen


def are_literals(*values: Any) -> bool:
    """True if numba knows the values of all of these arguments."""
    return all(isinstance(value, types.IntegerLiteral) for value in values)


def emit_product(tile: Tile, context: Any, kinds: Any, args: Any) -> None:
    """The code for a product, from the operands on: y, where it starts, …, the number of steps."""
    builder = tile.builder
    sums, left, right = (Operand(context, builder, kinds[p], args[p]) for p in (0, 3, 7))
    y_row, a_row, a_step, b_step = (kinds[p].literal_value for p in (2, 5, 6, 9))
    addresses = tile.addresses(sums.at(kinds[1], args[1]), sums.strides[y_row])
    places = left.at(kinds[4], args[4]), right.at(kinds[8], args[8])
    rows = tile.row_strides(left.strides[a_row])
    tile.emit(addresses, places, (rows, left.strides[a_step], right.strides[b_step]), args[10])


class Operand:
    """An array argument: where its data starts, its strides in bytes, the address of one of its elements."""

    def __init__(self, context: Any, builder: Any, kind: Any, value: Any) -> None:
        self.context, self.builder = context, builder
        self.data = builder.ptrtoint(builder.extract_value(value, ADDRESS), ir.IntType(64))
        itemsize = ir.Constant(ir.IntType(64), kind.dtype.bitwidth // 8)
        self.strides = [*parts_of(builder, value, STRIDES, kind.ndim - 1), itemsize]

    def at(self, kind: Any, index: Any) -> Any:
        """The address of an element, as an integer."""
        return self.builder.add(self.data, self.moved(kind, index))

    def moved(self, kind: Any, by: Any) -> Any:
        """The bytes from an element to another one, given the elements between them along each axis."""
        distance = ir.Constant(ir.IntType(64), 0)
        for position, stride in enumerate(self.strides):
            part = self.builder.extract_value(by, position)
            whole = self.context.cast(self.builder, part, kind[position], types.int64)
            distance = self.builder.add(distance, self.builder.mul(whole, stride))
        return distance


@dataclass(frozen=True)
class Cut:
    """The numbers of rows and columns of a tile, as integers of 64 bits; each at least one."""

    rows: Any
    columns: Any


@dataclass(frozen=True)
class Ahead:
    """The address of the first bytes to ask for, and how many with each step, a constant."""

    start: Any
    each: Any


class Tile:
    """The shape of a tile in vectors, of at most so many lanes, and the code that multiplies into it."""

    def __init__(
        self,
        builder: Any,
        dtype: Any,
        rows: int,
        columns: int,
        cut: Cut | None = None,
        most: int | None = None,
    ) -> None:
        self.builder, self.cut = builder, cut
        self.ahead: Ahead | None = None
        self.further = 0  # bytes from what a step reads of b to what it asks for; 0: nothing
        self.element = ir.FloatType() if dtype == types.float32 else ir.DoubleType()
        self.itemsize = dtype.bitwidth // 8
        whole = padded(columns, self.itemsize)
        self.rows, self.lanes = rows, min(whole, most or whole, VECTOR_BYTES // self.itemsize)
        self.vectors, self.bytes = whole // self.lanes, self.lanes * self.itemsize
        self.vector = ir.VectorType(self.element, self.lanes)
        self.flags = ir.VectorType(ir.IntType(1), self.lanes)
        self.masks = [self._mask(columns, v) for v in range(self.vectors)]

    def addresses(self, first: Any, row_stride: Any) -> list[Any]:
        """The address of each vector of sums, row by row."""
        found, row = [], first
        for r, stride in enumerate([*self.row_strides(row_stride), None]):
            found += [plus(self.builder, row, v * self.bytes) for v in range(self.vectors)]
            row = self.builder.add(row, stride) if r + 1 < self.rows else row
        return found

    def row_strides(self, stride: Any) -> list[Any]:
        """From each row to the next one; nothing where the tile has no next one."""
        if self.cut is None:
            return [stride] * (self.rows - 1)
        zero = ir.Constant(ir.IntType(64), 0)
        return [self.builder.select(self._has_row(r), stride, zero) for r in range(1, self.rows)]

    def emit(self, addresses: list[Any], places: Any, strides: Any, count: Any) -> None:
        """Load the sums, run the steps with the sums in phis, store them."""
        builder = self.builder
        zero, pass_of = ir.Constant(ir.IntType(64), 0), ir.Constant(ir.IntType(64), TOGETHER)
        start = [self.load(address, p % self.vectors) for p, address in enumerate(addresses)]
        whole = builder.sub(count, builder.srem(count, pass_of))
        state = self._steps([zero, *places, *start], strides, whole, TOGETHER)
        _, _, _, *totals = self._steps(state, strides, count, 1)
        for position, (total, address) in enumerate(zip(totals, addresses, strict=True)):
            row, vector = divmod(position, self.vectors)
            self.store(total, address, vector, self._of_row(row, vector))

    def _steps(self, state: list[Any], strides: Any, end: Any, together: int) -> list[Any]:
        """A loop of steps up to `end`, so many `together`. The state is the step, where a and b are, and the sums."""
        builder = self.builder
        entry = builder.block
        loop, done = builder.append_basic_block("steps"), builder.append_basic_block("stepped")
        builder.cbranch(builder.icmp_signed("<", state[0], end), loop, done)
        builder.position_at_end(loop)
        now = [builder.phi(value.type) for value in state]
        step, left, right, *new = now
        self._ask(step, together)
        for _ in range(together):
            new = self._step(new, left, right, strides[0])
            left, right = builder.add(left, strides[1]), builder.add(right, strides[2])
        after = [builder.add(step, ir.Constant(ir.IntType(64), together)), left, right, *new]
        for phi, first, following in zip(now, state, after, strict=True):
            phi.add_incoming(first, entry)
            phi.add_incoming(following, loop)
        builder.cbranch(builder.icmp_signed("<", after[0], end), loop, done)
        builder.position_at_end(done)
        behind = [builder.phi(value.type) for value in state]
        for phi, first, last in zip(behind, state, after, strict=True):
            phi.add_incoming(first, entry)
            phi.add_incoming(last, loop)
        return behind

    def _step(self, held: Any, left: Any, right: Any, row_strides: list[Any]) -> Any:
        """One step: a row of b, and for each row of the tile one number of a, broadcast."""
        builder = self.builder
        if self.further:
            place = plus(builder, right, self.further)
            ask_for(builder, place, self.vectors * self.bytes, READ, NEAREST_CACHE)
        loaded = [self.load(plus(builder, right, v * self.bytes), v) for v in range(self.vectors)]
        new, address = [], left
        for r in range(self.rows):
            row = held[r * self.vectors : (r + 1) * self.vectors]
            spread = self.spread(address)
            new += [self.multiply_add(spread, b, y) for b, y in zip(loaded, row, strict=True)]
            address = builder.add(address, row_strides[r]) if r + 1 < self.rows else address
        return new

    def _ask(self, step: Any, steps: int) -> None:
        """Ask for the lines that so many steps begin of what later tiles read, to the second cache."""
        if self.ahead is None:
            return
        builder, each = self.builder, self.ahead.each
        place = builder.add(self.ahead.start, builder.mul(step, each))
        ask_for(builder, place, steps * each.constant, READ, SECOND_CACHE)

    def spread(self, address: Any) -> Any:
        """The number at an address in every lane."""
        place = self.builder.inttoptr(address, self.element.as_pointer())
        return self.broadcast(self.builder.load(place, align=self.itemsize))

    def multiply_add(self, a: Any, b: Any, y: Any) -> Any:
        """a * b + y, rounded once."""
        fma = self._function("fma", self.vector, [self.vector] * 3)
        return self.builder.call(fma, [a, b, y])

    def function(self, name: str, value: Any) -> Any:
        """An LLVM function of each number of a vector: sqrt, fabs."""
        return self.builder.call(self._function(name, self.vector, [self.vector]), [value])

    def _of_row(self, row: int, _vector: int) -> Any:
        """All lanes or none, for a row that a tile that is cut may lack."""
        if self.cut is None:
            return None
        every = ir.Constant(self.flags, [1] * self.lanes)
        return self.builder.select(self._has_row(row), every, ir.Constant(self.flags, None))

    def _has_row(self, row: int) -> Any:
        assert self.cut is not None, "only a tile that is cut lacks rows"
        return self.builder.icmp_signed("<", ir.Constant(ir.IntType(64), row), self.cut.rows)

    def _mask(self, columns: int, vector: int) -> Any:
        """The mask of the lanes of a row's vector that lie in the tile; None if all of them do."""
        if self.cut is not None:
            return self._below(self.cut.columns, vector)
        lanes = range(vector * self.lanes, (vector + 1) * self.lanes)
        return ir.Constant(self.flags, [lane < columns for lane in lanes]) if columns < lanes.stop else None

    def _below(self, end: Any, vector: int) -> Any:
        """The mask of the lanes of a row's vector before a column."""
        lanes = [vector * self.lanes + lane for lane in range(self.lanes)]
        places = ir.Constant(ir.VectorType(ir.IntType(64), self.lanes), lanes)
        return self.builder.icmp_signed("<", places, self.broadcast(end))

    def load(self, address: Any, vector: int, row: Any = None) -> Any:
        """The lanes that the tile has of one vector; `row` masks a row that it may lack."""
        return self.load_where(address, self._both(vector, row))

    def load_where(self, address: Any, mask: Any) -> Any:
        """The lanes of a vector that a mask has, zero in the others; None: all of them."""
        place = self.builder.inttoptr(address, self.vector.as_pointer())
        if mask is None:
            return self.builder.load(place, align=self.itemsize)
        kinds = [place.type, ir.IntType(32), self.flags, self.vector]
        load = self._function("masked.load", self.vector, kinds, ".p0")
        zeros = ir.Constant(self.vector, None)
        align = ir.Constant(ir.IntType(32), self.itemsize)
        return self.builder.call(load, [place, align, mask, zeros])

    def store(self, value: Any, address: Any, vector: int, row: Any = None) -> None:
        """Store the lanes that the tile has of one vector of a row."""
        self.store_where(value, address, self._both(vector, row))

    def store_where(self, value: Any, address: Any, mask: Any) -> None:
        """Store the lanes of a vector that a mask has; None: all of them."""
        place = self.builder.inttoptr(address, self.vector.as_pointer())
        if mask is None:
            self.builder.store(value, place, align=self.itemsize)
            return
        if isinstance(mask, ir.Constant):
            self._store_first(value, address, sum(bool(lane.constant) for lane in mask.constant))
            return
        kinds = [self.vector, place.type, ir.IntType(32), self.flags]
        store = self._function("masked.store", ir.VoidType(), kinds, ".p0")
        self.builder.call(store, [value, place, ir.Constant(ir.IntType(32), self.itemsize), mask])

    def _store_first(self, value: Any, address: Any, count: int) -> None:
        """Store the first lanes of a vector in halves, quarters and so on, as few as hold so many."""
        at, size = 0, self.lanes
        while at < count:
            size //= 2
            if at + size <= count:
                lanes = ir.Constant(ir.VectorType(ir.IntType(32), size), list(range(at, at + size)))
                part = self.builder.shuffle_vector(value, ir.Constant(self.vector, ir.Undefined), lanes)
                place = plus(self.builder, address, at * self.itemsize)
                place = self.builder.inttoptr(place, part.type.as_pointer())
                self.builder.store(part, place, align=self.itemsize)
                at += size

    def _both(self, vector: int, row: Any) -> Any:
        """The lanes that a vector has in a row; None if it has all of them."""
        if self.masks[vector] is None or row is None:
            return row if self.masks[vector] is None else self.masks[vector]
        return self.builder.and_(self.masks[vector], row)

    def _function(self, name: str, result: Any, kinds: list[Any], places: str = "") -> Any:
        """An LLVM operation on the tile's vectors."""
        kind = ir.FunctionType(result, kinds)
        full = f"llvm.{name}.v{self.lanes}f{8 * self.itemsize}{places}"
        return cgutils.get_or_insert_function(self.builder.module, kind, full)

    def broadcast(self, number: Any) -> Any:
        """A number in every lane."""
        return everywhere(self.builder, number, self.lanes)


def everywhere(builder: Any, number: Any, lanes: int) -> Any:
    """A vector of so many lanes with a number in each."""
    undefined = ir.Constant(ir.VectorType(number.type, lanes), ir.Undefined)
    one = builder.insert_element(undefined, number, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(
        one, undefined, ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
    )


def plus(builder: Any, address: Any, amount: int) -> Any:
    """An address so many bytes further."""
    return builder.add(address, ir.Constant(ir.IntType(64), amount)) if amount else address


def exchanged(builder: Any, a: Any, b: Any, by: int, lanes: int) -> tuple[Any, Any]:
    """Two rows `by` apart: what a has in lanes where b is to be goes to b, and the other way."""
    low = [lane if not lane & by else lanes + lane - by for lane in range(lanes)]
    high = [lane + by if not lane & by else lanes + lane for lane in range(lanes)]
    kind = ir.VectorType(ir.IntType(32), lanes)
    first, second = (builder.shuffle_vector(a, b, ir.Constant(kind, mask)) for mask in (low, high))
    return first, second

"""Device operations of a tile of multiply-adds and its copies: one intrinsic per step of a tile.

    tile_fma     a tile of results in registers times some steps of two factors in shared memory
    copy_vector  16 bytes from one array to another, in one access where they are neighbours
    copy_padded  one element where a condition holds, and zero elsewhere
    copy_ahead   what copy_vector does, while the thread goes on; await_copies waits for all but the last groups
    pad_ahead    the same where a condition holds, and zeros elsewhere

numba's frontend takes time quadratic in the number of statements: 16 steps of 8 x 8 results written out are 1024 of
them and took 9 s, as one intrinsic 0.4 s. Needs the extra `polyfuse[cuda]`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from llvmlite import ir
from numba.cuda import types
from numba.cuda.extending import intrinsic

from polyfuse.analysis.vector_access import ACCESS_BYTES

INT = ir.IntType(64)

SHARED = 3
"""LLVM's number for the address space of shared memory."""


@intrinsic
def tile_fma(
    typingctx: Any, rows: Any, columns: Any, most: Any, y: Any,
    a: Any, a_at: Any, a_line: Any, a_every: Any, a_skip: Any, a_part: Any, a_vector: Any,
    b: Any, b_at: Any, b_line: Any, b_every: Any, b_skip: Any, b_part: Any, b_vector: Any,
    count: Any,
) -> Any:  # fmt: skip
    """y[r, c] += a(k, r) * b(k, c) for the steps k < count, one fused multiply-add each, in order.

    y is an array of the thread's own. Element (k, r) of a factor lies k lines after its first one (some lines are
    `skip` further), the vectors of a line `part` apart. All but `y`, `a`, `b`, where they start and `count` are
    literals; a full `most` steps are written out, any other number of them is a loop.
    """
    literals = (
        rows,
        columns,
        most,
        a_line,
        a_every,
        a_skip,
        a_part,
        a_vector,
        b_line,
        b_every,
        b_skip,
        b_part,
        b_vector,
    )
    if not all(isinstance(value, types.IntegerLiteral) for value in literals):
        return None
    numbers = [value.literal_value for value in literals]

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        dtype = sig.args[3].dtype
        element = context.get_data_type(dtype)

        def start(position: int, first: Any) -> Any:
            data = context.make_array(sig.args[position])(context, builder, args[position]).data
            return builder.gep(data, [first])

        def index(position: int) -> Any:
            return context.cast(builder, args[position], sig.args[position], types.int64)

        left = Factor(builder, element, start(4, index(5)), *numbers[3:8])
        right = Factor(builder, element, start(11, index(12)), *numbers[8:13])
        sums = start(3, INT(0))
        tile = Tile(builder, sums, left, right, numbers[0], numbers[1])
        steps = index(18)
        with builder.if_else(builder.icmp_signed("==", steps, INT(numbers[2]))) as (full, cut):
            with full:
                tile.whole(numbers[2])
            with cut:
                tile.some(steps)
        return context.get_dummy_value()

    kinds = (rows, columns, most, y, a, types.int64, a_line, a_every, a_skip, a_part, a_vector,
             b, types.int64, b_line, b_every, b_skip, b_part, b_vector, types.int64)  # fmt: skip
    return types.void(*kinds), codegen


@intrinsic
def copy_vector(typingctx: Any, count: Any, target: Any, to: Any, step: Any, source: Any, at: Any) -> Any:
    """target[to + step * l] = source[at + l] for l < count: one load of `count` elements, one store if step is 1.

    `source` + `at`, and `target` + `to` if step is 1, are at multiples of `count` elements. `count` and `step` are
    literals, `source` and `target` raw pointers or arrays, whose elements are counted in row-major order. Of eight
    halves LLVM makes two accesses.
    """
    if not all(isinstance(value, types.IntegerLiteral) for value in (count, step)):
        return None
    lanes, apart = count.literal_value, step.literal_value

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = context.get_data_type(sig.args[1].dtype)
        to, at = (context.cast(builder, args[p], sig.args[p], types.int64) for p in (2, 5))
        target, source = (_data(context, builder, sig.args[p], args[p]) for p in (1, 4))
        loaded = vector_at(builder, builder.gep(source, [at]), kind, lanes)
        place = builder.gep(target, [to])
        if apart == 1:
            into = builder.bitcast(place, loaded.type.as_pointer())
            builder.store(loaded, into).align = _bytes(kind, lanes)
            return context.get_dummy_value()
        for lane in range(lanes):
            one = builder.extract_element(loaded, ir.IntType(32)(lane))
            builder.store(one, builder.gep(place, [INT(lane * apart)]))
        return context.get_dummy_value()

    return types.void(count, target, types.int64, step, source, types.int64), codegen


def _data(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """The address of the first element of an array, or the pointer that it is."""
    return context.make_array(kind)(context, builder, value).data if isinstance(kind, types.Array) else value


@intrinsic
def copy_padded(typingctx: Any, target: Any, to: Any, source: Any, at: Any, here: Any) -> Any:
    """target[to] = source[at] if here else 0, in one store.

    `source` is a raw pointer, of which no element is touched where `here` does not hold.
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = context.get_data_type(sig.args[0].dtype)
        to, at = (context.cast(builder, args[p], sig.args[p], types.int64) for p in (1, 3))
        place, before = builder.gep(args[2], [at]), builder.block
        with builder.if_then(context.cast(builder, args[4], sig.args[4], types.boolean)):
            loaded, inside = builder.load(place), builder.block
        value = builder.phi(kind)
        value.add_incoming(ir.Constant(kind, 0.0), before)
        value.add_incoming(loaded, inside)
        data = context.make_array(sig.args[0])(context, builder, args[0]).data
        builder.store(value, builder.gep(data, [to]))
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64, here), codegen


@intrinsic
def copy_ahead(typingctx: Any, count: Any, target: Any, to: Any, step: Any, source: Any, at: Any) -> Any:
    """Begin a copy like copy_vector's without waiting: PTX's cp.async, 16 bytes if step is 1, else each element.

    The copies of a thread until its next `await_copies` are a group.
    """
    if not all(isinstance(value, types.IntegerLiteral) for value in (count, step)):
        return None
    lanes, apart = count.literal_value, step.literal_value

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        _begin_copies(lanes, apart, context, builder, sig.args, args)
        return context.get_dummy_value()

    return types.void(count, target, types.int64, step, source, types.int64), codegen


@intrinsic
def pad_ahead(
    typingctx: Any, count: Any, target: Any, to: Any, step: Any, source: Any, at: Any, here: Any
) -> Any:
    """Copy as copy_ahead does if `here` holds, else fill with zeros: a cp.async that reads no byte fills zeros.

    No branch: where `here` does not hold, PTX looks at no byte of the source.
    """
    if not all(isinstance(value, types.IntegerLiteral) for value in (count, step)):
        return None
    lanes, apart = count.literal_value, step.literal_value

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        inside = context.cast(builder, args[6], sig.args[6], types.boolean)
        _begin_copies(lanes, apart, context, builder, sig.args, args, inside)
        return context.get_dummy_value()

    return types.void(count, target, types.int64, step, source, types.int64, here), codegen


def _begin_copies(
    lanes: int, apart: int, context: Any, builder: Any, kinds: Any, args: Any, inside: Any = None
) -> None:
    """A cp.async of all lanes where they stay neighbours, else of each; of no byte where a condition does not hold."""
    kind = context.get_data_type(kinds[1].dtype)
    to, at = (context.cast(builder, args[p], kinds[p], types.int64) for p in (2, 5))
    data = context.make_array(kinds[1])(context, builder, args[1]).data
    shared = builder.addrspacecast(builder.gep(data, [to]), ir.PointerType(kind, addrspace=SHARED))
    word = ir.IntType(32)
    operands = [builder.ptrtoint(shared, word), builder.ptrtoint(builder.gep(args[4], [at]), INT)]
    width = lanes if apart == 1 else 1
    nbytes = _bytes(kind, width)
    cached = "cg" if nbytes == ACCESS_BYTES else "ca"
    if inside is not None:
        operands.append(builder.select(inside, word(nbytes), word(0)))
    read, constraints = ("", "r,l") if inside is None else (", $2", "r,l,r")
    for lane in range(0, lanes, width):
        there, here = _bytes(kind, lane * apart), _bytes(kind, lane)
        text = f"cp.async.{cached}.shared.global [$0+{there}], [$1+{here}], {nbytes}{read};"
        assembly(builder, text, constraints, operands)


@intrinsic
def await_copies(typingctx: Any, still_open: Any) -> Any:
    """Complete a group, and wait for all groups of this thread but the last `still_open`, a literal."""
    if not isinstance(still_open, types.IntegerLiteral):
        return None
    groups = still_open.literal_value

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        assembly(builder, "cp.async.commit_group;", "", [])
        assembly(builder, f"cp.async.wait_group {groups};", "", [])
        return context.get_dummy_value()

    return types.void(still_open), codegen


def assembly(builder: Any, text: str, operands: str, values: list[Any]) -> None:
    """PTX that reads and writes memory, so that nothing is moved across it."""
    function = ir.FunctionType(ir.VoidType(), [value.type for value in values])
    constraints = ",".join(part for part in (operands, "~{memory}") if part)
    builder.asm(function, text, constraints, values, side_effect=True)


def _bytes(kind: Any, count: int) -> int:
    return count * (
        4 if isinstance(kind, ir.FloatType) else kind.width // 8 if isinstance(kind, ir.IntType) else 8
    )


def vector_at(builder: Any, place: Any, kind: Any, count: int) -> Any:
    """So many neighbours, in one access."""
    pointer = builder.bitcast(place, ir.VectorType(kind, count).as_pointer())
    loaded = builder.load(pointer)
    loaded.align = _bytes(kind, count)
    return loaded


@dataclass(frozen=True)
class Factor:
    """One side of a product in shared memory, from the tile's first element on."""

    builder: Any
    kind: Any
    first: Any
    line: int
    every: int
    skip: int
    part: int
    vector: int

    def at(self, step: Any, count: int) -> list[Any]:
        """The elements of a step, a number or a value, in vectors."""
        line = self._line(step)
        found = []
        for part in range(count // self.vector):
            place = self.builder.gep(line, [INT(part * self.part)])
            loaded = vector_at(self.builder, place, self.kind, self.vector)
            found += [
                self.builder.extract_element(loaded, ir.IntType(32)(lane)) for lane in range(self.vector)
            ]
        return found

    def from_line(self, step: Any) -> Factor:
        """The factor from one of its lines on; the next ones asked for are whole groups of `every` further."""
        return replace(self, first=self._line(step))

    def _line(self, step: Any) -> Any:
        if isinstance(step, int):
            offset = INT(step * self.line + step // self.every * self.skip)
        else:
            offset = self.builder.mul(step, INT(self.line))
            skipped = self.builder.udiv(step, INT(self.every))
            offset = self.builder.add(offset, self.builder.mul(skipped, INT(self.skip)))
        return self.builder.gep(self.first, [offset])


def to_and_fro(rows: int, columns: int, vector: int) -> Iterator[tuple[int, int]]:
    """The results of a tile in an order in which each has a factor of the one before it: a bank of registers delivers
    one number in a cycle (disassembly.py), and ptxas mostly keeps the order. The columns of one load first,
    whose registers are free then.

    >>> list(to_and_fro(2, 4, vector=2))
    [(0, 0), (0, 1), (1, 1), (1, 0), (1, 2), (1, 3), (0, 3), (0, 2)]
    """
    down = True
    for first in range(0, columns, vector):
        right = True
        for row in range(rows) if down else reversed(range(rows)):
            few = range(first, first + vector)
            yield from ((row, column) for column in (few if right else reversed(few)))
            right = not right
        down = not down


@dataclass(frozen=True)
class Tile:
    """The results of one thread, and the code that multiplies into them, `depth` steps at a time."""

    builder: Any
    sums: Any
    left: Factor
    right: Factor
    rows: int
    columns: int

    @property
    def depth(self) -> int:
        """The steps that are taken together."""
        return 1

    def whole(self, steps: int) -> None:
        """All steps, a multiple of those taken together, written out."""
        held = self._loaded()
        for step in range(0, steps, self.depth):
            held = self._stepped(held, step)
        self._stored(held)

    def some(self, count: Any) -> None:
        """A loop over some steps."""
        builder = self.builder
        start = self._loaded()
        entry = builder.block
        loop, done = builder.append_basic_block("steps"), builder.append_basic_block("stepped")
        builder.cbranch(builder.icmp_signed(">", count, INT(0)), loop, done)
        builder.position_at_end(loop)
        step, *held = [builder.phi(INT), *(builder.phi(value.type) for value in start)]
        new = self._last(held, step, count)
        self._stored(new)
        after = builder.add(step, INT(self.depth))
        for phi, first, following in zip((step, *held), (INT(0), *start), (after, *new), strict=True):
            phi.add_incoming(first, entry)
            phi.add_incoming(following, loop)
        builder.cbranch(builder.icmp_signed("<", after, count), loop, done)
        builder.position_at_end(done)

    def _last(self, held: list[Any], step: Any, count: Any) -> list[Any]:
        """The results after steps from one on, of which those below `count` are there."""
        return self._stepped(held, step)

    def _stepped(self, held: list[Any], step: Any) -> list[Any]:
        a, b = self.left.at(step, self.rows), self.right.at(step, self.columns)
        new = list(held)
        for r, c in to_and_fro(self.rows, self.columns, self.right.vector):
            place = r * self.columns + c
            new[place] = self.builder.fma(a[r], b[c], held[place])
        return new

    def _places(self) -> list[Any]:
        return [self.builder.gep(self.sums, [INT(p)]) for p in range(self.rows * self.columns)]

    def _loaded(self) -> list[Any]:
        return [self.builder.load(place) for place in self._places()]

    def _stored(self, values: list[Any]) -> None:
        for value, place in zip(values, self._places(), strict=True):
            self.builder.store(value, place)

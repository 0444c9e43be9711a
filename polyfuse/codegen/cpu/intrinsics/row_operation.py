"""One statement along a row as one operation: whole vectors from where the row's results are aligned in memory.

    for k: b[k] = 0.5 * (a[k - 1] + a[k + 1])
    ->  row_of_lanes(row, float64, count, place, (address(b, …),), (address(a, (k,)),), ())

        @VectorRow
        def row(r0):
            return 0.5 * (r0[-1] + r0[1])

        |. . b b b b b b|b b b b b b b b|b b b b . . . .|     lines of cache, and b's elements in them
          masked lanes    whole vectors   masked lanes

A vector that straddles two lines of cache takes two loads or stores. LLVM's own vectors begin where the row begins: all
loads of a row's elements and of those above and below them may then straddle, and its stores. From an aligned element
on only elements beside them would, and those are not loaded: r0[1] is taken from two vectors of r0, each of which is
loaded once. LLVM also runs what is left of a row one element at a time, at the price of a vector each: six of 118, and
more behind elements left out for alignment. Rows of 118 numbers of heat-3d in L1 took 0.52 ns an element in LLVM's
vectors, 0.25 in whole ones, and 0.23 without the loads beside; in time tiles, where rows come from L2, the last two
took 630 and 570 ms (one core of a Xeon, vectors of 64 bytes; the last two as loops in C).

Several rows go side by side, vector by vector, where they read the same elements: those are loaded once for all.

Each element is computed once, by the operations that the loop would take, in their order.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from polyfuse.codegen.cpu.intrinsics.extrema import extremum
from polyfuse.codegen.cpu.intrinsics.microkernels.tile_mac import (
    NEAREST_CACHE,
    READ,
    VECTOR_BYTES,
    WRITE,
    Operand,
    ask_for,
)
from polyfuse.codegen.cpu.intrinsics.vector_row import VectorRowType
from polyfuse.codegen.cpu.intrinsics.vector_width import in_whole_registers

CONTRACT = ("contract",)
"""a * b + c may be rounded once, as in a kernel's other loops."""


def combined(builder: ir.IRBuilder, op: ast.operator, left: Any, right: Any) -> Any:
    """left + right, or what else of + - * / an operator of Python's says, of numbers or vectors."""
    emit = {ast.Add: builder.fadd, ast.Sub: builder.fsub, ast.Mult: builder.fmul, ast.Div: builder.fdiv}
    return emit[type(op)](left, right, flags=CONTRACT)


WORD = ir.IntType(64)


@intrinsic
def address(typingctx: Any, array: Any, index: Any) -> Any:
    """The address of an array's element, as an integer."""

    def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        return Operand(context, builder, signature.args[0], args[0]).at(signature.args[1], args[1])

    return types.int64(array, index), code


@intrinsic(prefer_literal=True)
def beside(typingctx: Any, place: Any, array: Any, by: Any) -> Any:
    """The address so many elements further along each axis of an array; numbers, which LLVM adds up beforehand."""

    def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        operand = Operand(context, builder, signature.args[1], args[1])
        return builder.add(args[0], operand.moved(signature.args[2], args[2]))

    return types.int64(types.int64, array, by), code


@intrinsic(prefer_literal=True)
def row_of_lanes(
    typingctx: Any, row: Any, kind: Any, count: Any, whole: Any, targets: Any, rows: Any, numbers: Any
) -> Any:
    """Store each value of a row in `count` elements that lie side by side from its address in `targets` on.

    None of the results is among the elements that another part reads, in any step.

    kind: float32 or float64, of all elements and numbers.
    whole: the element that goes with the first result of those whose lines of cache the vectors are not to straddle.
    row: a VectorRow that returns expressions in its parameters, with a comma between them: numbers, + - * /, sqrt, abs,
    larger and smaller. r0[-1] and r0[1] are the elements before and behind r0.
    rows, numbers: the arguments for its parameters: the addresses of the elements that go with the first result, where
    the next ones go with the next ones; then numbers that are the same for all of the row.
    """
    return _typed(row, kind, targets, rows, numbers, ())


@intrinsic(prefer_literal=True)
def row_of_lanes_ahead(
    typingctx: Any,
    row: Any,
    kind: Any,
    count: Any,
    whole: Any,
    targets: Any,
    rows: Any,
    numbers: Any,
    to_read: Any,
    to_write: Any,
) -> Any:
    """The same, which asks for other rows meanwhile: a line with each vector, from the addresses of both tuples on."""
    return _typed(row, kind, targets, rows, numbers, (to_read, to_write))


def _typed(row: Any, kind: Any, targets: Any, rows: Any, numbers: Any, asked: tuple[Any, ...]) -> Any:
    """A signature, and the code: what an intrinsic returns."""
    if not isinstance(row, VectorRowType) or not isinstance(kind, types.NumberClass):
        return None

    def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        in_whole_registers(builder.function)
        element = ir.FloatType() if kind.dtype == types.float32 else ir.DoubleType()
        lanes = _Lanes(builder, element, kind.dtype.bitwidth // 8)
        (returned,) = row.row.statements
        assert isinstance(returned, ast.Return), "a row of lanes returns its values"
        tree = returned.value
        assert tree is not None, "it has one at least"
        values = tree.elts if isinstance(tree, ast.Tuple) else [tree]
        called = row.row.parameters[: len(rows)], row.row.parameters[len(rows) :]
        results = [(one, builder.extract_value(args[4], p)) for p, one in enumerate(values)]
        read = [builder.extract_value(args[5], p) for p in range(len(rows))]
        spread = [lanes.broadcast(builder.extract_value(args[6], p)) for p in range(len(numbers))]
        ahead = [
            (builder.extract_value(places, p), purpose)
            for places, kinds, purpose in zip(args[7:], asked, (READ, WRITE), strict=False)
            for p in range(len(kinds))
        ]
        _Row(lanes, results, called, read, spans(tree, called[0]), spread, ahead).emit(args[2], args[3])
        return context.get_dummy_value()

    places = (types.int64, types.int64, targets, rows, numbers)
    return types.void(row, kind, *places, *asked), code


def spans(value: ast.expr, rows: Sequence[str]) -> list[tuple[int, int]]:
    """The least and the largest distance at which each of the rows is read: "r0[-1] + r0" has (-1, 0)."""
    found: dict[str, set[int]] = {}
    for node in ast.walk(value):
        match node:
            case ast.Subscript(ast.Name(id=name), by):
                found.setdefault(name, {0}).add(ast.literal_eval(by))
    every = (found.get(name, {0}) for name in rows)
    return [(min(distances), max(distances)) for distances in every]


@dataclass(frozen=True)
class _Lanes:
    """The vectors that a row is made of, and where code for them goes."""

    builder: ir.IRBuilder
    element: ir.Type
    itemsize: int

    @property
    def count(self) -> int:
        """Elements of a vector."""
        return VECTOR_BYTES // self.itemsize

    @property
    def kind(self) -> ir.Type:
        """A vector."""
        return ir.VectorType(self.element, self.count)

    def broadcast(self, number: Any) -> Any:
        """A vector of one number."""
        kind = ir.VectorType(number.type, self.count)
        one = self.builder.insert_element(
            ir.Constant(kind, ir.Undefined), number, ir.Constant(ir.IntType(32), 0)
        )
        first = ir.Constant(ir.VectorType(ir.IntType(32), self.count), None)
        return self.builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), first)

    def between(self, low: Any | None, high: Any) -> Any:
        """A mask of the lanes from `low`, if that is given, to before `high`."""
        kind = ir.VectorType(WORD, self.count)
        lane = ir.Constant(kind, list(range(self.count)))
        below = self.builder.icmp_signed("<", lane, self.broadcast(high))
        if low is None:
            return below
        return self.builder.and_(self.builder.icmp_signed(">=", lane, self.broadcast(low)), below)

    def shifted(self, blocks: Sequence[Any], at: int, by: int) -> Any:
        """The vector that begins so many elements behind the first one of the block `at`."""
        if not by:
            return blocks[at]
        first = at if by > 0 else at - 1
        lanes = ir.Constant(
            ir.VectorType(ir.IntType(32), self.count), [by % self.count + n for n in range(self.count)]
        )
        return self.builder.shuffle_vector(blocks[first], blocks[first + 1], lanes)

    def load(self, place: Any, mask: Any | None) -> Any:
        """A vector from an address; zero where the mask is not, and nothing is read there."""
        pointer = self.builder.bitcast(place, self.kind.as_pointer())
        if mask is None:
            return self.builder.load(pointer, align=self.itemsize)
        align, zero = ir.Constant(ir.IntType(32), self.itemsize), ir.Constant(self.kind, None)
        return self._call("masked.load", self.kind, [pointer, align, mask, zero], ".p0")

    def store(self, value: Any, place: Any, mask: Any | None) -> None:
        """A vector to an address, where the mask is."""
        pointer = self.builder.bitcast(place, self.kind.as_pointer())
        if mask is None:
            self.builder.store(value, pointer, align=self.itemsize)
            return
        align = ir.Constant(ir.IntType(32), self.itemsize)
        self._call("masked.store", ir.VoidType(), [value, pointer, align, mask], ".p0")

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        """a * b + c, rounded once where the processor can."""
        return self._call("fmuladd", self.kind, [a, b, c])

    def function(self, name: str, value: Any) -> Any:
        """An LLVM function of each number: sqrt, fabs."""
        return self._call(name, self.kind, [value])

    def _call(self, name: str, result: ir.Type, args: Sequence[Any], places: str = "") -> Any:
        full = f"llvm.{name}.v{self.count}f{8 * self.itemsize}{places}"
        known = self.builder.module.globals.get(full)
        kind = ir.FunctionType(result, [one.type for one in args])
        function = known or ir.Function(self.builder.module, kind, full)
        return self.builder.call(function, args)


@dataclass(frozen=True)
class _State:
    """A step's position, and the vectors that the previous step has loaded for it."""

    at: Any
    held: tuple[Any, ...]

    @property
    def values(self) -> tuple[Any, ...]:
        """All of it."""
        return self.at, *self.held


@dataclass(frozen=True)
class _Bounds:
    """The number of results in a row, and True if a step may begin before the first one."""

    count: Any
    begins: bool = False


@dataclass(frozen=True)
class _Row:
    """A row's computation: its result's first address, the addresses of its operands, and its scalars.

    `called` are the names of both.

    `spans` has the least and the largest distance at which each row is read, from 0 on both ways. `ahead` are
    addresses of rows that are asked for meanwhile, and what for.
    """

    lanes: _Lanes
    results: list[tuple[ast.expr, Any]]
    called: tuple[Sequence[str], Sequence[str]]
    rows: list[Any]
    spans: list[tuple[int, int]]
    numbers: list[Any]
    ahead: list[tuple[Any, int]]

    def emit(self, count: Any, whole: Any) -> None:
        """The lanes up to the first whole vector, the whole ones, and those that are left: one vector or two."""
        builder, lanes = self.lanes.builder, self.lanes.count
        skipped = builder.udiv(
            builder.and_(whole, ir.Constant(WORD, VECTOR_BYTES - 1)),
            ir.Constant(WORD, self.lanes.itemsize),
        )
        ahead = [high - lanes for _, high in self.spans if high]
        most = builder.add(count, ir.Constant(WORD, min(ahead, default=0) - lanes))
        with builder.if_then(builder.icmp_signed(">", count, ir.Constant(WORD, 0))):
            start = builder.neg(skipped)  # so many elements before the row's first one a vector begins
            state = self._first(start, count)
            state = self._while(state, "<=", most, lambda now: self._step(now, None))
            self._while(state, "<", count, lambda now: self._step(now, _Bounds(count)))

    def _first(self, start: Any, count: Any) -> _State:
        bounds = _Bounds(count, begins=True)
        held: list[Any] = []
        for p, (low, high) in enumerate(self.spans):
            held += [self._block(p, start, -1, bounds)] if low else []
            held += [self._block(p, start, 0, bounds)] if high else []
        return self._step(_State(start, tuple(held)), bounds)

    def _while(self, state: _State, comparison: str, limit: Any, step: Callable[[_State], _State]) -> _State:
        """Steps as long as they begin where the comparison with the limit holds; the state after them."""
        builder = self.lanes.builder
        entry = builder.block
        loop, done = builder.append_basic_block("vectors"), builder.append_basic_block("done")
        builder.cbranch(builder.icmp_signed(comparison, state.at, limit), loop, done)
        builder.position_at_end(loop)
        inside = [builder.phi(value.type) for value in state.values]
        after = step(_State(inside[0], tuple(inside[1:])))
        end = builder.block
        builder.cbranch(builder.icmp_signed(comparison, after.at, limit), loop, done)
        builder.position_at_end(done)
        last = [builder.phi(value.type) for value in state.values]
        for phi, out, before, now in zip(inside, last, state.values, after.values, strict=True):
            for one in (phi, out):
                one.add_incoming(before, entry)
                one.add_incoming(now, end)
        return _State(last[0], tuple(last[1:]))

    def _step(self, state: _State, bounds: _Bounds | None) -> _State:
        """One vector of results, and what the next one needs of what was loaded; without bounds all of it is inside."""
        builder, at = self.lanes.builder, state.at
        for place, purpose in self.ahead:
            ask_for(builder, builder.add(place, self._bytes(at)), VECTOR_BYTES, purpose, NEAREST_CACHE)
        in_rows, of_numbers = self.called
        names = dict(zip(of_numbers, self.numbers, strict=True))
        held, after = list(state.held), []
        for p, (low, high) in enumerate(self.spans):
            blocks = [held.pop(0) for _ in range(bool(low) + bool(high))]
            blocks.append(self._block(p, at, bool(high), bounds))
            after += blocks[1:]
            for by in range(low, high + 1):
                names[f"{in_rows[p]}[{by}]"] = self.lanes.shifted(blocks, bool(low), by)
        mask = None if bounds is None else self._inside(at, bounds, (0, 0))
        values = [self._evaluated(value, names) for value, _ in self.results]
        for value, (_, target) in zip(values, self.results, strict=True):
            self.lanes.store(value, self._at(target, self._bytes(at)), mask)
        return _State(builder.add(at, ir.Constant(WORD, self.lanes.count)), tuple(after))

    def _block(self, row: int, at: Any, ahead: int, bounds: _Bounds | None) -> Any:
        """A vector of a row, so many vectors further than the element `at`; of what no result needs nothing is read."""
        first = self.lanes.builder.add(at, ir.Constant(WORD, ahead * self.lanes.count))
        mask = None if bounds is None else self._inside(first, bounds, self.spans[row])
        return self.lanes.load(self._at(self.rows[row], self._bytes(first)), mask)

    def _inside(self, at: Any, bounds: _Bounds, span: tuple[int, int]) -> Any:
        """The lanes of a vector that results need, when they need elements at these distances."""
        builder, (low, high) = self.lanes.builder, span
        after = builder.sub(builder.add(bounds.count, ir.Constant(WORD, high)), at)
        return self.lanes.between(builder.sub(ir.Constant(WORD, low), at) if bounds.begins else None, after)

    def _bytes(self, at: Any) -> Any:
        return self.lanes.builder.mul(at, ir.Constant(WORD, self.lanes.itemsize))

    def _at(self, place: Any, moved: Any) -> Any:
        builder = self.lanes.builder
        return builder.gep(builder.inttoptr(place, ir.IntType(8).as_pointer()), [moved])

    def _evaluated(self, node: ast.expr, names: dict[str, Any]) -> Any:
        builder = self.lanes.builder
        match node:
            case ast.Name(id=name):
                return names[name] if name in names else names[f"{name}[0]"]
            case ast.Subscript(ast.Name(id=name), by):
                return names[f"{name}[{ast.literal_eval(by)}]"]
            case ast.Constant(value=float(number)):
                return ir.Constant(self.lanes.kind, [number] * self.lanes.count)
            case ast.UnaryOp(ast.USub(), operand):
                return builder.fneg(self._evaluated(operand, names))
            case ast.BinOp(left, ast.Add() | ast.Sub() as op, ast.BinOp(a, ast.Mult(), b)):
                factor = self._evaluated(a, names)
                factor = builder.fneg(factor) if isinstance(op, ast.Sub) else factor
                return self.lanes.multiply_add(
                    factor, self._evaluated(b, names), self._evaluated(left, names)
                )
            case ast.BinOp(ast.BinOp(a, ast.Mult(), b), ast.Add(), right):
                return self.lanes.multiply_add(*(self._evaluated(part, names) for part in (a, b, right)))
            case ast.BinOp(left, op, right):
                return combined(builder, op, self._evaluated(left, names), self._evaluated(right, names))
            case ast.Call(ast.Name(id="sqrt"), [operand]):
                return self.lanes.function("sqrt", self._evaluated(operand, names))
            case ast.Call(ast.Name(id="abs"), [operand]):
                return self.lanes.function("fabs", self._evaluated(operand, names))
            case ast.Call(ast.Name(id="larger" | "smaller" as name), [a, b]):
                return extremum(builder, name, self._evaluated(a, names), self._evaluated(b, names))
        raise AssertionError(f"{ast.unparse(node)} on lanes")

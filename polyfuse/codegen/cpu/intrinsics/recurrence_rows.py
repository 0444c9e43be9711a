"""Steps of a recurrence along rows on vector lanes as one operation: squares of steps and rows in registers.

    for j: for r < 16: t[r, j] = x[r, j] + 0.5 * t[r, j - 1]
    ->  rows_abreast(row, float32, 16, steps, (address(t, …), …), (bytes from row to row, …), ())

        @VectorRow
        def row(
            t: RowElement(float32, "target"),
            x: RowElement(float32, "read"),
            up: RowElement(float32, "carried", of=0, steps=1, rows=0),
        ):
            t = x + up * float32(0.5)
            return t

    x ->  16 loads along memory, transposed  ->  step: t = x[j] + 0.5 * t before  ->  16 times  ->  transposed, stored

A vector has one step of all rows. What an earlier step computed stays in registers, also for another row: it moves
over lanes, and what no lane has comes from memory. outer_loop_vectorize.py says which loops these are.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from polyfuse.codegen.cpu.intrinsics.microkernels.tile_mac import VECTOR_BYTES, are_literals, everywhere
from polyfuse.codegen.cpu.intrinsics.transpose_tile import transposed
from polyfuse.codegen.cpu.intrinsics.vector_expression import ELEMENTS, OnVectors
from polyfuse.codegen.cpu.intrinsics.vector_row import VectorRow, VectorRowType
from polyfuse.codegen.cpu.intrinsics.vector_width import in_whole_registers

WORD, LANE = ir.IntType(64), ir.IntType(32)

TARGET, READ, STILL, LINE, NUMBER = "target", "read", "still", "line", "number"
"""Kinds of elements: stored; read, and another one for each step and row; is the same for
all steps; the same for all rows, along memory with steps; the same for all."""


CARRIED = "carried"
"""Is what an earlier step computed for a target."""


@dataclass(frozen=True)
class RowElement:
    """A parameter of a row: its type, and its movement with steps and rows.

    What is carried is target number `of` so many steps and rows before. The next step is `by` elements further along
    memory: -1 if steps go backwards; 0 if it is in another line, in which rows are neighbours.
    """

    dtype: Any
    form: str
    of: int = 0
    steps: int = 0
    rows: int = 0
    by: int = 1

    def __str__(self) -> str:
        carried = f", of={self.of}, steps={self.steps}, rows={self.rows}" if self.form == CARRIED else ""
        way = f", by={self.by}" if self.by != 1 else ""
        return f'RowElement({self.dtype}, "{self.form}"{carried}{way})'


@dataclass(frozen=True)
class Abreast:
    """An element with a name; its form is the name of the target that it is carried from, if it is."""

    name: str
    dtype: str
    form: str
    steps: int = 0
    rows: int = 0
    by: int = 1

    def annotation(self, targets: Sequence[str]) -> str:
        """The source of what a parameter of this name is annotated with."""
        if not self.steps:
            return str(RowElement(self.dtype, self.form, by=self.by))
        of = targets.index(self.form)
        return str(RowElement(self.dtype, CARRIED, of, self.steps, self.rows, self.by))


def elements_of(function: Callable[..., Any]) -> list[Abreast]:
    """The elements that the parameters of a row's function are annotated with."""
    parameters: dict[str, RowElement] = inspect.get_annotations(function, eval_str=True)
    targets = [name for name, one in parameters.items() if one.form == TARGET]
    forms = {name: targets[one.of] if one.form == CARRIED else one.form for name, one in parameters.items()}
    return [
        Abreast(name, str(one.dtype), forms[name], one.steps, one.rows, one.by)
        for name, one in parameters.items()
    ]


@intrinsic(prefer_literal=True)
def rows_abreast(
    typingctx: Any,
    row: Any,
    kind: Any,
    rows: Any,
    steps: Any,
    places: Any,
    apart: Any,
    numbers: Any,
) -> Any:
    """Run as many of `steps` steps as whole squares have, each for all `rows`, a literal and whole vectors of `kind`.

    row: a VectorRow of assignments of what `OnVectors` knows, which returns its targets.
    places: the addresses of those in memory in the first step of the first row, `apart` the bytes from row to row, or
    from step to step where rows are neighbours.
    numbers: the values of the others.
    """
    if not are_literals(rows) or not isinstance(row, VectorRowType):
        return None

    def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        found = elements_of(row.row.function)
        in_memory = [one.name for one in found if one.form != NUMBER]
        first, between = (
            {name: builder.extract_value(args[p], at) for at, name in enumerate(in_memory)} for p in (4, 5)
        )
        single = [one.name for one in found if one.form == NUMBER]
        values = {name: builder.extract_value(args[6], at) for at, name in enumerate(single)}
        lanes = VECTOR_BYTES // (kind.dtype.bitwidth // 8)
        in_whole_registers(builder.function)
        _Rows(builder, lanes, rows.literal_value, found, first, between, values).run(
            _assigned(row.row), args[3]
        )
        return context.get_dummy_value()

    return types.void(row, kind, rows, types.int64, places, apart, numbers), code


Assigned = list[tuple[str, ast.expr]]
"""The names and values of assignments."""

Lanes = list[Any]
"""One vector for each so many rows."""


def _assigned(row: VectorRow) -> Assigned:
    return [
        (ast.unparse(statement.targets[0]), statement.value)
        for statement in row.statements
        if isinstance(statement, ast.Assign)
    ]


class _Rows:
    """The code for rows that run side by side."""

    def __init__(
        self,
        builder: ir.IRBuilder,
        lanes: int,
        rows: int,
        elements: list[Abreast],
        places: Mapping[str, Any],
        apart: Mapping[str, Any],
        numbers: Mapping[str, Any],
    ) -> None:
        self.builder, self.lanes, self.rows, self.groups = builder, lanes, rows, rows // lanes
        self.elements, self.places, self.apart, self.numbers = elements, places, apart, numbers
        self.on_vectors = OnVectors(builder, lanes)
        self.itemsize = VECTOR_BYTES // lanes
        self.targets = [one for one in elements if one.form == TARGET]
        self.carried = [one for one in elements if one.steps]

    def run(self, assignments: Assigned, steps: Any) -> None:
        """Squares one after the other; what the last steps of one computed is in registers for the next."""
        builder = self.builder
        squares = builder.sdiv(steps, WORD(self.lanes))
        with builder.if_then(builder.icmp_signed(">", squares, WORD(0))):
            kept = self._kept()
            before = self._before()
            entry = builder.block
            loop, done = builder.append_basic_block("squares"), builder.append_basic_block("squared")
            builder.branch(loop)
            builder.position_at_end(loop)
            at = builder.phi(WORD)
            phis = {key: [builder.phi(value.type) for value in values] for key, values in before.items()}
            computed = self._square(assignments, at, kept, phis)
            after = builder.add(at, WORD(1))
            pairs = [(at, WORD(0), after)]
            for (name, ago), lanes in phis.items():
                pairs += zip(lanes, before[name, ago], computed[name][self.lanes - ago], strict=True)
            for phi, first, following in pairs:
                phi.add_incoming(first, entry)
                phi.add_incoming(following, builder.block)
            builder.cbranch(builder.icmp_signed("<", after, squares), loop, done)
            builder.position_at_end(done)

    def _kept(self) -> dict[str, Lanes]:
        """The values that are the same for all steps."""
        kept: dict[str, Lanes] = {}
        for one in self.elements:
            if one.form == NUMBER:
                kept[one.name] = [everywhere(self.builder, self.numbers[one.name], self.lanes)] * self.groups
            elif one.form == STILL:
                every = [self._load(one, row, WORD(0)) for row in range(self.rows)]
                kept[one.name] = [self._gathered(one.dtype, dict(enumerate(x))) for x in self._grouped(every)]
        return kept

    def _before(self) -> dict[tuple[str, int], Lanes]:
        """The targets' values in the steps before the first one, for the rows that read them."""
        found: dict[tuple[str, int], Lanes] = {}
        for target in self.targets:
            reads = [one for one in self.carried if one.form == target.name]
            for ago in range(1, max((one.steps for one in reads), default=0) + 1):
                if target.by == 0:
                    found[target.name, ago] = self._vectors(target, WORD(-ago))
                    continue
                asked = {
                    row - one.rows for one in reads if one.steps >= ago for row in range(self.rows)
                } & set(range(self.rows))
                back = WORD(-ago * target.by * self.itemsize)
                rows = [self._load(target, row, back) if row in asked else None for row in range(self.rows)]
                found[target.name, ago] = [
                    self._gathered(target.dtype, {n: x for n, x in enumerate(group) if x is not None})
                    for group in self._grouped(rows)
                ]
        return found

    def _square(
        self,
        assignments: Assigned,
        square: Any,
        kept: dict[str, Lanes],
        before: dict[tuple[str, int], Lanes],
    ) -> dict[str, list[Lanes]]:
        """As many steps as there are lanes, in one square after so many others: what each target is in each."""
        builder = self.builder
        at = builder.mul(square, WORD(VECTOR_BYTES))
        begun = builder.mul(square, WORD(self.lanes))
        loaded = {one.name: self._loaded(one, at, begun) for one in self.elements if one.form in (READ, LINE)}
        edges = {one.name: self._edges(one, at) for one in self.carried}
        computed: dict[str, list[Lanes]] = {target.name: [] for target in self.targets}
        for step in range(self.lanes):
            names = kept | {name: steps[step] for name, steps in loaded.items()}
            for one in self.carried:
                ago = step - one.steps
                source = computed[one.form][ago] if ago >= 0 else before[one.form, -ago]
                names[one.name] = self._moved(one, source, edges[one.name], step)
            for name, expression in assignments:
                names[name] = [
                    self.on_vectors.of(expression, {n: values[g] for n, values in names.items()})
                    for g in range(self.groups)
                ]
            for name, steps in computed.items():
                steps.append(names[name])
        for target in self.targets:
            if target.by == 0:
                self._store_lines(target, computed[target.name], begun)
                continue
            for group in range(self.groups):
                turned = transposed(builder, [lanes[group] for lanes in computed[target.name]])
                for lane, value in enumerate(turned):
                    place = self._line_at(target, group * self.lanes + lane, at)
                    builder.store(self._forwards(target, value), place, align=self.itemsize)
        return computed

    def _store_lines(self, target: Abreast, computed: list[Lanes], begun: Any) -> None:
        """Each step's rows, which are neighbours in a line of memory."""
        for step, lanes in enumerate(computed):
            for group, value in enumerate(lanes):
                place = self._vector_at(target, self.builder.add(begun, WORD(step)), group)
                self.builder.store(value, place, align=self.itemsize)

    def _vectors(self, one: Abreast, step: Any) -> Lanes:
        """An element of a step in all rows, which are neighbours in memory."""
        places = (self._vector_at(one, step, group) for group in range(self.groups))
        return [self.builder.load(place, align=self.itemsize) for place in places]

    def _vector_at(self, one: Abreast, step: Any, group: int) -> Any:
        """The addresses of a group's rows in a step."""
        builder = self.builder
        line = builder.add(self.places[one.name], builder.mul(self.apart[one.name], step))
        place = builder.add(line, WORD(group * VECTOR_BYTES))
        return builder.inttoptr(place, self.on_vectors.vector(one.dtype).as_pointer())

    def _loaded(self, one: Abreast, at: Any, begun: Any) -> list[Lanes]:
        """An element of each step: squares along memory, transposed; lines of rows; or one vector of all steps."""
        if one.by == 0:
            return [self._vectors(one, self.builder.add(begun, WORD(step))) for step in range(self.lanes)]
        if one.form == LINE:
            line = self._line(one, 0, at)
            return [[self._lane_everywhere(line, step)] * self.groups for step in range(self.lanes)]
        every = [self._line(one, row, at) for row in range(self.rows)]
        squares = [transposed(self.builder, group) for group in self._grouped(every)]
        return [list(lanes) for lanes in zip(*squares, strict=True)]

    def _edges(self, one: Abreast, at: Any) -> dict[int, Any]:
        """The values along steps that rows of a carried element read from memory, because no row computes them."""
        outside = (row for row in range(self.rows) if not 0 <= row - one.rows < self.rows)
        return {row: self._line(one, row, at) for row in outside}

    def _moved(self, one: Abreast, source: Lanes, edges: dict[int, Any], step: int) -> Lanes:
        """The values of an earlier step, moved to the lanes of the rows that read them."""
        if not one.rows:
            return source
        builder, moved = self.builder, []
        undefined = ir.Constant(self.on_vectors.vector(one.dtype), ir.Undefined)
        for group in range(self.groups):
            near = group - 1 if one.rows > 0 else group + 1
            other = source[near] if 0 <= near < self.groups else undefined
            mask = []
            for lane in range(self.lanes):
                by = lane - one.rows
                mask.append(by if 0 <= by < self.lanes else by % self.lanes + self.lanes)
            value = builder.shuffle_vector(
                source[group], other, ir.Constant(ir.VectorType(LANE, self.lanes), mask)
            )
            for row in (r for r in edges if r // self.lanes == group):
                number = builder.extract_element(edges[row], LANE(step))
                value = builder.insert_element(value, number, LANE(row % self.lanes))
            moved.append(value)
        return moved

    def _grouped(self, rows: list[Any]) -> list[list[Any]]:
        return [rows[g * self.lanes : (g + 1) * self.lanes] for g in range(self.groups)]

    def _place(self, one: Abreast, row: int, at: Any, kind: Any) -> Any:
        """The address of a row's element, so many bytes along memory from the first step."""
        builder = self.builder
        down = builder.mul(self.apart[one.name], WORD(row))
        place = builder.add(builder.add(self.places[one.name], down), at)
        return builder.inttoptr(place, kind.as_pointer())

    def _load(self, one: Abreast, row: int, at: Any) -> Any:
        return self.builder.load(self._place(one, row, at, ELEMENTS[one.dtype]), align=self.itemsize)

    def _line(self, one: Abreast, row: int, at: Any) -> Any:
        """As many steps of a row as there are lanes, neighbours in memory."""
        return self._forwards(one, self.builder.load(self._line_at(one, row, at), align=self.itemsize))

    def _line_at(self, one: Abreast, row: int, at: Any) -> Any:
        """The address of the first of these neighbours: the last step's if steps go backwards."""
        builder = self.builder
        if one.by < 0:
            at = builder.sub(WORD((1 - self.lanes) * self.itemsize), at)
        return self._place(one, row, at, self.on_vectors.vector(one.dtype))

    def _forwards(self, one: Abreast, line: Any) -> Any:
        """Neighbours in memory in the order of steps, or the other way."""
        if one.by > 0:
            return line
        mask = ir.Constant(ir.VectorType(LANE, self.lanes), list(reversed(range(self.lanes))))
        return self.builder.shuffle_vector(line, ir.Constant(line.type, ir.Undefined), mask)

    def _gathered(self, dtype: str, values: Mapping[int, Any]) -> Any:
        vector = ir.Constant(self.on_vectors.vector(dtype), ir.Undefined)
        for lane, value in values.items():
            vector = self.builder.insert_element(vector, value, LANE(lane))
        return vector

    def _lane_everywhere(self, vector: Any, lane: int) -> Any:
        mask = ir.Constant(ir.VectorType(LANE, self.lanes), [lane] * self.lanes)
        return self.builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), mask)

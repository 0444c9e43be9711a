"""A row of maxima, minima or sums over a few steps as one operation: its results stay in registers meanwhile.

    for m < 3: for n < 3: for l < 15: y[l] = max(y[l], a[2*k + m, 2*l + n])
    ->  reduced_row(row, float32, count=15, target=address(y, (0,)), strides=(2,), lows=(0, …), highs=(15, …),
                    places=((address(a, (2*k, 0)),), (address(a, (2*k, 1)),), …))

        @VectorRow
        def row(y, a):
            y[:] = larger(y, a)

Of every second number two vectors are loaded, and the lanes that are meant put side by side. patterns/reduced_row.py
says which loops become one, and why.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from polyfuse.codegen.cpu.intrinsics.microkernels.tile_mac import Tile, are_literals, plus
from polyfuse.codegen.cpu.intrinsics.vector_expression import OnVectors
from polyfuse.codegen.cpu.intrinsics.vector_row import VectorRowType


@intrinsic(prefer_literal=True)
def reduced_row(
    typingctx: Any,
    row: Any,
    kind: Any,
    count: Any,
    target: Any,
    strides: Any,
    lows: Any,
    highs: Any,
    places: Any,
) -> Any:
    """Run a VectorRow's assignments, whose last one is to its first parameter, for each step on a row of results.

    kind: float32 or float64, of all elements.
    count: the results, which lie side by side from the address `target` on.
    strides: for each other row that is read the elements from one result's to the next one's; literals from 1 on.
    lows, highs: for each step the first result that it changes, and the one behind the last; literals.
    places: for each step the addresses of the elements that go with the first result.
    """
    if not are_literals(count, *strides, *lows, *highs) or not isinstance(row, VectorRowType):
        return None

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        tile = Tile(builder, kind.dtype, 1, count.literal_value)
        rows = [stride.literal_value for stride in strides]
        steps = [
            _Step(
                low.literal_value,
                high.literal_value,
                [builder.extract_value(args[7], (s, p)) for p in range(len(rows))],
            )
            for s, (low, high) in enumerate(zip(lows, highs, strict=True))
        ]
        for vector in range(tile.vectors):
            _Vector(tile, vector, count.literal_value, rows).emit(row.row, args[3], steps)
        return context.get_dummy_value()

    return types.void(row, kind, count, types.int64, strides, lows, highs, places), code


@dataclass(frozen=True)
class _Step:
    """The results that a step changes, and the addresses of the elements that go with the first one."""

    low: int
    high: int
    places: list[Any]


@dataclass(frozen=True)
class _Vector:
    """One vector of results."""

    tile: Tile
    number: int
    count: int
    strides: list[int]

    def emit(self, row: Any, target: Any, steps: list[_Step]) -> None:
        """All steps on what is loaded once and stored once."""
        tile = self.tile
        result, *reads = row.parameters
        place = plus(tile.builder, target, self.number * tile.bytes)
        held = tile.load(place, self.number)
        for step in steps:
            lanes = self._lanes(step)
            if not lanes:
                continue
            loaded = zip(step.places, self.strides, strict=True)
            values = [self._loaded(at, stride, lanes) for at, stride in loaded]
            found = self._run(row.statements, dict(zip(reads, values, strict=True)) | {result: held}, result)
            held = found if len(lanes) == len(self._every) else self._chosen(lanes, found, held)
        tile.store(held, place, self.number)

    @property
    def _every(self) -> range:
        """The lanes that the vector has."""
        return range(min(self.tile.lanes, self.count - self.number * self.tile.lanes))

    def _lanes(self, step: _Step) -> range:
        """The lanes that a step changes."""
        first = self.number * self.tile.lanes
        return range(max(0, step.low - first), min(self._every.stop, step.high - first))

    def _run(self, statements: list[ast.stmt], values: Mapping[str, Any], result: str) -> Any:
        """The value that is assigned to the result."""
        known, on_vectors = dict(values), OnVectors(self.tile.builder, self.tile.lanes)
        for statement in statements:
            match statement:
                case ast.Assign([ast.Name(name) | ast.Subscript(ast.Name(name))], value):
                    known[name] = on_vectors.of(value, known)
                case _:
                    raise AssertionError(f"{ast.unparse(statement)} in a reduced row")
        return known[result]

    def _chosen(self, lanes: range, found: Any, held: Any) -> Any:
        return self.tile.builder.select(self._mask(lanes), found, held)

    def _mask(self, lanes: range) -> ir.Constant:
        return ir.Constant(self.tile.flags, [lane in lanes for lane in range(self.tile.lanes)])

    def _loaded(self, place: Any, stride: int, lanes: range) -> Any:
        """The elements that go with some lanes, so many apart: of as many vectors those that are needed of each."""
        tile = self.tile
        first = plus(tile.builder, place, self.number * tile.bytes * stride)
        needed = range(lanes.start * stride, (lanes.stop - 1) * stride + 1)
        found = ir.Constant(tile.vector, ir.Undefined)
        for v, (inside, moved) in enumerate(self._parts(stride, lanes, needed)):
            if inside:
                whole = len(inside) == tile.lanes
                mask = None if whole else self._mask(inside)
                loaded = tile.load_where(plus(tile.builder, first, v * tile.bytes), mask)
                if stride == 1:
                    return loaded
                places = ir.Constant(ir.VectorType(ir.IntType(32), tile.lanes), moved)
                found = tile.builder.shuffle_vector(found, loaded, places)
        return found

    def _parts(self, stride: int, lanes: range, needed: range) -> Iterator[tuple[range, list[int]]]:
        """For each vector of memory its lanes that are read, and where a shuffle with what is found puts them."""
        width = self.tile.lanes
        for v in range(stride):
            inside = range(max(0, needed.start - v * width), min(width, needed.stop - v * width))
            moved = [
                width + lane * stride % width if lane in lanes and lane * stride // width == v else lane
                for lane in range(width)
            ]
            yield inside, moved

"""A short row of numbers as one operation: a whole vector of each assignment, before the next one's.

    for c in range(0, 32): { z = y[r, c] + b[32*j + c]; out[i, 32*j + c] = max(z, 0) }
    ->  short_row(row, float32, 32, (address(y, (r, 0)), address(b, (32 * j,)), address(out, (i, 32 * j))), ())

        @VectorRow
        def row(y, b, out):
            z = y + b
            out[:] = larger(z, float32(0.0))

patterns/short_rows.py says which loops become one, and why.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import Any

from numba.core import types
from numba.extending import intrinsic

from polyfuse.codegen.cpu.intrinsics.microkernels.tile_mac import Tile, are_literals, plus
from polyfuse.codegen.cpu.intrinsics.vector_expression import OnVectors
from polyfuse.codegen.cpu.intrinsics.vector_row import VectorRowType


@intrinsic(prefer_literal=True)
def short_row(typingctx: Any, row: Any, kind: Any, count: Any, places: Any, numbers: Any) -> Any:
    """Run assignments for `count` elements that lie side by side, each for a whole vector before the next one.

    kind: float32 or float64, of all elements and numbers.
    row: a VectorRow of assignments: numbers, + - * /, comparisons, conditions, math.fabs, math.sqrt, larger, smaller.
    places, numbers: the arguments for its parameters. Of the elements that lie at `places` a vector is loaded where it
    is read, and stored where it is assigned, as `out[:]`; `numbers` are the same for all of the row.
    """
    if not are_literals(count) or not isinstance(row, VectorRowType):
        return None

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        tile = Tile(builder, kind.dtype, 1, count.literal_value)
        called = row.row.parameters
        first = {name: builder.extract_value(args[3], p) for p, name in enumerate(called[: len(places)])}
        spread = {
            name: tile.broadcast(builder.extract_value(args[4], p))
            for p, name in enumerate(called[len(places) :])
        }
        for vector in range(tile.vectors):
            at = {name: plus(builder, place, vector * tile.bytes) for name, place in first.items()}
            _Vector(tile, vector, at, dict(spread)).run(row.row.statements)
        return context.get_dummy_value()

    return types.void(row, kind, count, places, numbers), code


class _Vector:
    """One vector of a row: where its elements lie, and the values that have names."""

    def __init__(self, tile: Tile, number: int, places: Mapping[str, Any], values: dict[str, Any]) -> None:
        self.tile, self.number, self.places, self.values = tile, number, places, values
        self.on_vectors = OnVectors(tile.builder, tile.lanes)

    def run(self, statements: Iterable[ast.stmt]) -> None:
        """The assignments, one after the other."""
        for statement in statements:
            match statement:
                case ast.Assign([ast.Name(name) | ast.Subscript(ast.Name(name))], value):
                    loaded = {
                        part.id: self.tile.load(self.places[part.id], self.number)
                        for part in ast.walk(value)
                        if isinstance(part, ast.Name) and part.id in self.places
                    }
                    found = self.on_vectors.of(value, self.values | loaded)
                    if name in self.places:
                        self.tile.store(found, self.places[name], self.number)
                    else:
                        self.values[name] = found
                case _:
                    raise AssertionError(f"{ast.unparse(statement)} in a short row")

"""A short row of numbers as one operation: a whole vector of each assignment, before the next one's.

    for c in range(0, 32): { z = y[r, c] + b[32*j + c]; out[i, 32*j + c] = max(z, 0) }
    ->  short_row(float32, 32, 'z = y + b; out = larger(z, float32(0.0))', 'y b out',
                  (address(y, (r, 0)), address(b, (32 * j,)), address(out, (i, 32 * j))), ())

polyfuse/codegen/tile_rows.py says which loops become one, and why.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from polyfuse.codegen.extrema import extremum
from polyfuse.codegen.lane_rows import combined
from polyfuse.codegen.tiles import Tile, are_literals, plus

FUNCTIONS = ("fabs", "sqrt")
"""Functions of Python's `math` that are one operation of LLVM on vectors."""

ORDERS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
}
"""Comparisons that do not hold where one side is no number; != does."""


@intrinsic(prefer_literal=True)
def short_row(typingctx: Any, kind: Any, count: Any, body: Any, names: Any, places: Any, numbers: Any) -> Any:
    """Run assignments for `count` elements that lie side by side, each for a whole vector before the next one.

    kind: float32 or float64, of all elements and numbers.
    body: a literal, with "; " between assignments: numbers, + - * /, comparisons, conditions,
    math.fabs, math.sqrt, larger and smaller.
    names: a literal, what the body calls the elements at the addresses `places`, of which a vector is loaded where it
    is read and stored where it is assigned, and then `numbers`, the same for all of the row. Other names are variables.
    """
    if not are_literals(count) or not isinstance(body, types.Literal) or not isinstance(names, types.Literal):
        return None

    def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        tile = Tile(builder, kind.dtype, 1, count.literal_value)
        called = names.literal_value.split()
        first = {name: builder.extract_value(args[4], p) for p, name in enumerate(called[: len(places)])}
        spread = {
            name: tile.broadcast(builder.extract_value(args[5], p))
            for p, name in enumerate(called[len(places) :])
        }
        for vector in range(tile.vectors):
            at = {name: plus(builder, place, vector * tile.bytes) for name, place in first.items()}
            _Vector(tile, vector, at, dict(spread)).run(ast.parse(body.literal_value).body)
        return context.get_dummy_value()

    return types.void(kind, count, body, names, places, numbers), code


class _Vector:
    """One vector of a row: where its elements lie, and the values that have names."""

    def __init__(self, tile: Tile, number: int, places: Mapping[str, Any], values: dict[str, Any]) -> None:
        self.tile, self.number, self.places, self.values = tile, number, places, values
        self.builder = tile.builder

    def run(self, statements: Iterable[ast.stmt]) -> None:
        """The assignments, one after the other."""
        for statement in statements:
            match statement:
                case ast.Assign([ast.Name(name)], value):
                    found = self.of(value)
                    if name in self.places:
                        self.tile.store(found, self.places[name], self.number)
                    else:
                        self.values[name] = found
                case _:
                    raise AssertionError(f"{ast.unparse(statement)} in a short row")

    def of(self, node: ast.expr) -> Any:
        """The value of an expression: a vector of numbers, or of flags."""
        builder = self.builder
        match node:
            case ast.Name(name):
                return (
                    self.tile.load(self.places[name], self.number)
                    if name in self.places
                    else self.values[name]
                )
            case ast.Constant(value=float(number)):
                return self._constant(number)
            case ast.Attribute(ast.Name("math"), "inf"):
                return self._constant(float("inf"))
            case ast.Call(ast.Name("float32" | "float64"), [operand]):
                return self.of(operand)
            case ast.Call(ast.Attribute(ast.Name("math"), name), [operand]):
                return self.tile.function(name, self.of(operand))
            case ast.Call(ast.Name("larger" | "smaller" as name), [a, b]):
                return extremum(builder, name, self.of(a), self.of(b))
            case ast.BinOp(left, op, right):
                return combined(builder, op, self.of(left), self.of(right))
            case ast.UnaryOp(ast.USub(), operand):
                return builder.fneg(self.of(operand))
            case ast.UnaryOp(ast.Not(), operand):
                return builder.not_(self.of(operand))
            case ast.Compare(left, [ast.NotEq()], [right]):
                return builder.fcmp_unordered("!=", self.of(left), self.of(right))
            case ast.Compare(left, [op], [right]):
                return builder.fcmp_ordered(ORDERS[type(op)], self.of(left), self.of(right))
            case ast.BoolOp(op, parts):
                join = builder.and_ if isinstance(op, ast.And) else builder.or_
                return reduce(join, map(self.of, parts))
            case ast.IfExp(test, yes, no):
                return builder.select(self.of(test), self.of(yes), self.of(no))
        raise AssertionError(f"{ast.unparse(node)} in a short row")

    def _constant(self, number: float) -> Any:
        return ir.Constant(self.tile.vector, [number] * self.tile.lanes)


def is_known(node: ast.AST) -> bool:
    """Whether `short_row` has all operations of a statement or an expression."""
    match node:
        case ast.Assign([ast.Name()], value):
            return is_known(value)
        case ast.Name() | ast.Constant(value=float()):
            return True
        case ast.Attribute(ast.Name("math"), "inf"):
            return True
        case ast.Call(ast.Name("float32" | "float64"), [number]):
            return not isinstance(number, ast.Name) and is_known(number)
        case ast.Call(ast.Attribute(ast.Name("math"), name), [operand]):
            return name in FUNCTIONS and is_known(operand)
        case ast.Call(ast.Name("larger" | "smaller"), [a, b]):
            return is_known(a) and is_known(b)
        case ast.BinOp(left, ast.Add() | ast.Sub() | ast.Mult() | ast.Div(), right):
            return is_known(left) and is_known(right)
        case ast.UnaryOp(ast.USub() | ast.Not(), operand):
            return is_known(operand)
        case ast.Compare(left, [_], [right]):
            return is_known(left) and is_known(right)
        case ast.BoolOp(_, parts):
            return all(map(is_known, parts))
        case ast.IfExp(test, yes, no):
            return is_known(test) and is_known(yes) and is_known(no)
    return False

"""Expressions of emitted source on LLVM vectors: which are known, of what type they are, and their values.

    value0 <= float32(0.0)   ->   fcmp ole <16 x float>          x + y of int32   ->   add <16 x i32>

Nothing is converted: both sides of an operation have one type, but for what a number takes from the function around it.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import reduce
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from polyfuse.codegen.cpu.intrinsics.extrema import extremum
from polyfuse.codegen.cpu.intrinsics.row_operation import combined
from polyfuse.codegen.looptree.body_source import literal

FUNCTIONS = ("fabs", "sqrt")
"""Functions of Python's `math` that are one operation of LLVM on vectors."""

FLAG = "flag"
"""The type of a comparison."""

ELEMENTS: Mapping[str, ir.Type] = {
    "float32": ir.FloatType(),
    "float64": ir.DoubleType(),
    "int32": ir.IntType(32),
    "int64": ir.IntType(64),
}
"""The LLVM types of these elements."""

_ORDERS: Mapping[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}
"""Comparisons; of two numbers one of which is none only != holds."""


def type_on_vectors(node: ast.expr, names: Mapping[str, str]) -> str | None:
    """The type of an expression whose names have these types: float32, …, or FLAG; None if it is not known here."""

    def of(part: ast.expr) -> str | None:
        return type_on_vectors(part, names)

    def same(*parts: ast.expr) -> str | None:
        found = {of(part) for part in parts}
        return found.pop() if len(found) == 1 else None

    match node:
        case ast.Name(name):
            return names.get(name)
        case ast.Call(ast.Name(dtype), [operand]) if dtype in ELEMENTS:
            return dtype if literal(operand) is not None or of(operand) == dtype else None
        case ast.Call(ast.Attribute(ast.Name("math"), name), [operand]):
            return _float(of(operand)) if name in FUNCTIONS else None
        case ast.Call(ast.Name("larger" | "smaller"), [a, b]):
            return _float(same(a, b))
        case ast.Constant(value=int()):
            return "int64"
        case ast.BinOp(left, ast.Add() | ast.Sub() | ast.Mult(), right):
            return _arithmetic(same(left, right))
        case ast.BinOp(left, ast.Div(), right):
            return _float(same(left, right))
        case ast.UnaryOp(ast.USub(), operand):
            return _arithmetic(of(operand))
        case ast.UnaryOp(ast.Not(), operand):
            return FLAG if of(operand) == FLAG else None
        case ast.Compare(left, [_], [right]):
            return FLAG if _arithmetic(same(left, right)) else None
        case ast.BoolOp(_, parts):
            return FLAG if same(*parts) == FLAG else None
        case ast.IfExp(test, yes, no):
            return _arithmetic(same(yes, no)) if of(test) == FLAG else None
    return None


def are_on_vectors(statements: list[ast.stmt], names: Mapping[str, str]) -> bool:
    """True if assignments to names are known here, each of its name's type; other names take their values'."""
    known = dict(names)
    for statement in statements:
        match statement:
            case ast.Assign([ast.Name(name)], value):
                found = type_on_vectors(value, known)
                if _arithmetic(found) is None or known.setdefault(name, str(found)) != found:
                    return False
            case _:
                return False
    return True


class OnVectors:
    """The values of expressions whose names stand for vectors of so many lanes."""

    def __init__(self, builder: ir.IRBuilder, lanes: int) -> None:
        self.builder, self.lanes = builder, lanes

    def vector(self, dtype: str) -> ir.VectorType:
        """Vectors of a type's elements."""
        return ir.VectorType(ELEMENTS[dtype], self.lanes)

    def of(self, node: ast.expr, names: Mapping[str, Any]) -> Any:
        """The value of an expression: a vector of numbers, or of flags."""
        builder = self.builder

        def inner(part: ast.expr) -> Any:
            return self.of(part, names)

        match node:
            case ast.Name(name):
                return names[name]
            case ast.Call(ast.Name(dtype), [operand]) if dtype in ELEMENTS:
                number = literal(operand)
                return inner(operand) if number is None else self._constant(dtype, number)
            case ast.Constant(value=int(number)):
                return self._constant("int64", number)
            case ast.Call(ast.Attribute(ast.Name("math"), name), [operand]):
                return self._function(name, inner(operand))
            case ast.Call(ast.Name("larger" | "smaller" as name), [a, b]):
                return extremum(builder, name, inner(a), inner(b))
            case ast.BinOp(left, op, right):
                return self._combined(op, inner(left), inner(right))
            case ast.UnaryOp(ast.USub(), operand):
                value = inner(operand)
                return builder.neg(value) if _is_integer(value) else builder.fneg(value)
            case ast.UnaryOp(ast.Not(), operand):
                return builder.not_(inner(operand))
            case ast.Compare(left, [op], [right]):
                return self._compared(op, inner(left), inner(right))
            case ast.BoolOp(op, parts):
                join = builder.and_ if isinstance(op, ast.And) else builder.or_
                return reduce(join, map(inner, parts))
            case ast.IfExp(test, yes, no):
                return builder.select(inner(test), inner(yes), inner(no))
        raise AssertionError(f"{ast.unparse(node)} on vectors")

    def _constant(self, dtype: str, number: float) -> Any:
        return ir.Constant(self.vector(dtype), [number] * self.lanes)

    def _combined(self, op: ast.operator, left: Any, right: Any) -> Any:
        if not _is_integer(left):
            return combined(self.builder, op, left, right)
        emit = {ast.Add: self.builder.add, ast.Sub: self.builder.sub, ast.Mult: self.builder.mul}
        return emit[type(op)](left, right)

    def _compared(self, op: ast.cmpop, left: Any, right: Any) -> Any:
        if _is_integer(left):
            return self.builder.icmp_signed(_ORDERS[type(op)], left, right)
        compare = self.builder.fcmp_unordered if isinstance(op, ast.NotEq) else self.builder.fcmp_ordered
        return compare(_ORDERS[type(op)], left, right)

    def _function(self, name: str, value: Any) -> Any:
        bits = 32 if isinstance(value.type.element, ir.FloatType) else 64
        kind = ir.FunctionType(value.type, [value.type])
        full = f"llvm.{name}.v{self.lanes}f{bits}"
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, kind, full), [value])


def _is_integer(value: Any) -> bool:
    return isinstance(value.type.element, ir.IntType)


def _float(dtype: str | None) -> str | None:
    return dtype if dtype in ("float32", "float64") else None


def _arithmetic(dtype: str | None) -> str | None:
    return dtype if dtype in ELEMENTS else None

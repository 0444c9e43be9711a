"""Bodies as Python's own syntax trees, for printing and for generated code."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sympy
from sympy.core.relational import Relational

from polyfuse.ir.number_types import Type, is_number, joined, no_integer
from polyfuse.ir.scalar import (
    NAMES,
    BitAnd,
    BitOr,
    BitXor,
    FloorDiv,
    LeftShift,
    Maximum,
    Minimum,
    Modulo,
    OfIntegers,
    RightShift,
    Select,
    Tf32,
)

COMPARISONS: dict[type[sympy.Basic], type[ast.cmpop]] = {
    sympy.StrictGreaterThan: ast.Gt,
    sympy.GreaterThan: ast.GtE,
    sympy.StrictLessThan: ast.Lt,
    sympy.LessThan: ast.LtE,
    sympy.Equality: ast.Eq,
    sympy.Unequality: ast.NotEq,
}

OPERATORS: dict[type[OfIntegers], type[ast.operator]] = {
    FloorDiv: ast.FloorDiv,
    Modulo: ast.Mod,
    LeftShift: ast.LShift,
    RightShift: ast.RShift,
    BitAnd: ast.BitAnd,
    BitOr: ast.BitOr,
    BitXor: ast.BitXor,
}


def _as_written(operator: ast.operator, left: ast.expr, right: ast.expr, dtype: Type) -> ast.expr:
    return ast.BinOp(left, operator, right)


@dataclass(frozen=True)
class Dialect:
    """The differences between printers of bodies: leaves, numbers, function calls, types.

    `type_of` says what type a part of a body has. `number` is told the type of the operation that a number is in,
    `call` that of its arguments. `kept` makes what was computed a value of a type, and `converted` what has one type a
    value of another. To a printer without types all are numbers. `integers` prints an operation on two integers.
    """

    leaf: Callable[[sympy.Symbol], ast.expr]
    number: Callable[[float, Type], ast.expr]
    call: Callable[[str, list[ast.expr], Type], ast.expr]
    type_of: Callable[[sympy.Basic], Type] = lambda body: "integer"
    kept: Callable[[ast.expr, Type], ast.expr] = lambda computed, dtype: computed
    converted: Callable[[ast.expr, Type, Type], ast.expr] = lambda value, dtype, wanted: value
    integers: Callable[[ast.operator, ast.expr, ast.expr, Type], ast.expr] = _as_written


def call(name: str, args: list[ast.expr]) -> ast.expr:
    """`name(args)`; a dotted name becomes attribute access."""
    function: ast.expr = ast.Name(name.split(".")[0])
    for part in name.split(".")[1:]:
        function = ast.Attribute(function, part)
    return ast.Call(function, args, [])


def to_ast(body: sympy.Basic, dialect: Dialect, meets: Type = "integer") -> ast.expr:
    """A body as a Python expression, operation by operation in the order it stands, for a place of type `meets`."""
    match body:
        case sympy.Symbol():
            return dialect.leaf(body)
        case sympy.Add():
            return _sum(body, dialect, meets)
        case sympy.Mul():
            return _product(body, dialect, meets)
        case sympy.Pow():
            return _power(body, dialect, meets)
        case Relational():
            dtype = _joined(body.args, dialect, meets="integer")
            left, right = (to_ast(arg, dialect, dtype) for arg in body.args)
            return ast.Compare(left, [COMPARISONS[type(body)]()], [right])
        case sympy.And() | sympy.Or():
            joiner = ast.And() if isinstance(body, sympy.And) else ast.Or()
            return ast.BoolOp(joiner, [to_ast(arg, dialect) for arg in body.args])
        case sympy.Not():
            return ast.UnaryOp(ast.Not(), to_ast(body.args[0], dialect))
        case Select():
            return _call(body.args[1:], dialect, meets, "where", [to_ast(body.args[0], dialect)])
        case OfIntegers():
            return _of_integers(body, dialect, meets)
        case sympy.Function():
            return _call(body.args, dialect, meets, _function_name(body))
        case _ if body.is_number:
            return dialect.number(int(body) if body.is_Integer else float(body), meets)
    raise TypeError(f"no Python expression for {type(body).__name__} in {body}")


def _function_name(body: sympy.Function) -> str:
    return {**NAMES, Maximum: "max", Minimum: "min", Tf32: "tf32", sympy.Abs: "abs"}[type(body)]


def _of_integers(body: OfIntegers, dialect: Dialect, meets: Type) -> ast.expr:
    dtype = _joined(body.args, dialect, meets)
    left, right = (to_ast(arg, dialect, dtype) for arg in body.args)
    return dialect.integers(OPERATORS[type(body)](), left, right, dtype)


def _joined(operands: Sequence[sympy.Basic], dialect: Dialect, meets: Type) -> Type:
    """The type of an operation: its operands', or what it meets where these are numbers."""
    dtype = joined([dialect.type_of(operand) for operand in operands])
    return joined([dtype, meets]) if is_number(dtype) else dtype


def _call(
    operands: Sequence[sympy.Basic], dialect: Dialect, meets: Type, name: str, before: Sequence[ast.expr] = ()
) -> ast.expr:
    """A function of operands, which get one type, and of what stands before them."""
    dtype = _joined(operands, dialect, meets)
    args = [dialect.converted(to_ast(one, dialect, dtype), dialect.type_of(one), dtype) for one in operands]
    return dialect.kept(dialect.call(name, [*before, *args], dtype), dtype)


def _first(operands: Sequence[sympy.Basic], dialect: Dialect, meets: Type) -> Type:
    """The type that a chain of operations begins with: a number has that of the first operand that is none."""
    first, *rest = (dialect.type_of(operand) for operand in operands)
    return joined([first, next((t for t in rest if not is_number(t)), meets)]) if is_number(first) else first


def _sum(body: sympy.Add, dialect: Dialect, meets: Type) -> ast.expr:
    first, *rest = body.args
    dtype = _first(body.args, dialect, meets)
    result = to_ast(first, dialect, dtype)
    for term in rest:
        negated = isinstance(term, sympy.Mul) and len(term.args) == 2 and term.args[0] == -1
        operator, operand = (ast.Sub(), term.args[1]) if negated else (ast.Add(), term)
        dtype = joined([dtype, dialect.type_of(operand)])
        result = ast.BinOp(result, operator, to_ast(operand, dialect, dtype))
    return dialect.kept(result, dtype)


def _product(body: sympy.Mul, dialect: Dialect, meets: Type) -> ast.expr:
    """Factors from left to right; after the first, b ** -1 is one division by b."""
    first, *rest = body.args
    dtype = _first(body.args, dialect, meets)
    if first == -1 and len(rest) == 1:
        return dialect.kept(ast.UnaryOp(ast.USub(), to_ast(rest[0], dialect, dtype)), dtype)
    result = to_ast(first, dialect, dtype)
    for factor in rest:
        inverse = isinstance(factor, sympy.Pow) and factor.args[1] == -1
        operator, operand = (ast.Div(), factor.args[0]) if inverse else (ast.Mult(), factor)
        dtype = joined([dtype, dialect.type_of(operand)])
        dtype = no_integer(dtype) if inverse else dtype
        result = ast.BinOp(result, operator, to_ast(operand, dialect, dtype))
    return dialect.kept(result, dtype)


def _power(body: sympy.Pow, dialect: Dialect, meets: Type) -> ast.expr:
    base, exponent = body.args
    if exponent == -1:
        dtype = no_integer(_joined([base], dialect, meets))
        return ast.BinOp(dialect.number(1.0, dtype), ast.Div(), to_ast(base, dialect, dtype))
    if exponent == sympy.Rational(1, 2):
        dtype = no_integer(_joined([base], dialect, meets))
        return dialect.call("sqrt", [to_ast(base, dialect, dtype)], dtype)
    return _call(body.args, dialect, meets, "pow")

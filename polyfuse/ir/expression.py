"""Bodies as Python's own syntax trees, for printing and for generated code."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

import sympy
from sympy.core.relational import Relational

from polyfuse.ir.scalar import Maximum, Minimum, Select, Tf32

COMPARISONS: dict[type[sympy.Basic], type[ast.cmpop]] = {
    sympy.StrictGreaterThan: ast.Gt,
    sympy.GreaterThan: ast.GtE,
    sympy.StrictLessThan: ast.Lt,
    sympy.LessThan: ast.LtE,
    sympy.Equality: ast.Eq,
    sympy.Unequality: ast.NotEq,
}


@dataclass(frozen=True)
class Dialect:
    """What differs from one printer of bodies to the next: leaves, numbers, function calls."""

    leaf: Callable[[sympy.Symbol], ast.expr]
    number: Callable[[float], ast.expr]
    call: Callable[[str, list[ast.expr]], ast.expr]


def call(name: str, args: list[ast.expr]) -> ast.expr:
    """`name(args)`; a dotted name becomes attribute access."""
    function: ast.expr = ast.Name(name.split(".")[0])
    for part in name.split(".")[1:]:
        function = ast.Attribute(function, part)
    return ast.Call(function, args, [])


def to_ast(body: sympy.Basic, dialect: Dialect) -> ast.expr:
    """A body as a Python expression, operation by operation in the order it stands."""
    match body:
        case sympy.Symbol():
            return dialect.leaf(body)
        case sympy.Add():
            return _sum(body, dialect)
        case sympy.Mul():
            return _product(body, dialect)
        case sympy.Pow():
            return _power(body, dialect)
        case Relational():
            left, right = (to_ast(arg, dialect) for arg in body.args)
            return ast.Compare(left, [COMPARISONS[type(body)]()], [right])
        case sympy.And() | sympy.Or():
            joiner = ast.And() if isinstance(body, sympy.And) else ast.Or()
            return ast.BoolOp(joiner, [to_ast(arg, dialect) for arg in body.args])
        case sympy.Not():
            return ast.UnaryOp(ast.Not(), to_ast(body.args[0], dialect))
        case sympy.Function():
            return dialect.call(_function_name(body), [to_ast(arg, dialect) for arg in body.args])
        case _ if body.is_number:
            return dialect.number(int(body) if body.is_Integer else float(body))
    raise TypeError(f"no Python expression for {type(body).__name__} in {body}")


def _function_name(body: sympy.Function) -> str:
    names = {Maximum: "max", Minimum: "min", Select: "where", Tf32: "tf32", sympy.Abs: "abs"}
    return names.get(type(body), type(body).__name__)


def _sum(body: sympy.Add, dialect: Dialect) -> ast.expr:
    first, *rest = body.args
    result = to_ast(first, dialect)
    for term in rest:
        negated = isinstance(term, sympy.Mul) and len(term.args) == 2 and term.args[0] == -1
        operator, operand = (ast.Sub(), term.args[1]) if negated else (ast.Add(), term)
        result = ast.BinOp(result, operator, to_ast(operand, dialect))
    return result


def _product(body: sympy.Mul, dialect: Dialect) -> ast.expr:
    first, *rest = body.args
    if first == -1 and len(rest) == 1:
        return ast.UnaryOp(ast.USub(), to_ast(rest[0], dialect))
    result = to_ast(first, dialect)
    for factor in rest:
        inverse = isinstance(factor, sympy.Pow) and factor.args[1] == -1
        operator, operand = (ast.Div(), factor.args[0]) if inverse else (ast.Mult(), factor)
        result = ast.BinOp(result, operator, to_ast(operand, dialect))
    return result


def _power(body: sympy.Pow, dialect: Dialect) -> ast.expr:
    base, exponent = body.args
    if exponent == -1:
        return ast.BinOp(dialect.number(1.0), ast.Div(), to_ast(base, dialect))
    if exponent == sympy.Rational(1, 2):
        return dialect.call("sqrt", [to_ast(base, dialect)])
    return dialect.call("pow", [to_ast(base, dialect), to_ast(exponent, dialect)])

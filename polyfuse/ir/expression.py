"""Bodies as Python's own syntax trees, for printing and for generated code."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sympy
from sympy.core.relational import Relational

from polyfuse.ir.number_types import Type, computed_real, has, is_integer, is_number, joined, quotient_type
from polyfuse.ir.scalar import (
    NAMES,
    AsType,
    BitAnd,
    BitOr,
    BitXor,
    FloorDiv,
    LeftShift,
    Maximum,
    Minimum,
    Modulo,
    OfIntegers,
    Read,
    RightShift,
    Select,
    Tf32,
    whole_number,
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
    """The differences between printers of bodies: leaves (an `index` as an integer), numbers, function calls, types.

    `type_of` says what type a part of a body has. `number` is told the type of the operation that a number is in,
    `call` that of its arguments. `kept` makes what was computed a value of a type, and `converted` what has one type a
    value of another. `operand` makes one that an operator can take with others of a type, `cast` is a conversion that
    the body asks for. To a printer without types all are numbers. `integers` prints an operation on two integers.
    """

    leaf: Callable[[sympy.Symbol], ast.expr]
    number: Callable[[float, Type], ast.expr]
    call: Callable[[str, list[ast.expr], Type], ast.expr]
    type_of: Callable[[sympy.Basic], Type] = lambda body: "integer"
    kept: Callable[[ast.expr, Type], ast.expr] = lambda computed, dtype: computed
    converted: Callable[[ast.expr, Type, Type], ast.expr] = lambda value, dtype, wanted: value
    integers: Callable[[ast.operator, ast.expr, ast.expr, Type], ast.expr] = _as_written
    operand: Callable[[ast.expr, Type, Type], ast.expr] = lambda value, dtype, wanted: value
    cast: Callable[[ast.expr, Type, Type], ast.expr] = lambda value, dtype, wanted: call(wanted, [value])
    index: Callable[[sympy.Symbol], ast.expr] = lambda symbol: ast.Name(symbol.name)


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
            return _comparison(body, dialect)
        case sympy.And() | sympy.Or():
            joiner = ast.And() if isinstance(body, sympy.And) else ast.Or()
            return ast.BoolOp(joiner, [to_ast(arg, dialect) for arg in body.args])
        case sympy.Not():
            return ast.UnaryOp(ast.Not(), to_ast(body.args[0], dialect))
        case Select():
            return _call(body.args[1:], dialect, meets, "where", [to_ast(body.args[0], dialect)])
        case OfIntegers():
            return _of_integers(body, dialect, meets)
        case AsType(args=(sympy.Symbol() as index,)) if not isinstance(index, Read):
            return dialect.cast(dialect.index(index), "int64", body.dtype)
        case AsType():
            own = dialect.type_of(body.args[0])
            return dialect.cast(to_ast(body.args[0], dialect, own), own, body.dtype)
        case sympy.Function():
            real = type(body) in NAMES and not isinstance(body, sympy.floor | sympy.ceiling)
            return _call(body.args, dialect, meets, _function_name(body), real=real)
        case _ if body.is_number:
            return dialect.number(int(body) if body.is_Integer else float(body), meets)
    raise TypeError(f"no Python expression for {type(body).__name__} in {body}")


def _function_name(body: sympy.Function) -> str:
    return {**NAMES, Maximum: "max", Minimum: "min", Tf32: "tf32", sympy.Abs: "abs"}[type(body)]


def _comparison(body: Relational, dialect: Dialect) -> ast.expr:
    """A comparison. Integers that the other side's type does not have are compared as they are."""
    types = [dialect.type_of(arg) for arg in body.args]
    dtype = joined(types)
    operator = COMPARISONS[type(body)]()
    if types[0] == "bool" and body.args[1] == 0 and isinstance(operator, ast.Eq | ast.NotEq):
        held = to_ast(body.args[0], dialect)
        return held if isinstance(operator, ast.NotEq) else ast.UnaryOp(ast.Not(), held)
    sides = []
    for arg, own in zip(body.args, types, strict=True):
        value = whole_number(arg) if is_integer(dtype) and not is_number(dtype) else None
        beyond = value is not None and not has(dtype, value)
        side = to_ast(arg, dialect, "integer" if beyond else dtype)
        sides.append(dialect.operand(side, own, dtype) if own == "bool" else side)
    return ast.Compare(sides[0], [operator], [sides[1]])


def _of_integers(body: OfIntegers, dialect: Dialect, meets: Type) -> ast.expr:
    dtype = _joined(body.args, dialect, meets)
    left, right = (
        dialect.operand(to_ast(arg, dialect, dtype), dialect.type_of(arg), dtype) for arg in body.args
    )
    return dialect.integers(OPERATORS[type(body)](), left, right, dtype)


def _joined(operands: Sequence[sympy.Basic], dialect: Dialect, meets: Type) -> Type:
    """The type of an operation: its operands', or what it meets where these are numbers."""
    dtype = joined([dialect.type_of(operand) for operand in operands])
    return joined([dtype, meets]) if is_number(dtype) else dtype


def _call(
    operands: Sequence[sympy.Basic],
    dialect: Dialect,
    meets: Type,
    name: str,
    before: Sequence[ast.expr] = (),
    real: bool = False,
) -> ast.expr:
    """A function of operands, which get one type (a `real` one a float's), and of what stands before them."""
    dtype = _joined(operands, dialect, meets)
    dtype = computed_real(dtype) if real and not is_number(dtype) else dtype
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
        before, own = dtype, dialect.type_of(operand)
        dtype = joined([dtype, own])
        left, right = (
            dialect.operand(result, before, dtype),
            dialect.operand(to_ast(operand, dialect, dtype), own, dtype),
        )
        truth = dtype == "bool"  # NumPy's sum of truth values is one
        result = ast.BoolOp(ast.Or(), [left, right]) if truth else ast.BinOp(left, operator, right)
    return dialect.kept(result, dtype)


def _product(body: sympy.Mul, dialect: Dialect, meets: Type) -> ast.expr:
    """Factors from left to right; after the first, b ** -1 is one division by b."""
    first, *rest = body.args
    dtype = _first(body.args, dialect, meets)
    if first == -1 and len(rest) == 1:
        value = dialect.operand(to_ast(rest[0], dialect, dtype), dialect.type_of(rest[0]), dtype)
        return dialect.kept(ast.UnaryOp(ast.USub(), value), dtype)
    result = to_ast(first, dialect, dtype)
    for factor in rest:
        inverse = isinstance(factor, sympy.Pow) and factor.args[1] == -1
        operator, operand = (ast.Div(), factor.args[0]) if inverse else (ast.Mult(), factor)
        before, own = dtype, dialect.type_of(operand)
        dtype = joined([dtype, own])
        dtype = quotient_type(dtype) if inverse else dtype
        left, right = (
            dialect.operand(result, before, dtype),
            dialect.operand(to_ast(operand, dialect, dtype), own, dtype),
        )
        truth = dtype == "bool"  # NumPy's product of truth values is one
        result = ast.BoolOp(ast.And(), [left, right]) if truth else ast.BinOp(left, operator, right)
    return dialect.kept(result, dtype)


def _power(body: sympy.Pow, dialect: Dialect, meets: Type) -> ast.expr:
    base, exponent = body.args
    if exponent == -1:
        dtype = quotient_type(_joined([base], dialect, meets))
        divisor = dialect.operand(to_ast(base, dialect, dtype), dialect.type_of(base), dtype)
        return ast.BinOp(dialect.number(1.0, dtype), ast.Div(), divisor)
    if exponent == sympy.Rational(1, 2):
        return _call([base], dialect, meets, "sqrt", real=True)
    return _call(body.args, dialect, meets, "pow")

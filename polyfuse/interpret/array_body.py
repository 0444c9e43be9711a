"""Scalar bodies as functions of arrays, operation by operation in the order they stand."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np
import sympy

from polyfuse.ir.precision import rounded
from polyfuse.ir.scalar import (
    BitAnd,
    BitOr,
    BitXor,
    Expm1,
    FloorDiv,
    LeftShift,
    Log1p,
    Log2,
    Log10,
    Maximum,
    Minimum,
    Modulo,
    RightShift,
    Select,
    Tf32,
)

Leaves = Sequence[Any]
Function = Callable[[Leaves], Any]
"""From the values of the leaves (arrays or scalars, by position) to the body's value."""

_erf = np.frompyfunc(math.erf, 1, 1)


def erf(x: Any) -> Any:
    """The error function, in double precision, rounded to the argument's type."""
    return np.asarray(_erf(x)).astype(np.result_type(x))


CALLS: Mapping[type[sympy.Basic], Callable[..., Any]] = {
    Maximum: np.maximum,
    Minimum: np.minimum,
    Select: np.where,
    Tf32: partial(rounded, "tf32"),
    sympy.Abs: np.abs,
    sympy.exp: np.exp,
    sympy.log: np.log,
    sympy.tanh: np.tanh,
    sympy.sin: np.sin,
    sympy.cos: np.cos,
    sympy.erf: erf,
    sympy.tan: np.tan,
    sympy.asin: np.arcsin,
    sympy.acos: np.arccos,
    sympy.atan: np.arctan,
    sympy.sinh: np.sinh,
    sympy.cosh: np.cosh,
    sympy.asinh: np.arcsinh,
    sympy.acosh: np.arccosh,
    sympy.atanh: np.arctanh,
    sympy.floor: np.floor,
    sympy.ceiling: np.ceil,
    Expm1: np.expm1,
    Log1p: np.log1p,
    Log2: np.log2,
    Log10: np.log10,
    FloorDiv: np.floor_divide,
    Modulo: np.remainder,
    LeftShift: np.left_shift,
    RightShift: np.right_shift,
    BitAnd: np.bitwise_and,
    BitOr: np.bitwise_or,
    BitXor: np.bitwise_xor,
    sympy.StrictGreaterThan: np.greater,
    sympy.GreaterThan: np.greater_equal,
    sympy.StrictLessThan: np.less,
    sympy.LessThan: np.less_equal,
    sympy.Equality: np.equal,
    sympy.Unequality: np.not_equal,
    sympy.Not: np.logical_not,
}


def function_of(body: sympy.Basic, positions: Mapping[str, int]) -> Function:
    """The body as a function of its leaves, which `positions` numbers by name.

    A part without leaves is a plain number: it takes the type of what it meets, as a literal does in NumPy.
    """
    if isinstance(body, sympy.Symbol):
        return operator.itemgetter(positions[body.name])
    if not body.args:
        return _literal(_number(body))
    chosen = _chosen_number(body)
    made = function_of(chosen, positions) if chosen is not None else _operation(body, positions)
    if body.free_symbols:
        return made
    value = made(())
    return _literal(value.item() if isinstance(value, np.generic | np.ndarray) else value)


def _chosen_number(body: sympy.Basic) -> Select | None:
    """Distribute an operation over a selection between numbers, which take the type of the other operand.

    x * (2 if c else 3)   ->   x * 2 if c else x * 3          x / (2 if c else 3)   ->   x / 2 if c else x / 3
    """
    if _is_number(body) or not body.has(Select):
        return None
    for n, part in enumerate(body.args):
        number = part if isinstance(part, Select) else _chosen_number(part)
        if number is not None and _is_number(number):
            test, *values = number.args
            return Select(test, *(_with(body, n, value) for value in values))
    return None


def _is_number(body: sympy.Basic) -> bool:
    chosen = isinstance(body, Select) and all(map(_is_number, body.args[1:]))
    return chosen or not body.free_symbols


def _with(body: sympy.Basic, n: int, part: sympy.Basic) -> sympy.Basic:
    return body.func(*body.args[:n], part, *body.args[n + 1 :], evaluate=False)


def _literal(value: Any) -> Function:
    return lambda leaves: value


def _number(body: sympy.Basic) -> Any:
    if body in (sympy.true, sympy.false):
        return bool(body)
    return int(body) if body.is_Integer else float(body)


def _operation(body: sympy.Basic, positions: Mapping[str, int]) -> Function:
    match body:
        case sympy.Add():
            return _chain(operator.add, body.args, positions)
        case sympy.Mul():
            return _product(body, positions)
        case sympy.Pow():
            return _power(body, positions)
        case sympy.And():
            return _chain(np.logical_and, body.args, positions)
        case sympy.Or():
            return _chain(np.logical_or, body.args, positions)
    if type(body) not in CALLS:
        raise TypeError(f"no meaning for {type(body).__name__} in {body}")
    call, inner = CALLS[type(body)], [function_of(arg, positions) for arg in body.args]
    return lambda leaves: call(*(f(leaves) for f in inner))


def _chain(
    combine: Callable[[Any, Any], Any], args: Sequence[sympy.Basic], positions: Mapping[str, int]
) -> Function:
    inner = [function_of(arg, positions) for arg in args]
    if len(inner) == 2:
        left, right = inner
        return lambda leaves: combine(left(leaves), right(leaves))
    return lambda leaves: reduce(combine, (f(leaves) for f in inner))


def _product(body: sympy.Mul, positions: Mapping[str, int]) -> Function:
    """Factors from left to right; after the first, b ** -1 is one division by b."""
    result = function_of(body.args[0], positions)
    for factor in body.args[1:]:
        inverse = isinstance(factor, sympy.Pow) and factor.args[1] == -1
        operand = function_of(factor.args[0] if inverse else factor, positions)
        result = _both(np.divide if inverse else operator.mul, result, operand)
    return result


def _both(combine: Callable[[Any, Any], Any], left: Function, right: Function) -> Function:
    return lambda leaves: combine(left(leaves), right(leaves))


def _power(body: sympy.Pow, positions: Mapping[str, int]) -> Function:
    base, exponent = body.args
    inner = function_of(base, positions)
    if exponent == -1:
        return lambda leaves: np.divide(1, inner(leaves))
    if exponent == sympy.Rational(1, 2):
        return lambda leaves: np.sqrt(inner(leaves))
    return _both(np.power, inner, function_of(exponent, positions))

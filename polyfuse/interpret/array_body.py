"""Scalar bodies as functions of arrays, operation by operation in the order they stand."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np
import sympy

from polyfuse.ir.number_types import DType, computed_in, computed_real
from polyfuse.ir.precision import rounded
from polyfuse.ir.scalar import (
    CONVERSIONS,
    AsType,
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


def of_real(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function of numbers that are rounded. NumPy has halves for integers of 8 bits; bodies compute in float32."""

    def call(x: Any) -> Any:
        if isinstance(x, np.ndarray | np.generic) and x.dtype.kind in "biu":
            return function(x.astype(computed_real(x.dtype.name)))  # type: ignore[arg-type]  # a type of tensors
        return function(x)

    return call


def _as_type(dtype: DType) -> Callable[[Any], Any]:
    def call(x: Any) -> Any:
        found = np.asarray(x).astype(dtype)
        return found.astype(computed_in(dtype))[()]

    return call


CALLS: Mapping[type[sympy.Basic], Callable[..., Any]] = {
    Maximum: np.maximum,
    Minimum: np.minimum,
    Select: np.where,
    Tf32: partial(rounded, "tf32"),
    sympy.Abs: np.abs,
    sympy.exp: of_real(np.exp),
    sympy.log: of_real(np.log),
    sympy.tanh: of_real(np.tanh),
    sympy.sin: of_real(np.sin),
    sympy.cos: of_real(np.cos),
    sympy.erf: of_real(erf),
    sympy.tan: of_real(np.tan),
    sympy.asin: of_real(np.arcsin),
    sympy.acos: of_real(np.arccos),
    sympy.atan: of_real(np.arctan),
    sympy.sinh: of_real(np.sinh),
    sympy.cosh: of_real(np.cosh),
    sympy.asinh: of_real(np.arcsinh),
    sympy.acosh: of_real(np.arccosh),
    sympy.atanh: of_real(np.arctanh),
    sympy.floor: np.floor,
    sympy.ceiling: np.ceil,
    Expm1: of_real(np.expm1),
    Log1p: of_real(np.log1p),
    Log2: of_real(np.log2),
    Log10: of_real(np.log10),
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
    **{node: _as_type(node.dtype) for node in CONVERSIONS.values()},
}


def function_of(body: sympy.Basic, positions: Mapping[str, int]) -> Function:
    """The body as a function of its leaves, which `positions` numbers by name.

    A part without leaves is a plain number: it takes the type of what it meets, as a literal does in NumPy, unless it
    has been converted to one.
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
    weak = isinstance(value, np.generic | np.ndarray) and not body.has(AsType)
    return _literal(value.item() if weak else value)


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
            return _sum(body, positions)
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


def _sum(body: sympy.Add, positions: Mapping[str, int]) -> Function:
    """Terms from left to right; after the first, -1 * b is one subtraction of b: unsigned numbers have no -b."""
    result = function_of(body.args[0], positions)
    for term in body.args[1:]:
        negated = isinstance(term, sympy.Mul) and len(term.args) == 2 and term.args[0] == -1
        operand = function_of(term.args[1] if negated else term, positions)
        result = _both(operator.sub if negated else operator.add, result, operand)
    return result


def _negated(inner: Function) -> Function:
    def call(leaves: Sequence[Any]) -> Any:
        value = inner(leaves)
        truth = isinstance(value, np.ndarray | np.generic) and value.dtype == np.bool_
        return -1 * value if truth else -value

    return call


def _product(body: sympy.Mul, positions: Mapping[str, int]) -> Function:
    """Factors from left to right; after the first, b ** -1 is one division by b."""
    if body.args[0] == -1 and len(body.args) == 2:
        return _negated(function_of(body.args[1], positions))
    result = function_of(body.args[0], positions)
    for factor in body.args[1:]:
        inverse = isinstance(factor, sympy.Pow) and factor.args[1] == -1
        operand = function_of(factor.args[0] if inverse else factor, positions)
        result = _both(np.divide if inverse else operator.mul, result, operand)
    return result


def _both(combine: Callable[[Any, Any], Any], left: Function, right: Function) -> Function:
    return lambda leaves: combine(left(leaves), right(leaves))


def _after(function: Callable[[Any], Any], inner: Function) -> Function:
    return lambda leaves: function(inner(leaves))


def _power(body: sympy.Pow, positions: Mapping[str, int]) -> Function:
    base, exponent = body.args
    inner = function_of(base, positions)
    if exponent == -1:
        return lambda leaves: np.divide(1, inner(leaves))
    if isinstance(exponent, sympy.Rational) and exponent.q == 2:
        return _after(of_real(np.sqrt), inner)
    return _both(_to_the_power, inner, function_of(exponent, positions))


def _to_the_power(base: Any, exponent: Any) -> Any:
    """A power; one of integers with a negative exponent, which NumPy refuses, is the whole part of the number.

    >>> [int(_to_the_power(np.int64(base), -3)) for base in (-2, -1, 0, 1, 2)]
    [0, -1, 0, 1, 0]
    """
    if np.result_type(base, exponent).kind != "i" or np.all(np.greater_equal(exponent, 0)):
        return np.power(base, exponent)
    power = np.power(base, np.maximum(exponent, 0))
    sign = np.where(np.equal(base, 1), 1, np.where(np.equal(base, -1), 1 - 2 * (exponent % 2), 0))
    return np.where(np.less(exponent, 0), sign, power).astype(power.dtype)[()]

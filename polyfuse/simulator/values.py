"""The operators and functions of a kernel in NumPy, with numba.cuda's result types.

A value is a NumPy scalar where all threads agree, else an array over the threads. Literals are int64 and
float64, and mixing them with float32 gives float64, as numba's typing has it: a kernel that means float32
must say float32(0.5).
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from polyfuse.codegen.looptree.half_types import CONVERSIONS, converted

Value = npt.NDArray[Any] | np.generic

ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.true_divide,
    ast.FloorDiv: np.floor_divide,
    ast.Mod: np.remainder,
    ast.LShift: np.left_shift,
    ast.RShift: np.right_shift,
    ast.BitAnd: np.bitwise_and,
    ast.BitOr: np.bitwise_or,
    ast.BitXor: np.bitwise_xor,
    ast.Pow: np.power,
}
_OF_INTEGERS = (
    ast.FloorDiv,
    ast.Mod,
    ast.LShift,
    ast.RShift,
    ast.BitAnd,
    ast.BitOr,
    ast.BitXor,
    ast.Pow,
)
COMPARISON: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
    ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
}
# NumPy has no error function; the standard library's is called element by element.
_SCALAR = {name: np.frompyfunc(getattr(math, name), 1, 1) for name in ("erf", "erfc")}
_NUMPY = {
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
}


def arithmetic(operator: ast.operator, left: Value, right: Value) -> Value:
    """`left <operator> right`; raises TypeError on truth values and on // % << >> & | ^ ** of anything but integers."""
    kinds = {left.dtype.kind, right.dtype.kind}
    if "b" in kinds:
        raise TypeError("arithmetic on truth values")
    if isinstance(operator, _OF_INTEGERS) and not kinds <= {"i", "u"}:
        raise TypeError("//, %, <<, >>, &, |, ^ or ** of floating-point values")
    widened = [_widened(operand) for operand in (left, right)]
    if kinds == {"i", "u"}:
        widened = [operand.astype(np.int64) for operand in widened]
    result: Value = ARITHMETIC[type(operator)](*widened)
    return result


def negated(value: Value) -> Value:
    """`-value`."""
    result: Value = np.negative(_widened(value))
    return result


def compared(operator: ast.cmpop, left: Value, right: Value) -> Value:
    """`left <operator> right`, a truth value."""
    result: Value = COMPARISON[type(operator)](left, right)
    return result


def cast(dtype: str, value: Value) -> Value:
    """`float32(value)` and the like."""
    result: Value = value.astype(dtype)
    return result


def truth(value: Value) -> npt.NDArray[np.bool_] | np.bool_:
    """The value as a condition."""
    result: npt.NDArray[np.bool_] | np.bool_ = value.astype(np.bool_)
    return result


def call(function: str, arguments: Sequence[Value]) -> Value:
    """A function of the subset by name: "min", "max", "abs", "math.exp", "float32", ..."""
    operands = [_widened(a) for a in arguments]
    if function in ("min", "max"):
        return _extremum(function, operands)
    if function == "abs":
        return np.asarray(np.abs(operands[0]))[()]
    if function in CONVERSIONS:
        result: Value = converted(function, arguments[0])
        return result
    if not function.startswith("math."):
        return cast(function, arguments[0])
    name = function.removeprefix("math.")
    # Only float32 alone stays float32; integers and mixtures are computed in float64.
    dtype = "float32" if all(o.dtype == np.float32 for o in operands) else "float64"
    operands = [o.astype(dtype) for o in operands]
    if name in ("pow", "fmod"):
        return np.asarray((np.power if name == "pow" else np.fmod)(operands[0], operands[1]))[()]
    ufunc = _SCALAR.get(name) or _NUMPY.get(name) or getattr(np, name)
    return np.asarray(ufunc(operands[0]), dtype=dtype)[()]


def _extremum(function: str, operands: Sequence[Value]) -> Value:
    # On the GPU these are fmin and fmax: a NaN loses against a number.
    result: Value = reduce(np.fmin if function == "min" else np.fmax, operands)
    return result


def _widened(value: Value) -> Value:
    # numba computes integers in 64 bits.
    wide = {"i": np.int64, "u": np.uint64}.get(value.dtype.kind)
    return value if wide is None else value.astype(wide)

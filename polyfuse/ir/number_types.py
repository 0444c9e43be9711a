"""The type of each part of a body, by NumPy's rules: literals take the type of the other operand (NEP 50).

    int32 * int32   ->   int32, which wraps          float32 + 1.1     ->   float32
    int32 / int32   ->   float64                     float32 * int32   ->   float64
    int32 * 1.5     ->   float64                     float32 + float64 ->   float64

What is chosen between numbers is a number too. Dimensions and sizes have the target's type, or int64 where that is no
float.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, get_args

import numpy as np
import sympy
from sympy.logic.boolalg import Boolean

from polyfuse.ir.scalar import Maximum, Minimum, OfIntegers, Read, Select
from polyfuse.ir.tensor import DType, computed_in

Number = Literal["integer", "fraction"]
"""The kind of a literal without a type: 3, or 0.5."""

Type = DType | Number

_TYPES: Mapping[str, DType] = {dtype: dtype for dtype in get_args(DType)}


def is_number(dtype: Type) -> bool:
    """True for the type of a literal number, which adopts the type of the other operand."""
    return dtype in get_args(Number)


def joined(types: Iterable[Type]) -> Type:
    """The type of an operation on values of these types.

    >>> joined(["int32", "integer"]), joined(["int32", "fraction"]), joined(["int32", "float32"])
    ('int32', 'float64', 'float64')
    """
    every = set(types)
    known = {dtype for dtype in every if not is_number(dtype)}
    if not known:
        return "fraction" if "fraction" in every else "integer"
    dtype: Type = next(iter(known)) if len(known) == 1 else _TYPES[str(np.result_type(*known))]
    return no_integer(dtype) if "fraction" in every else dtype


def no_integer(dtype: Type) -> Type:
    """The type of a quotient of such values, and of their functions: integers give float64."""
    return "fraction" if dtype == "integer" else "float64" if dtype.startswith("int") else dtype


def leaf_types(target: DType, reads: Sequence[DType]) -> Callable[[sympy.Symbol], Type]:
    """The types of a statement's leaves, by those of what it writes and reads."""
    elements = [computed_in(dtype) for dtype in reads]
    index: DType = computed_in(target) if computed_in(target).startswith("float") else "int64"
    return lambda symbol: elements[symbol.position] if isinstance(symbol, Read) else index


def type_of(body: sympy.Basic, leaf: Callable[[sympy.Symbol], Type]) -> Type:
    """The type of a part of a body whose leaves have these types. A condition has none, and says "integer"."""
    match body:
        case sympy.Symbol():
            return leaf(body)
        case Boolean():
            return "integer"
        case sympy.Mul():
            dtype = joined(type_of(arg.args[0] if _inverts(arg) else arg, leaf) for arg in body.args)
            return no_integer(dtype) if any(map(_inverts, body.args)) else dtype
        case sympy.Pow():
            base, exponent = body.args
            return joined([type_of(base, leaf), "fraction" if exponent == -1 else type_of(exponent, leaf)])
        case Select():
            return joined(type_of(arg, leaf) for arg in body.args[1:])
        case (
            sympy.Add() | Maximum() | Minimum() | sympy.Abs() | sympy.floor() | sympy.ceiling() | OfIntegers()
        ):
            return joined(type_of(arg, leaf) for arg in body.args)
        case sympy.Function():
            return no_integer(joined(type_of(arg, leaf) for arg in body.args))
    return "integer" if body.is_Integer else "fraction"


def _inverts(body: sympy.Basic) -> bool:
    return isinstance(body, sympy.Pow) and body.args[1] == -1

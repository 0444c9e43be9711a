"""The values of array expressions: what an element of each is, as an expression in its indices.

x[1:-1]          shape (N - 2,),   element i  ->  x[i + 1]          a view: it can be assigned
x[:, None] * y   shape (N, M),     element i, j  ->  x[i] * y[j]
A.T              shape (M, N),     element i, j  ->  A[j, i]        a view
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from polyfuse.frontend.python.numpy.syntax import number
from polyfuse.ir.number_types import (
    COMPLEX,
    HALVES,
    IMAGINARY,
    ITEMSIZE,
    complex_type,
    is_complex,
    joined,
    quotient_type,
)

Index = tuple[ast.expr, ...]

BOOL = "bool"
"""The type of conditions: an element of such an array is written as a test."""


@dataclass(frozen=True)
class Scalar:
    """One number, as it is written; its type is "integer" or "fraction" where it is weak, as a literal is.

    A complex number is written as a tuple of its real and its imaginary part (complex_numbers.py).
    """

    node: ast.expr
    dtype: str


@dataclass(frozen=True)
class Array:
    """An array. `storage` is the tensor whose elements its own are, if it is a view; else it cannot be assigned.

    As the place for a reduction's result, one that `adds` keeps its values, to which the sum is added.
    An array with a `mask` has the elements for which it is true, in places that nobody knows: as in x[x > 0].
    """

    shape: tuple[ast.expr, ...]
    dtype: str
    element: Callable[[Index], ast.expr]
    storage: str | None = None
    mask: Array | None = None
    adds: bool = False

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)


@dataclass(frozen=True)
class Static:
    """A Python object that is known when the function is read: None, a module, a function, an element type."""

    value: Any


Value = Scalar | Array | Static | tuple[Any, ...]


def common_type(types: Sequence[str], divides: bool = False) -> str:
    """The type of an operation by NumPy's rules, weak types for literals; of the two halves, which have none, float32.

    >>> common_type(["float32", "fraction"]), common_type(["int32", "fraction"]), common_type(["int32"], divides=True)
    ('float32', 'float64', 'float64')
    >>> common_type(["bool", "integer"]), common_type(["bool", "float32"])
    ('int64', 'float32')
    >>> common_type(["float16", "bfloat16"]), common_type(["bfloat16", "int16"]), common_type(["bool", "bool"])
    ('float32', 'float32', 'bool')
    """
    if any(map(is_complex, types)):
        return complex_type(types)
    if "bfloat16" in types and not set(types) <= _WITH_BFLOAT16:
        types = ["float32" if dtype in HALVES else dtype for dtype in types]
    found = joined(types)  # type: ignore[arg-type]  # they are types of nests
    return quotient_type(found) if divides else found


_WITH_BFLOAT16 = {"bfloat16", "bool", "int8", "uint8", "float32", "float64", "integer", "fraction"}
"""The types for which NumPy has a common one with bfloat16."""


def stored_type(dtype: str) -> str:
    """The type of an array of such elements: NumPy's default for weak ones."""
    return {"integer": "int64", "fraction": "float64", IMAGINARY: "complex128"}.get(dtype, dtype)


def as_number(node: ast.expr, dtype: str) -> ast.expr:
    """A value in arithmetic: a condition counts as 1 or 0."""
    return ast.IfExp(node, number(1), number(0)) if dtype == BOOL else node


def as_test(node: ast.expr, dtype: str) -> ast.expr:
    """A value as a condition: a number is true if it is not 0."""
    if isinstance(node, ast.Tuple):
        return ast.BoolOp(ast.Or(), [ast.Compare(part, [ast.NotEq()], [number(0)]) for part in node.elts])
    return node if dtype == BOOL else ast.Compare(node, [ast.NotEq()], [number(0)])


def weak_type(value: object) -> str | None:
    """The type of a number from outside; None if it is no number that nests have."""
    if isinstance(value, bool | np.bool_):
        return BOOL
    if isinstance(value, np.generic):
        name = value.dtype.name
        return name if name in ITEMSIZE or name in COMPLEX else None
    if isinstance(value, complex):
        return IMAGINARY
    return "integer" if isinstance(value, int) else "fraction" if isinstance(value, float) else None


def reshaped(array: Array, shape: tuple[ast.expr, ...], index: Callable[[Index], Index]) -> Array:
    """A view of an array whose element i is the array's element index(i)."""
    mask = array.mask and reshaped(array.mask, shape, index)
    return replace(array, shape=shape, element=lambda i: array.element(index(i)), mask=mask)


def shape_text(shape: Sequence[ast.expr]) -> str:
    """A shape as NumPy writes it: (N - 2, 3)."""
    return f"({', '.join(map(ast.unparse, shape))}{',' if len(shape) == 1 else ''})"

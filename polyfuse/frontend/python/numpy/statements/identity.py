"""Whether two values are known to be the same array or object."""

from __future__ import annotations

import ast

from polyfuse.frontend.python.numpy.syntax import name
from polyfuse.frontend.python.numpy.values import Array, Scalar, Static, Value, shape_text


def same_value(left: Value, right: Value) -> bool:
    """True if two values are known to be the same array or object."""
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(same_value, left, right))
    if isinstance(left, Static) and isinstance(right, Static):
        return left.value is right.value or bool(left.value == right.value)
    if isinstance(left, Scalar) and isinstance(right, Scalar):
        return left.dtype == right.dtype and ast.unparse(left.node) == ast.unparse(right.node)
    if not isinstance(left, Array) or not isinstance(right, Array):
        return False
    same = (left.storage, left.dtype, left.rank) == (right.storage, right.dtype, right.rank)
    return same and _text_of(left) == _text_of(right)


def _text_of(value: Array) -> str:
    """The expression of an array's elements, as text."""
    index = tuple(name(f"d{k}") for k in range(value.rank))
    mask = "" if value.mask is None else ast.unparse(value.mask.element(index))
    return f"{shape_text(value.shape)} {ast.unparse(value.element(index))} {mask}"

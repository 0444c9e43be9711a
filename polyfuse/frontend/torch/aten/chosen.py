"""Importers of elements chosen by integers of a call, or by their order: gather, index_select, scatter, sort.

A nest reads the whole axis for each element that is kept (`polyfuse.nn.shape.chosen`), where torch reads one. So these
are computed along axes of few elements; rows of tables are read where they lie (`embedding`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from polyfuse import nn
from polyfuse.frontend.importers import Unsupported, converted, required
from polyfuse.frontend.torch.aten.registry import Result, aten
from polyfuse.frontend.torch.aten.views import LONGEST, known_integers, taken
from polyfuse.nn.graph import INTEGERS, Value


def _operands(result: Result, x: Any, dim: int, index: Any) -> tuple[Value, int, Value]:
    """The tensor in the result's type, the axis counted from the left, and the index."""
    value, places = required(converted(x, result.element), "the tensor"), required(index, "the index")
    if not value.rank:
        raise Unsupported("chooses elements of a tensor without dimensions")
    axis = dim % value.rank
    size = value.shape[axis]
    if not isinstance(size, int) or size > LONGEST:
        raise Unsupported(
            f"chooses elements along an axis of {size}: all of them are read for each that is kept; at most {LONGEST}"
        )
    return value, axis, places


@aten("gather.default")
def gather(result: Result, x: Any, dim: int, index: Any, **_: Any) -> Value:
    """The element along an axis that an index of the result's shape chooses."""
    value, axis, places = _operands(result, x, dim, index)
    return nn.gather(value, axis, places)


@aten("index_select.default")
def index_select(result: Result, x: Any, dim: int, index: Any) -> Value:
    """The elements along an axis that a vector of integers chooses."""
    known = known_integers(index)
    if known is not None and x.rank:
        return taken(required(converted(x, result.element), "the tensor"), known, dim % x.rank)
    value, axis, places = _operands(result, x, dim, index)
    return nn.take(value, places, axis)


@aten("scatter.src")
def scatter(result: Result, x: Any, dim: int, index: Any, source: Any) -> Value:
    """Elements written along an axis where an index says; of several for one place, any."""
    value, axis, places = _operands(result, x, dim, index)
    return nn.scatter(value, axis, places, required(converted(source, result.element), "the source"))


@aten("scatter.value")
def scatter_value(result: Result, x: Any, dim: int, index: Any, number: float) -> Value:
    """A number written along an axis where an index says."""
    value, axis, places = _operands(result, x, dim, index)
    return nn.scatter(
        value, axis, places, nn.expand(nn.constant(np.array(number, value.dtype)), places.shape)
    )


@aten("scatter_add.default")
def scatter_add(result: Result, x: Any, dim: int, index: Any, source: Any) -> Value:
    """Elements added along an axis where an index says."""
    value, axis, places = _operands(result, x, dim, index)
    return nn.scatter_add(value, axis, places, required(converted(source, result.element), "the source"))


@aten("sort.default", "sort.stable")
def sort(
    result: Result, x: Any, dim: int = -1, descending: bool = False, *, stable: bool | None = None
) -> tuple[Value, Value]:
    """The elements in order along an axis, and their places before; equal ones stay in their order, NaN is largest.

    An element's rank is how many stand before it; all pairs are compared.
    """
    value = required(converted(x, result.element), "the tensor")
    if not value.rank:
        return value, nn.constant(np.zeros((), np.int64))
    axis = dim % value.rank
    size = value.shape[axis]
    if not isinstance(size, int) or size > LONGEST:
        raise Unsupported(f"sorts an axis of {size}: all pairs are compared; at most {LONGEST} elements")
    shape = value.shape
    own = nn.reshape(value, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
    other = nn.reshape(value, (*shape[:axis], 1, *shape[axis:]))
    counted = nn.sum(
        _stands_before(other, own, axis, size, descending), axis + 1
    )  # of each element, in float64
    ranks = nn.reshape(counted, other.shape)
    at = np.arange(size, dtype=np.float64).reshape(-1, *[1] * (value.rank - axis))
    here = nn.equal(ranks, nn.constant(at))
    values = nn.sum(nn.where(nn.cast(here, value.dtype), other, 0), axis + 1)
    places = nn.constant(np.arange(size, dtype=np.float64).reshape(-1, *[1] * (value.rank - 1 - axis)))
    return values, nn.cast(nn.sum(here * places, axis + 1), "int64")


def _stands_before(other: Value, own: Value, axis: int, size: int, descending: bool) -> Value:
    """1 where an element (of its axis + 1) comes before one (of its axis), else 0; of equal ones the earlier."""

    def number(truth: Value) -> Value:
        return nn.cast(truth, "float64")

    earlier = np.tri(size, size, -1).reshape(size, size, *[1] * (own.rank - axis - 2))
    alike, apart = number(nn.equal(other, own)), number((nn.greater if descending else nn.less)(other, own))
    if own.dtype not in INTEGERS:
        own_nan, other_nan = number(nn.isnan(own)), number(nn.isnan(other))
        first, second = (other_nan, own_nan) if descending else (own_nan, other_nan)
        apart = nn.maximum(apart, first * (1.0 - second))
        alike = nn.maximum(alike, own_nan * other_nan)
    return apart + alike * nn.constant(earlier)

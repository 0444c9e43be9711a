"""Importers of elements chosen by integers of a call: gather, index_select, scatter.

A nest reads the whole axis for each element that is kept (`polyfuse.nn.shape.chosen`), where torch reads one. So these
are computed along axes of few elements; rows of tables are read where they lie (`embedding`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from polyfuse import nn
from polyfuse.frontend.importers import Unsupported, converted, required
from polyfuse.frontend.torch.aten.registry import Result, aten
from polyfuse.nn.graph import Value

LONGEST = 256
"""The most elements along an axis by which others are chosen."""


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

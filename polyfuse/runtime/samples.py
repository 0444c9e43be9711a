"""Random arrays for a nest, and the distance between two results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from polyfuse.ir import Tensor
from polyfuse.ir.number_types import relative_step

Array = np.ndarray[Any, Any]


def drawn(
    tensors: Iterable[Tensor], generator: np.random.Generator, rows: Mapping[str, Array] | None = None
) -> dict[str, Array]:
    """Random values for tensors of fixed sizes by name, standard normal; for one in `rows`, numbers below its entry."""
    found = {}
    for tensor in tensors:
        shape = tuple(int(size) for size in tensor.shape)
        below = None if rows is None else rows.get(tensor.name)
        values = generator.standard_normal(shape) if below is None else generator.integers(0, below, shape)
        found[tensor.name] = np.asarray(values, tensor.dtype)
    return found


def roundings(expected: Mapping[str, Array], found: Mapping[str, Array]) -> float:
    """The largest difference between results, in units of rounding of the result's largest finite element (or of 1).

    Infinite where one is NaN, or infinite, and the other is not.
    """
    worst = 0.0
    for name, left in found.items():
        right = np.asarray(expected[name])
        if not np.array_equal(np.isnan(right), np.isnan(left)):
            return float("inf")
        other = ~np.isnan(right) & (right != left)
        if other.any():
            largest = np.abs(right[np.isfinite(right)]).max(initial=1.0)
            unit = float(largest) * relative_step(right.dtype.name)
            worst = max(worst, float((np.abs(right[other] - left[other]) / unit).max()))
    return worst

"""Importers of interpolation by lines and cubics: products with matrices that the sizes alone determine.

y[p, q] = sum over h, w of R[p, h] * x[h, w] * C[q, w]      two elements of each row of R and C, or four, are not 0
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from polyfuse import nn
from polyfuse.frontend.torch.aten.registry import ATEN, Result, Unsupported, converted, floating
from polyfuse.nn.graph import Value
from polyfuse.nn.sizes import numbers

Array = np.ndarray[Any, Any]

CUBIC = -0.75
"""The parameter of torch's cubic kernel: -1/2 in Keys, Cubic Convolution Interpolation (1981)."""


def linear(distance: Array) -> Array:
    """The weight of an element at a distance from where the value is wanted."""
    near: Array = np.maximum(1 - np.abs(distance), 0)
    return near


def cubic(distance: Array) -> Array:
    """The same, of a cubic through four elements."""
    d = np.abs(distance)
    near = ((CUBIC + 2) * d - (CUBIC + 3)) * d * d + 1
    far = ((CUBIC * d - 5 * CUBIC) * d + 8 * CUBIC) * d - 4 * CUBIC
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def matrix(size: int, count: int, corners: bool, kernel: Callable[[Array], Array], taps: int) -> Array:
    """Return the matrix (count, size) that interpolates `size` elements to `count`.

    Args:
        size: The number of elements.
        count: The number that is wanted.
        corners: Whether the outermost elements stay where they are; else elements are intervals of equal widths.
        kernel: The weights by distance.
        taps: The number of elements that a kernel covers; outside of the axis they are the outermost element.

    Returns:
        The matrix in float64.
    """
    places = np.arange(count)
    if corners:
        at = places * ((size - 1) / (count - 1) if count > 1 else 0.0)
    else:
        at = (places + 0.5) * (size / count) - 0.5
        at = np.maximum(at, 0) if kernel is linear else at
    found = np.zeros((count, size))
    first = np.floor(at).astype(int) - (taps // 2 - 1)
    for tap in range(taps):
        np.add.at(found, (places, np.clip(first + tap, 0, size - 1)), kernel(at - (first + tap)))
    return found


def _importer(rank: int, kernel: Callable[[Array], Array], taps: int) -> Callable[..., Value]:
    def interpolate(
        result: Result, x: Any, size: Sequence[int] | None, align_corners: bool, *scales: Any
    ) -> Value:
        value: Value = converted(x, floating(result))
        given = [one for scale in scales if scale is not None for one in np.atleast_1d(scale)]
        for factor, old, new in zip(given, value.shape[2:], result.shape[2:], strict=False):
            if not align_corners and old * factor != new:
                raise Unsupported(
                    f"interpolates by {factor} from {old} to {new}, which is another factor: pass the size"
                )
        for axis in range(2, 2 + rank):
            if value.shape[axis] == result.shape[axis]:
                continue
            last = value.rank - 1
            own, count = numbers("interpolation", (value.shape[axis], result.shape[axis]))
            weights = matrix(own, count, align_corners, kernel, taps)
            turned = nn.matmul(nn.transpose(value, axis, last), weights.T.astype(value.dtype))
            value = nn.transpose(turned, axis, last)
        return value * 1.0 if value is x else value

    return interpolate


for _name, _rank, _kernel, _taps in (
    ("linear1d", 1, linear, 2),
    ("bilinear2d", 2, linear, 2),
    ("trilinear3d", 3, linear, 2),
    ("bicubic2d", 2, cubic, 4),
):
    for _overload in ("default", "vec"):
        ATEN[f"aten.upsample_{_name}.{_overload}"] = _importer(_rank, _kernel, _taps)

"""Interpolation along axes: copies of the nearest elements, or products with matrices that the sizes alone determine.

y[p, q] = sum over h, w of R[p, h] * x[h, w] * C[q, w]      two elements of each row of R and C, or four, are not 0
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import numpy as np

from polyfuse.errors import BadArgument, quantity
from polyfuse.ir.whole import all_whole
from polyfuse.nn.functional import matmul
from polyfuse.nn.graph import Value, check_value
from polyfuse.nn.nest_writer import Array
from polyfuse.nn.shape.arranged import repeat_interleave, take
from polyfuse.nn.shape.functional import transpose
from polyfuse.nn.sizes import number, numbers

Mode = Literal["nearest", "linear", "cubic"]
Kernel = Callable[[Array], Array]


def linear(distance: Array) -> Array:
    """The weight of an element at a distance from where the value is wanted."""
    near: Array = np.maximum(1 - np.abs(distance), 0)
    return near


def cubic(distance: Array, a: float) -> Array:
    """The same, of a cubic through four elements; `a` is its slope at distance 1 (Keys, 1981: -1/2)."""
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def kernel_of(mode: Mode, a: float = -0.75) -> tuple[Kernel, int]:
    """A kernel and the number of elements that it covers.

    Args:
        mode: "linear" or "cubic".
        a: The cubic's parameter; torch, OpenCV and ONNX have -3/4.

    Returns:
        The weights by distance, and the number.
    """
    return (linear, 2) if mode == "linear" else (partial(cubic, a=a), 4)


def centres(size: int, count: int, corners: bool) -> Array:
    """Return where `count` values lie among `size` elements.

    >>> centres(2, 4, corners=False).tolist(), centres(4, 2, corners=True).tolist()
    ([-0.25, 0.25, 0.75, 1.25], [0.0, 3.0])

    Args:
        size: The number of elements.
        count: The number of values.
        corners: Whether the outermost elements stay where they are; else elements are intervals of equal widths.

    Returns:
        The places, in float64.
    """
    places = np.arange(count)
    if corners:
        return places * ((size - 1) / (count - 1) if count > 1 else 0.0)
    return (places + 0.5) * (size / count) - 0.5


def matrix(at: Array, size: int, kernel: Kernel, taps: int, inside: bool = False) -> Array:
    """Return the matrix that takes `size` elements to the values at some places.

    Args:
        at: The places, of shape (count,).
        size: The number of elements.
        kernel: The weights by distance.
        taps: The number of elements that the kernel covers.
        inside: Whether elements outside of the axis have no weight, and the others' are scaled to add up to 1; else
            they are the outermost element.

    Returns:
        The matrix (count, size) in float64.
    """
    found, rows = np.zeros((len(at), size)), np.arange(len(at))
    first = np.floor(at).astype(int) - (taps // 2 - 1)
    for tap in range(taps):
        column, weight = first + tap, kernel(at - (first + tap))
        if inside:
            weight = np.where((column >= 0) & (column < size), weight, 0.0)
        np.add.at(found, (rows, np.clip(column, 0, size - 1)), weight)
    return found / found.sum(1, keepdims=True) if inside else found


def along(x: Value, axis: int, weights: Array) -> Value:
    """Return the product of one axis with a matrix (count, size): (…, size, …) -> (…, count, …)."""
    last = x.rank - 1
    turned = matmul(transpose(x, axis, last), weights.T.astype(x.dtype))
    return transpose(turned, axis, last)


def nearest(x: Value, axis: int, at: Sequence[int]) -> Value:
    """Return the elements with these numbers along an axis; a whole factor is a view."""
    size, places = number("nearest", x.shape[axis]), list(at)
    factor = len(places) // size if size else 0
    if factor and places == [place // factor for place in range(len(places))]:
        return repeat_interleave(x, factor, axis) if factor > 1 else x
    return take(x, places, axis)


def interpolate(
    x: Value, size: int | Sequence[int], mode: Mode = "nearest", align_corners: bool = False
) -> Value:
    """Interpolate an image to other sizes, axis by axis.

    Args:
        x: (N, C, W), (N, C, H, W) or (N, C, D, H, W).
        size: The number of values along each spatial axis, or one for all.
        mode: "nearest" copies element floor(p * H / P); "linear" is torch's "linear", "bilinear" or "trilinear", and
            "cubic" its "bicubic", with a = -3/4.
        align_corners: Whether the outermost elements stay where they are; not for "nearest".

    Returns:
        (N, C, *size).

    Raises:
        BadArgument: if a size is below 1, their number is another, or the mode is unknown.
    """
    check_value("interpolate", x)
    rank, given = x.rank - 2, all_whole("interpolate: size", size)
    wanted = given * rank if len(given) == 1 else given
    if rank not in (1, 2, 3) or len(wanted) != rank or min(wanted) < 1 or 0 in x.shape[2:]:
        raise BadArgument(
            f"interpolate: {quantity(len(given), 'size')} {given} for {x!r}; expected (N, C, …) with one to three "
            "spatial axes, and for each a size of at least 1"
        )
    if mode not in ("nearest", "linear", "cubic"):
        raise BadArgument(f"interpolate: mode is {mode!r}, expected 'nearest', 'linear' or 'cubic'")
    for axis, (old, new) in enumerate(zip(numbers("interpolate", x.shape[2:]), wanted, strict=True), 2):
        if mode == "nearest":
            x = nearest(x, axis, [place * old // new for place in range(new)])
        elif old != new:
            kernel, taps = kernel_of(mode)
            at = centres(old, new, align_corners)
            at = np.maximum(at, 0) if mode == "linear" else at
            x = along(x, axis, matrix(at, old, kernel, taps))
    return x

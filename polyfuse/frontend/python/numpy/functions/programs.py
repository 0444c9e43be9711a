"""NumPy's functions that are short programs of others: they are inlined, as a caller's own functions are."""

from __future__ import annotations

from typing import Any

import numpy as np


def cov(m: Any) -> Any:
    """np.cov(m): the covariances of the rows."""
    m = m * np.float64(1.0)
    distance = m - np.mean(m, axis=1, keepdims=True)
    return distance @ distance.T / (m.shape[1] - 1)


def arctan(x: Any) -> Any:
    """np.arctan(x), after Cephes: a rational function of what is left of |x| beside 0, pi/4 or pi/2.

    The largest error measured on 10**6 numbers was one unit in the last place.
    """
    size = np.abs(x)
    small = np.where(
        size > 2.414213562373095,
        -1.0 / np.maximum(size, 1.0),
        np.where(size > 0.66, (size - 1.0) / (size + 1.0), size),
    )
    start = np.where(
        size > 2.414213562373095, 1.5707963267948966, np.where(size > 0.66, 0.7853981633974483, 0.0)
    )
    z = small * small
    above = (
        ((-8.750608600031904e-1 * z - 1.6157537187333652e1) * z - 7.500855792314705e1) * z
        - 1.2288666844901361e2
    ) * z - 6.485021904942025e1
    below = (
        ((z + 2.4858464901423063e1) * z + 1.6502700983169885e2) * z + 4.3288106049129027e2
    ) * z + 4.8539039963591370e2
    value = start + (small + small * (z * above / (below * z + 1.9455065714826140e2)))
    return np.where(x < 0.0, -value, value)


def arctan2(y: Any, x: Any) -> Any:
    """np.arctan2(y, x): the angle of the point (x, y). It knows no sign of zeros."""
    angle = arctan(np.where(y == 0.0, 0.0, y / x))
    return np.where(x < 0.0, np.where(y < 0.0, angle - 3.141592653589793, angle + 3.141592653589793), angle)


def trunc(x: Any) -> Any:
    """np.trunc(x): towards zero."""
    return np.where(x < 0.0, np.ceil(x), np.floor(x))


def rint(x: Any) -> Any:
    """np.rint(x): the nearest whole number, of two the even one; -0.0 above -0.5."""
    below = np.floor(x)
    over = x - below
    is_odd = 2.0 * np.floor(0.5 * below) != below
    return np.where((over > 0.5) | ((over == 0.5) & is_odd), np.ceil(x), below)


def diag_indices(n: int, ndim: int = 2) -> Any:
    """np.diag_indices(n): the places of a matrix' diagonal."""
    assert ndim == 2
    return (np.arange(n), np.arange(n))


def diag_indices_from(arr: Any) -> Any:
    """np.diag_indices_from(arr) of a square matrix."""
    return diag_indices(arr.shape[0])


def corrcoef(x: Any) -> Any:
    """np.corrcoef(x): the covariances, divided by the deviations."""
    c = cov(x)
    deviation = np.sqrt(np.diag(c))
    return np.clip(c / deviation[:, None] / deviation[None, :], -1.0, 1.0)


def take(a: Any, indices: Any, axis: Any = None) -> Any:
    """np.take(a, indices): of vectors, or of rows."""
    assert axis == 0 or a.ndim == 1
    return a[indices]


def count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """np.count_nonzero(a)."""
    return np.sum(a != 0, axis=axis, keepdims=keepdims)


def ptp(a: Any, axis: Any = None) -> Any:
    """np.ptp(a): the largest less the smallest."""
    return np.max(a, axis=axis) - np.min(a, axis=axis)


def average(a: Any, axis: Any = None, weights: Any = None) -> Any:
    """np.average(a): the mean, or that of weighted elements."""
    if weights is None:
        return np.mean(a, axis=axis)
    if a.ndim == 2 and weights.ndim == 1 and axis == 0:
        return np.sum(a * weights[:, None], axis=0) / np.sum(weights)
    return np.sum(a * weights, axis=axis) / np.sum(weights, axis=None if weights.ndim == 1 else axis)


def argmax(a: Any, axis: Any = None) -> Any:
    """np.argmax(a): the first of the places where the largest element stands, or NaN."""
    return _first_place(a, np.max(a, axis=axis, keepdims=True), axis)


def argmin(a: Any, axis: Any = None) -> Any:
    """np.argmin(a): the first of the places where the smallest element stands, or NaN."""
    return _first_place(a, np.min(a, axis=axis, keepdims=True), axis)


def _first_place(a: Any, value: Any, axis: Any) -> Any:
    """The first of the places along an axis, or of all, where an array has a value, or NaN."""
    found = (a == value) | (a != a)
    if a.ndim == 1:
        return np.min(np.where(found, np.arange(len(a)), len(a)))
    assert a.ndim == 2
    if axis is None:
        rows = np.min(np.where(found, np.arange(a.shape[1]), a.shape[1]), axis=1)
        row = np.min(np.where(rows < a.shape[1], np.arange(a.shape[0]), a.shape[0]))
        return row * a.shape[1] + np.min(np.where(np.arange(a.shape[0]) == row, rows, a.shape[1]))
    if axis == 0:
        return np.min(np.where(found, np.arange(a.shape[0])[:, None], a.shape[0]), axis=0)
    return np.min(np.where(found, np.arange(a.shape[1]), a.shape[1]), axis=1)


def nansum(a: Any, axis: Any = None) -> Any:
    """np.nansum(a)."""
    return np.sum(np.where(a == a, a, 0), axis=axis)


def nanmean(a: Any, axis: Any = None) -> Any:
    """np.nanmean(a)."""
    return np.sum(np.where(a == a, a, 0), axis=axis) / np.sum(a == a, axis=axis)


def nanmax(a: Any, axis: Any = None) -> Any:
    """np.nanmax(a): of NaN alone it is -inf."""
    if a.dtype.kind == "i" or a.dtype.kind == "u":
        return np.max(a, axis=axis)
    return np.max(np.where(a == a, a, -np.inf), axis=axis)


def nanmin(a: Any, axis: Any = None) -> Any:
    """np.nanmin(a): of NaN alone it is inf."""
    if a.dtype.kind == "i" or a.dtype.kind == "u":
        return np.min(a, axis=axis)
    return np.min(np.where(a == a, a, np.inf), axis=axis)


def diff(a: Any, n: int = 1, axis: int = -1) -> Any:
    """np.diff(a): each element less the one before it."""
    if n == 0:
        return a
    if axis == 0 or a.ndim == 1:
        step = a[1:] - a[:-1]
    else:
        assert axis == -1 or axis == a.ndim - 1
        step = a[..., 1:] - a[..., :-1]
    return diff(step, n - 1, axis)


def gradient(f: Any, distance: Any = 1.0) -> Any:
    """np.gradient(f) of a vector: differences of both neighbours, at the ends of one."""
    assert f.ndim == 1
    inside = (f[2:] - f[:-2]) / (2.0 * distance)
    return np.concatenate(((f[1:2] - f[:1]) / distance, inside, (f[-1:] - f[-2:-1]) / distance))


def trapezoid(y: Any, x: Any = None, dx: Any = 1.0) -> Any:
    """np.trapezoid(y) of a vector."""
    assert y.ndim == 1
    step = dx if x is None else x[1:] - x[:-1]
    return np.sum(step * (y[1:] + y[:-1]) / 2.0)


def logical_xor(x: Any, y: Any) -> Any:
    """np.logical_xor(x, y)."""
    return (x != 0) != (y != 0)


def fmod(x: Any, y: Any) -> Any:
    """np.fmod(x, y): the remainder with the sign of x."""
    rest = np.remainder(np.abs(x), np.abs(y))
    return np.where(x < 0, -rest, rest)


def divmod(x: Any, y: Any) -> Any:
    """The quotient and the remainder."""
    return x // y, x % y


def fmax(x: Any, y: Any) -> Any:
    """np.fmax(x, y): the larger one, of a number and NaN the number."""
    return np.where(x == x, np.where(y == y, np.maximum(x, y), x), y)


def fmin(x: Any, y: Any) -> Any:
    """np.fmin(x, y): the smaller one, of a number and NaN the number."""
    return np.where(x == x, np.where(y == y, np.minimum(x, y), x), y)


def isclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8) -> Any:
    """np.isclose(a, b)."""
    return (a == b) | (np.isfinite(b) & (np.abs(a - b) <= atol + rtol * np.abs(b)))


def allclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8) -> Any:
    """np.allclose(a, b)."""
    return np.all(isclose(a, b, rtol, atol))


def array_equal(a: Any, b: Any) -> Any:
    """np.array_equal(a, b) of arrays of one shape."""
    return np.all(a == b)


def cross(a: Any, b: Any) -> Any:
    """np.cross(a, b) of two vectors of three numbers."""
    assert a.shape == (3,)
    assert b.shape == (3,)
    return np.array(
        [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]],
    )


def vecdot(x: Any, y: Any) -> Any:
    """np.vecdot(x, y): the sum over the last axis."""
    return np.sum(np.conj(x) * y, axis=-1)


def rot90(m: Any) -> Any:
    """np.rot90(m), once."""
    return np.transpose(np.flip(m, 1))


def polyval(p: Any, x: Any) -> Any:
    """np.polyval(p, x), by Horner's rule; the first coefficient is that of the highest power."""
    value = x * 0
    for coefficient in p:
        value = value * x + coefficient
    return value


def angle(z: Any, deg: bool = False) -> Any:
    """np.angle(z): the angle of the point, from -pi to pi."""
    found = np.arctan2(np.imag(z), np.real(z))
    return found * 57.29577951308232 if deg else found


def radians(x: Any) -> Any:
    """np.radians(x)."""
    return x * 0.017453292519943295


def degrees(x: Any) -> Any:
    """np.degrees(x)."""
    return x * 57.29577951308232


def heaviside(x: Any, middle: Any) -> Any:
    """np.heaviside(x, middle)."""
    return np.where(x == 0.0, middle, np.where(x < 0.0, 0.0, np.where(x > 0.0, 1.0, x)))


def copysign(x: Any, y: Any) -> Any:
    """np.copysign(x, y), which knows the sign of zeros by what they divide."""
    return np.where((y < 0.0) | ((y == 0.0) & (1.0 / y < 0.0)), -np.abs(x), np.abs(x))


def cbrt(x: Any) -> Any:
    """np.cbrt(x): a power, and one step of Newton's method."""
    size = np.abs(x)
    root = np.where(size > 0.0, size, 1.0) ** 0.3333333333333333
    better = np.where(np.isfinite(size), root - (root * root * root - size) / (3.0 * root * root), size)
    return np.where(x > 0.0, better, np.where(x < 0.0, -better, x))


def logaddexp(x: Any, y: Any) -> Any:
    """np.logaddexp(x, y)."""
    return np.where(x == y, x + 0.6931471805599453, np.maximum(x, y) + np.log1p(np.exp(-np.abs(x - y))))


def sinc(x: Any) -> Any:
    """np.sinc(x): sin(pi * x) / (pi * x)."""
    turn = 3.141592653589793 * np.where(x == 0.0, 1e-20, x)
    return np.sin(turn) / turn


def nan_to_num(x: Any, nan: float = 0.0) -> Any:
    """np.nan_to_num(x): the largest numbers for infinities."""
    most = np.finfo(x.dtype).max
    return np.where(x == x, np.clip(x, -most, most), nan)


def bins_of(a: Any, low: Any, high: Any, bins: int) -> Any:
    """(the bin of each element, the edges of all bins): np.histogram's, of `bins` equal bins from low to high."""
    same = low == high
    first = np.where(same, low - 0.5, low)
    last = np.where(same, high + 0.5, high)
    step = (last - first) / bins
    place = np.clip(((a - first) / (last - first) * bins).astype(np.int64), 0, bins - 1)
    lower = np.where(a < place * step + first, place - 1, place)
    upper = np.where((a >= (lower + 1) * step + first) & (lower != bins - 1), lower + 1, lower)
    return np.clip(upper, 0, bins - 1), np.linspace(first, last, bins + 1)


def between(a: Any, low: Any, high: Any) -> Any:
    """The elements from low to high."""
    return (a >= low) & (a <= high)

"""NumPy's functions that are short programs of others: they are inlined, as a caller's own functions are."""

from __future__ import annotations

from typing import Any

import numpy as np


def cov(m: Any) -> Any:
    """np.cov(m): the covariances of the rows."""
    distance = m - np.mean(m, axis=1, keepdims=True)
    return distance @ distance.T / (m.shape[1] - 1)


def cholesky(a: Any) -> Any:
    """np.linalg.cholesky(a): the lower factor, made in place, so that it runs in blocks; the upper half is not read."""
    factor = np.tril(a)
    for i in range(a.shape[0]):
        for j in range(i):
            for k in range(j):
                factor[i, j] -= factor[i, k] * factor[j, k]
            factor[i, j] /= factor[j, j]
        for k in range(i):
            factor[i, i] -= factor[i, k] * factor[i, k]
        factor[i, i] = np.sqrt(factor[i, i])
    return factor


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
    above = -8.750608600031904e-1 * z - 1.6157537187333652e1
    above = (above * z - 7.500855792314705e1) * z - 1.2288666844901361e2
    above = above * z - 6.485021904942025e1
    below = (z + 2.4858464901423063e1) * z + 1.6502700983169885e2
    below = (below * z + 4.3288106049129027e2) * z + 4.8539039963591370e2
    below = below * z + 1.9455065714826140e2
    value = start + (small + small * (z * above / below))
    return np.where(x < 0.0, -value, value)


def arctan2(y: Any, x: Any) -> Any:
    """np.arctan2(y, x): the angle of the point (x, y). It knows no sign of zeros."""
    angle = arctan(np.where(y == 0.0, 0.0, y / x))
    return np.where(x < 0.0, np.where(y < 0.0, angle - 3.141592653589793, angle + 3.141592653589793), angle)


def trunc(x: Any) -> Any:
    """np.trunc(x): towards zero."""
    return np.where(x < 0.0, np.ceil(x), np.floor(x))


def rint(x: Any) -> Any:
    """np.rint(x): the nearest whole number, of two the even one."""
    below = np.floor(x)
    over = x - below
    is_odd = 2.0 * np.floor(0.5 * below) != below
    return np.where((over > 0.5) | ((over == 0.5) & is_odd), below + 1.0, below)

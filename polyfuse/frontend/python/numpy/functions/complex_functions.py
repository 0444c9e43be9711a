"""Functions of complex numbers as short programs on their real and imaginary parts, which are inlined.

Branch cuts are NumPy's, but for the sign of zeros, which is not kept: on a cut the value is the one of a positive zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np

MOST = 80.0
"""Beyond this number tanh is 1 in every type, and cosh is finite in float32."""


def sqrt(z: Any) -> Any:
    """The root whose real part is not negative."""
    x, y = z.real, z.imag
    size = np.sqrt((np.abs(x) + np.abs(z)) * 0.5)
    other = np.where(size > 0, np.abs(y) / (2.0 * np.where(size > 0, size, 1.0)), 0.0)
    real, imaginary = np.where(x >= 0, size, other), np.where(x >= 0, other, size)
    return real + 1j * np.where(y < 0, -imaginary, imaginary)


def log(z: Any) -> Any:
    """The logarithm with an imaginary part from -pi to pi."""
    return np.log(np.abs(z)) + 1j * np.arctan2(z.imag, z.real)


def log2(z: Any) -> Any:
    """The logarithm to base 2."""
    return log(z) * 1.4426950408889634


def log10(z: Any) -> Any:
    """The logarithm to base 10."""
    return log(z) * 0.4342944819032518


def log1p(z: Any) -> Any:
    """log(1 + z)."""
    x, y = z.real, z.imag
    return 0.5 * np.log1p(x * (2.0 + x) + y * y) + 1j * np.arctan2(y, 1.0 + x)


def expm1(z: Any) -> Any:
    """exp(z) - 1."""
    x, y = z.real, z.imag
    half = np.sin(0.5 * y)
    return np.expm1(x) * np.cos(y) - 2.0 * half * half + 1j * (np.exp(x) * np.sin(y))


def exp2(z: Any) -> Any:
    """2 ** z."""
    return np.exp(z * 0.6931471805599453)


def power(z: Any, w: Any) -> Any:
    """z ** w; of 0 it is 0, or 1 if w is 0."""
    is_zero = z == 0
    value = np.exp(w * log(np.where(is_zero, 1.0 + 0j, z)))
    return np.where(is_zero, np.where(w == 0, 1.0, 0.0), value)


def sin(z: Any) -> Any:
    """The sine."""
    x, y = z.real, z.imag
    return np.sin(x) * np.cosh(y) + 1j * (np.cos(x) * np.sinh(y))


def cos(z: Any) -> Any:
    """The cosine."""
    x, y = z.real, z.imag
    return np.cos(x) * np.cosh(y) - 1j * (np.sin(x) * np.sinh(y))


def tan(z: Any) -> Any:
    """The tangent."""
    x, y = 2.0 * z.real, np.clip(2.0 * z.imag, -MOST, MOST)
    return (np.sin(x) + 1j * np.sinh(y)) / (np.cos(x) + np.cosh(y))


def sinh(z: Any) -> Any:
    """The hyperbolic sine."""
    x, y = z.real, z.imag
    return np.sinh(x) * np.cos(y) + 1j * (np.cosh(x) * np.sin(y))


def cosh(z: Any) -> Any:
    """The hyperbolic cosine."""
    x, y = z.real, z.imag
    return np.cosh(x) * np.cos(y) + 1j * (np.sinh(x) * np.sin(y))


def tanh(z: Any) -> Any:
    """The hyperbolic tangent."""
    x, y = np.clip(2.0 * z.real, -MOST, MOST), 2.0 * z.imag
    return (np.sinh(x) + 1j * np.sin(y)) / (np.cosh(x) + np.cos(y))


def arcsin(z: Any) -> Any:
    """The inverse of the sine, after Kahan."""
    below, above = sqrt(1.0 - z), sqrt(1.0 + z)
    real = np.arctan2(z.real, (below * above).real)
    return real + 1j * np.arcsinh((np.conj(below) * above).imag)


def arccos(z: Any) -> Any:
    """The inverse of the cosine, after Kahan."""
    below, above = sqrt(1.0 - z), sqrt(1.0 + z)
    return 2.0 * np.arctan2(below.real, above.real) + 1j * np.arcsinh((np.conj(above) * below).imag)


def arctan(z: Any) -> Any:
    """The inverse of the tangent."""
    found = arctanh(turned(z))
    return found.imag - 1j * found.real


def arcsinh(z: Any) -> Any:
    """The inverse of the hyperbolic sine."""
    found = arcsin(turned(z))
    return found.imag - 1j * found.real


def arccosh(z: Any) -> Any:
    """The inverse of the hyperbolic cosine, after Kahan."""
    below, above = sqrt(z - 1.0), sqrt(z + 1.0)
    real = np.arcsinh((np.conj(below) * above).real)
    return real + 2j * np.arctan2(below.imag, above.real)


def arctanh(z: Any) -> Any:
    """The inverse of the hyperbolic tangent."""
    x, y = z.real, z.imag
    rest = 1.0 - x
    real = 0.25 * np.log1p(4.0 * x / (rest * rest + y * y))
    return real + 0.5j * np.arctan2(2.0 * y, rest * (1.0 + x) - y * y)


def turned(z: Any) -> Any:
    """1j * z."""
    return 1j * z.real - z.imag


def sign(z: Any) -> Any:
    """z / abs(z), and 0 of 0."""
    size = np.abs(z)
    return z / np.where(size > 0, size, 1.0)


def angle(z: Any) -> Any:
    """np.angle(z): the angle of the point, from -pi to pi."""
    return np.arctan2(z.imag, z.real)


def spread(z: Any) -> Any:
    """The square of abs(z)."""
    return z.real * z.real + z.imag * z.imag

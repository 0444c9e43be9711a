"""pow of two numbers: exp(y log |x|), the logarithm in about twice the format's precision, and C's special cases.

Logarithm and product are sums of two numbers (Dekker, A floating-point technique for extending the available precision,
1971): y log |x| may be 745, in single precision 104, and its absolute error is the result's relative one.
"""

from __future__ import annotations

import math

from polyfuse.codegen.vector_math.builder import DOUBLE, SINGLE, Real
from polyfuse.codegen.vector_math.exp_log import exp, mantissa_less_one
from polyfuse.codegen.vector_math.tables import LOG_OF_POWER, TABLES, TWO_THIRDS

LARGE = {SINGLE: 2.0**32, DOUBLE: 2.0**65}
"""A larger exponent gives 0, 1 or inf as this one does: 2 ** 65 log(1 + 2 ** -53) is more than 745."""

Pair = tuple[Real, Real]
"""A number as the sum of two; the second is less than the first one's last place."""


def power(x: Real, y: Real) -> Real:
    """`x ** y` as C's pow and NumPy's power have it; both in one format."""
    size = abs(x)
    return _special(x, y, size, _of_sizes(size, y))


def _special(x: Real, y: Real, size: Real, result: Real) -> Real:
    """The result's sign, and what is exact whatever was computed; the last choices win."""
    half = y * 0.5
    whole = y.truncated().equals(y)
    odd = whole & ~half.truncated().equals(half)
    grows = (size > 1.0) ^ (y < 0.0)
    unbounded = size.equals(0.0) | size.equals(math.inf)
    result = unbounded.choose(grows.choose(math.inf, x.like(0.0)), result)
    result = size.equals(1.0).choose(1.0, result)  # to the power of inf as well
    negative = x.like(1.0).with_sign_of(x) < 0.0
    result = (negative & odd).choose(-result, result)
    result = ((x < 0.0) & (x > -math.inf) & ~whole).choose(math.nan, result)
    result = (x.is_nan() | y.is_nan()).choose(math.nan, result)
    return (y.equals(0.0) | x.equals(1.0)).choose(1.0, result)


def _of_sizes(size: Real, y: Real) -> Real:
    """exp(y log(size))."""
    large = LARGE[y.format]
    exponent = y.at_most(large).at_least(-large)
    high, low = _log(size)
    product, rest = _product(exponent, high)
    rest = exponent.fma(low, rest)
    bounded = abs(product) < 1000.0  # the rest of a product beyond is large itself, and decides nothing
    return exp(product, bounded.choose(rest, size.like(0.0)))


def _log(x: Real) -> Pair:
    """k log 2 + 2 s + s (z (2 / 3 + z P(z))), z = s² and s = f / (2 + f): all but z P(z) in two numbers."""
    tables = TABLES[x.format]
    f, k = mantissa_less_one(x)
    s = _quotient(f, _sum(x.like(2.0), f))
    z = _multiplied(s, s)
    two_thirds, two_thirds_low = TWO_THIRDS[x.format]
    high, low = _sum(x.like(two_thirds), z[0] * z[0].polynomial(LOG_OF_POWER[x.format]))
    cubic, cubic_low = _multiplied(s, _multiplied(z, (high, low + two_thirds_low)))
    exponent = k.as_real()
    fraction, fraction_low = _sum(s[0] * 2.0, cubic)
    fraction_low = fraction_low + s[1].fma(2.0, cubic_low)
    total, total_low = _sum(exponent * tables.log_2_high, fraction)
    return total, total_low + exponent.fma(tables.log_2_low, fraction_low)


def _sum(a: Real, b: Real) -> Pair:
    """a + b, exactly; |a| >= |b| or a = 0."""
    total = a + b
    return total, (a - total) + b


def _product(a: Real, b: Real) -> Pair:
    """a b, exactly."""
    product = a * b
    return product, a.fma(b, -product)


def _multiplied(a: Pair, b: Pair) -> Pair:
    """a b, but for the product of the low parts."""
    high, low = _product(a[0], b[0])
    return high, a[0].fma(b[1], a[1].fma(b[0], low))


def _quotient(a: Real, b: Pair) -> Pair:
    """a / b, and what the rounded quotient leaves over; one division for both."""
    inverse = a.like(1.0) / b[0]
    high = a * inverse
    return high, (-high).fma(b[1], (-high).fma(b[0], a)) * inverse

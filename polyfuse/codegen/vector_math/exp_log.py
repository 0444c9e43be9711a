"""exp, log, tanh and erf of one number, as formulas.

The methods are those of fdlibm (Sun Microsystems, 1993), without its branches; erf's far part is N. Juffa's
1 - exp(polynomial). All keep NaN, and the sign of zero where the function is odd.
"""

from __future__ import annotations

import math

from polyfuse.codegen.vector_math.builder import Real, Whole
from polyfuse.codegen.vector_math.tables import LOG2_E, TABLES

TANH_ONE_FROM = 20.0
"""From here on tanh is 1, rounded."""


def exp(x: Real, low: Real | float = 0.0) -> Real:
    """e to the power of x + low: 2 ** k times that of r; a tiny result is rounded once."""
    tables = TABLES[x.format]
    above, k = _expm1_of_rest(x.at_least(tables.zero_below).at_most(tables.inf_above), low)
    return (above + 1.0).times_two_to(k)


def log(x: Real) -> Real:
    """The natural logarithm of x = 2 ** k * (1 + f): k log 2 + f - (f²/2 - s (f²/2 + R)) with s = f / (2 + f)."""
    tables = TABLES[x.format]
    f, k = mantissa_less_one(x)
    s = f / (f + 2.0)
    z = s * s
    half_square = f * 0.5 * f
    rest = z * z.polynomial(tables.log)
    exponent = k.as_real()
    inner = s.fma(half_square + rest, exponent * tables.log_2_low)
    y = exponent.fma(tables.log_2_high, f - (half_square - inner))
    y = (x < math.inf).choose(y, x)  # inf and NaN are their own logarithms
    y = (x < 0.0).choose(math.nan, y)
    return x.equals(0.0).choose(-math.inf, y)


def tanh(x: Real) -> Real:
    """q = t / (t + 2) with t = expm1(2 |x|), and the sign of x.

    One step of correction: what the rounded q leaves of t, times 1 / (t + 2) = (1 - q) / 2 (2.4 ulp without, 1.4 with).
    """
    above, k = _expm1_of_rest(abs(x).at_most(TANH_ONE_FROM) * 2.0)
    power = k.power_of_two()
    t = power.fma(above, power - 1.0)
    divisor = t + 2.0
    divisor_low = (x.like(2.0) - divisor) + t
    q = t / divisor
    left = (-q).fma(divisor_low, (-q).fma(divisor, t))
    left = (t < 2.0).choose(left, x.like(0.0))  # beyond, divisor_low is not exact, and q good enough
    return left.fma(q.fma(-0.5, 0.5), q).with_sign_of(x)


def erf(x: Real) -> Real:
    """x + x P(x²) up to 1, then 1 - exp(log(erfc(|x|))) with a polynomial for the logarithm; and the sign of x."""
    tables = TABLES[x.format]
    size = abs(x)
    near = size.fma((size * size).polynomial(tables.erf), size)
    log_erfc = (size.at_most(tables.one_from) - 1.0).polynomial(tables.erfc)
    above, k = _expm1_of_rest(log_erfc)
    power = k.power_of_two()
    far = -power.fma(above, power - 1.0)
    return (size < 1.0).choose(near, far).with_sign_of(x)


def mantissa_less_one(x: Real) -> tuple[Real, Whole]:
    """f from sqrt(1/2) - 1 to sqrt(2) - 1, exactly, and k: x = 2 ** k * (1 + f), for positive finite x."""
    format = x.format
    tiny = x < format.smallest_normal
    x = tiny.choose(x * 2.0**format.fraction, x)
    one, root = (x.like(value).bits() for value in (1.0, math.sqrt(0.5)))
    shifted = x.bits() + one - root
    fraction = (shifted & ((1 << format.fraction) - 1)) + root
    k = (shifted >> format.fraction) - format.bias
    return fraction.as_bits() - 1.0, tiny.choose_whole(k - format.fraction, k)


def _expm1_of_rest(x: Real, low: Real | float = 0.0) -> tuple[Real, Whole]:
    """exp(r) - 1 and k, with x + low = k log 2 + r and |r| <= log(2) / 2 (Cody and Waite's reduction)."""
    tables = TABLES[x.format]
    rounded = x.fma(LOG2_E, x.format.rounder)
    k = rounded - x.format.rounder
    r = k.fma(-tables.log_2_low, k.fma(-tables.log_2_high, x))
    if isinstance(low, Real):
        r = r + low
    whole = rounded.bits() - x.like(x.format.rounder).bits()
    return (r * r).fma(r.polynomial(tables.exp), r), whole

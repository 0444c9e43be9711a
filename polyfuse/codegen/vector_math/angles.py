"""sin and cos of one single-precision number, of any size, as formulas in double precision.

    turns = x / 2π less whole turns;  k = the nearest quarter;  r = what is left, at most π / 4
    sin(x) = ± sin(r) or ± cos(r), by k

Payne & Hanek, Radian reduction for trigonometric functions (1983), without its look-up: 1 / 2π stands in parts of 28
bits, whose products with the 24 bits of x are exact. Every product gives up its whole turns, which for most parts is
all they have; a part that matters is exact after that. What a table would choose by x's exponent is computed, 28
operations for eight numbers. Double-precision arguments go to libm: they would take 22 parts of 53 bits in two steps.
"""

from __future__ import annotations

import math

from polyfuse.codegen.vector_math.builder import DOUBLE, Real

PART_BITS = 28
"""24 bits of a number and these are a product of at most 53."""

INVERSE_OF_TURN = (
    0.15915494039654732,
    2.6953480142255515e-09,
    4.038449450981451e-18,
    1.9241762118391763e-26,
    4.1707168783816406e-35,
    3.8770419007437455e-43,
    1.7634897189248905e-52,
)
"""1 / 2π in parts of 28 bits: what is left out is less than 2 ** -196, and x less than 2 ** 128."""

SINE = (
    -0.1666666666384345,
    0.00833333187010827,
    -0.00019840084250637795,
    2.7249603786849848e-06,
)
"""(sin(r) / r - 1) / z, of z = r ** 2 from 0 to 0.6175 (a little more than (π / 4) ** 2): 2 ** -35.0."""

COSINE = (
    -0.499999999999637,
    0.041666666637272816,
    -0.0013888885079419227,
    2.4799858567352736e-05,
    -2.7236805032192474e-07,
)
"""(cos(r) - 1) / z, of z = r ** 2 from 0 to 0.6175: 2 ** -41.3."""


def sin(x: Real) -> Real:
    """The sine; of zero itself, with its sign."""
    if x.format == DOUBLE:
        return x.by_libm("sin")
    return x.equals(0.0).choose(x, _of_quarter(x, 0))


def cos(x: Real) -> Real:
    """The cosine: the sine a quarter later."""
    return x.by_libm("cos") if x.format == DOUBLE else _of_quarter(x, 1)


def _of_quarter(x: Real, later: int) -> Real:
    """sin(x + later π / 2)."""
    wide = x.to(DOUBLE)
    parts = [_less_whole(wide * part) for part in reversed(INVERSE_OF_TURN)]
    turns = parts[0]
    for part in parts[1:]:
        turns = turns + part
    quarters = _less_whole(turns) * 4.0
    rounder = DOUBLE.rounder
    nearest = quarters + rounder
    r = (quarters - (nearest - rounder)) * (math.pi / 2)
    z = r * r
    sine = (r * z).fma(z.polynomial(SINE), r)
    cosine = z.fma(z.polynomial(COSINE), z.like(1.0))
    k = nearest.bits() + later
    value = (k & 1).is_zero().choose(sine, cosine)
    return (k & 2).is_zero().choose(value, -value).to(x.format)


def _less_whole(turns: Real) -> Real:
    """Without its whole turns, exactly: from -1/2 to 1/2; NaN of inf."""
    return turns - turns.rounded()

"""Formats to which factors may be rounded for a GPU's tensor cores, and the resulting error bounds.

    y[i, j] += a[i, k] * b[k, j]   ->   y[i, j] += round(a[i, k]) * round(b[k, j])      summed up in float32

`ieee` rounds nothing, nor does `f64`, tensor cores' products of float64 numbers, whose every step is IEEE's
multiply-add (PTX ISA, "mma": .f64, rounded to nearest even). Of the others a factor rounded to the nearest number of p
digits is off by at most u = 2^-p of itself, so a product by 2u + u^2 of itself. A product of two rounded factors is
exact in float32 (2 x 11 digits are 22 of 24). The tensor cores add such products to the float32 sum in an order of
their own, and may cut off where float32 rounds
(Fasi, Higham, Mikaitis & Pranesh, "Numerical behavior of NVIDIA tensor cores", PeerJ Computer Science 2021, sections 3
and 4): each of n additions is off by at most 2^-22 of the partial sums' absolute values here, four units of rounding,
which leaves room for the digits that are lost when several products are aligned and cut off at once. Together

    |y - exact y| <= (2u + u^2 + n * 2^-22 * (1 + u)^2) * sum over k of |a[i, k]| * |b[k, j]|

while nothing overflows or is denormal (Blanchard, Higham, Lopez, Mary & Pranesh, "Mixed precision block fused
multiply-add: error analysis and application to GPU tensor cores", SIAM J. Sci. Comput. 42(3), 2020, theorem 3.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from polyfuse.ir.number_types import DType

Math = Literal["ieee", "tf32", "bf16", "f16", "f64"]

ADDING = 2.0**-22
"""The largest error of one addition inside the tensor cores, relative to the absolute values it adds."""


@dataclass(frozen=True)
class Precision:
    """A format that factors are rounded to: its digits in base two, the leading one with them."""

    digits: int

    @property
    def unit(self) -> float:
        """The unit of rounding: what a number rounded to nearest is off by at most, relative to itself."""
        return 2.0**-self.digits

    def bound(self, steps: int) -> float:
        """Return the error bound of a sum of so many products, relative to the sum of their absolute values.

        >>> f"{PRECISIONS['tf32'].bound(1024):.1e} {PRECISIONS['bf16'].bound(1024):.1e}"
        '1.2e-03 8.1e-03'
        """
        u = self.unit
        return 2 * u + u * u + steps * ADDING * (1 + u) ** 2


PRECISIONS: Mapping[Math, Precision] = {
    "tf32": Precision(11),
    "bf16": Precision(8),
    "f16": Precision(11),
}
"""The formats that factors are rounded to (PTX ISA, section "Alternate Floating-Point Data Formats"; f16 is IEEE's, up
to 65504)."""

MATHS = ("ieee", *PRECISIONS)
"""The values of compile's `math=`."""

STEPS: Mapping[Math, int] = {"tf32": 8, "bf16": 16, "f16": 16, "f64": 4}
"""The formats that tensor cores multiply, and the steps that one instruction of a warp takes."""

ROWS_OF_ONE: Mapping[Math, int] = {"tf32": 2, "bf16": 2, "f16": 2, "f64": 1}
"""A lane's rows of results in one instruction of the tensor cores, which has two of its columns."""

STORED: Mapping[Math, DType] = {"tf32": "float32", "bf16": "bfloat16", "f16": "float16", "f64": "float64"}
"""The element type that holds factors: of tf32 numbers those of float32 whose last 13 bits are zeros."""


def rounded(math: Math, values: npt.ArrayLike) -> npt.NDArray[Any]:
    """Float32 numbers rounded to a format of factors: to nearest, ties away from zero for tf32 and to even for others.

    >>> one = np.float32([1 + 2**-11, 1 + 2**-9, 1 + 2**-8])
    >>> [[float(x) - 1 for x in rounded(math, one)] for math in ("tf32", "bf16", "f16")]
    [[0.0009765625, 0.001953125, 0.00390625], [0.0, 0.0, 0.0], [0.0, 0.001953125, 0.00390625]]
    """
    given = np.asarray(values, np.float32)
    if math == "f16":
        with np.errstate(over="ignore"):  # what is too large is infinite
            return given.astype(np.float16).astype(np.float32)
    bits = given.view(np.uint32)
    if math == "tf32":
        cut = (bits + np.uint32(1 << 12)) & np.uint32(0xFFFFE000)
    else:
        cut = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return np.where(np.isfinite(given), cut.view(np.float32), given)

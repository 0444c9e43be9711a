"""The built-in algorithms."""

from __future__ import annotations

from collections.abc import Mapping

from polyfuse.bilinear.algorithm import Algorithm, kronecker
from polyfuse.bilinear.table_text import from_text
from polyfuse.errors import InvalidAlgorithm

strassen = from_text(
    "strassen",
    """  # V. Strassen, "Gaussian elimination is not optimal", Numer. Math. 13 (1969)
    2 2 2
    (a11 + a22) (b11 + b22) -> c11 + c22
    (a21 + a22) b11         -> c21 - c22
    a11         (b12 - b22) -> c12 + c22
    a22         (b21 - b11) -> c11 + c21
    (a11 + a12) b22         -> c12 - c11
    (a21 - a11) (b11 + b12) -> c22
    (a12 - a22) (b21 + b22) -> c11
    """,
)

winograd = from_text(
    "winograd",
    """  # 15 additions where Strassen's has 18: N. Higham, "Accuracy and Stability of Numerical Algorithms", 23.1
    2 2 2
    a11                     b11                     -> c11 + c12 + c21 + c22
    a12                     b21                     -> c11
    (a11 + a12 - a21 - a22) b22                     -> c12
    a22                     (b11 - b12 - b21 + b22) -> - c21
    (a21 + a22)             (b12 - b11)             -> c12 + c22
    (a21 + a22 - a11)       (b11 - b12 + b22)       -> c12 + c21 + c22
    (a11 - a21)             (b22 - b12)             -> c21 + c22
    """,
)

laderman = from_text(
    "laderman",
    """  # J. Laderman, "A noncommutative algorithm for multiplying 3 x 3 matrices using 23 multiplications", 1976
    3 3 3
    (a11 + a12 + a13 - a21 - a22 - a32 - a33) b22                   -> c12
    (a11 - a21)         (b22 - b12)                                 -> c21 + c22
    a22                 (b12 - b11 + b21 - b22 - b23 - b31 + b33)   -> c21
    (a21 - a11 + a22)   (b11 - b12 + b22)                           -> c12 + c21 + c22
    (a21 + a22)         (b12 - b11)                                 -> c12 + c22
    a11                 b11                         -> c11 + c12 + c13 + c21 + c22 + c31 + c33
    (a31 - a11 + a32)   (b11 - b13 + b23)                           -> c13 + c31 + c33
    (a31 - a11)         (b13 - b23)                                 -> c31 + c33
    (a31 + a32)         (b13 - b11)                                 -> c13 + c33
    (a11 + a12 + a13 - a22 - a23 - a31 - a32) b23                   -> c13
    a32                 (b13 - b11 + b21 - b22 - b23 - b31 + b32)   -> c31
    (a32 - a13 + a33)   (b22 + b31 - b32)                           -> c12 + c31 + c32
    (a13 - a33)         (b22 - b32)                                 -> c31 + c32
    a13                 b31                         -> c11 + c12 + c13 + c21 + c23 + c31 + c32
    (a32 + a33)         (b32 - b31)                                 -> c12 + c32
    (a22 - a13 + a23)   (b23 + b31 - b33)                           -> c13 + c21 + c23
    (a13 - a23)         (b23 - b33)                                 -> c21 + c23
    (a22 + a23)         (b33 - b31)                                 -> c13 + c23
    a12                 b21                                         -> c11
    a23                 b32                                         -> c22
    a21                 b13                                         -> c23
    a31                 b12                                         -> c32
    a33                 b33                                         -> c33
    """,
)

strassen2 = kronecker(strassen, strassen, "strassen2")
"""Two levels of Strassen's: <4, 4, 4; 49>."""

winograd2 = kronecker(winograd, winograd, "winograd2")
"""Two levels of Winograd's variant: <4, 4, 4; 49>."""

KNOWN: Mapping[str, Algorithm] = {x.name: x for x in (strassen, winograd, laderman, strassen2, winograd2)}
"""The algorithms that `compile(fast_matmul=…)` knows by name."""


def named(name: str) -> Algorithm:
    """Return the built-in algorithm of a name.

    Args:
        name: A key of `KNOWN`, such as "strassen".

    Returns:
        The proven algorithm.

    Raises:
        InvalidAlgorithm: if there is no such algorithm; the message lists the names.
    """
    if name not in KNOWN:
        raise InvalidAlgorithm(f"unknown algorithm {name!r}; expected one of {', '.join(KNOWN)}")
    return KNOWN[name]

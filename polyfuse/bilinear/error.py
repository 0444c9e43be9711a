"""Bounds on a bilinear algorithm's floating-point error.

With unit roundoff u (2^-24 for float32), |A| and |B| the largest elements, and K steps, to first order in u:

    classical   |C - computed|  <=  K K                                 u |A| |B|
    bilinear    |C - computed|  <=  max over c of the sum over t of |W[c, t]| alpha_t beta_t K' (K' + e_ct)  u |A| |B|

where K' = K / k are the steps of one product, alpha_t = sum of |U[t, a]| and beta_t = sum of |V[t, b]| say how much
larger its operands are than A and B, and e_ct counts the roundings of the sums on the way: terms of row t of U, of V
and of row c of W, less one each, and one for a coefficient that is not 1 or -1 (Bini & Lotti, "Stability of fast
algorithms for
matrix multiplication", 1980; Ballard et al., "Improving the numerical stability of fast matrix multiplication", 2016,
theorem 3.1). Sharing sums does not lengthen the way of any term. For Strassen this is Higham's bound (Accuracy and
Stability of Numerical Algorithms, 2nd ed., theorem 23.2), 12 n0^2 + 50 n0 for one level of n = 2 n0, with 56 n0 instead
of 50 n0, since nothing is assumed of the order of the additions. The bound is on the largest element of the error:
unlike the classical product, no fast one is accurate row by row.
"""

from __future__ import annotations

from collections.abc import Sequence

from polyfuse.bilinear.algorithm import Algorithm


def error_bound(x: Algorithm | None, steps: int) -> float:
    """Return the factor of u |A| |B| in the forward error bound of a product.

    Args:
        x: The algorithm; None for the classical product.
        steps: The length of the contraction.

    Returns:
        The factor; u is the unit roundoff, |A| and |B| the maximum norms.

    >>> from polyfuse.bilinear.known import strassen
    >>> error_bound(None, 1024), error_bound(strassen, 1024) / error_bound(None, 1024)
    (1048576.0, 3.02734375)
    """
    if x is None:
        return float(steps * steps)
    inner = -(-steps // x.k)
    largest = 0
    for row in x.result:
        around = _roundings(row)
        sums = (
            abs(w) * sum(map(abs, u)) * sum(map(abs, v)) * (inner + _roundings(u) + _roundings(v) + around)
            for w, u, v in zip(row, x.left, x.right, strict=True)
            if w
        )
        largest = max(largest, sum(sums))
    return float(largest * inner)


def error_growth(x: Algorithm, steps: int) -> float:
    """Return the algorithm's error bound divided by the classical product's.

    Args:
        x: The algorithm.
        steps: The length of the contraction.

    Returns:
        The ratio of the two bounds.
    """
    return error_bound(x, steps) / error_bound(None, steps)


def _roundings(form: Sequence[int]) -> int:
    """Roundings on the way of a term through a sum of blocks, at most."""
    return max(0, sum(map(bool, form)) - 1) + any(abs(value) > 1 for value in form)

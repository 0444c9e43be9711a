"""NumPy's functions that are short programs of others: they are inlined, as a caller's own functions are."""

from __future__ import annotations

from typing import Any

import numpy as np


def cov(m: Any) -> Any:
    """np.cov(m): the covariances of the rows."""
    distance = m - np.mean(m, axis=1, keepdims=True)
    return distance @ distance.T / (m.shape[1] - 1)


def cholesky(a: Any) -> Any:
    """np.linalg.cholesky(a): the lower factor, column by column; what stands above the diagonal is not read."""
    factor = np.zeros_like(a)
    for j in range(a.shape[0]):
        factor[j, j] = np.sqrt(a[j, j] - factor[j, :j] @ factor[j, :j])
        for i in range(j + 1, a.shape[0]):
            factor[i, j] = (a[i, j] - factor[i, :j] @ factor[j, :j]) / factor[j, j]
    return factor

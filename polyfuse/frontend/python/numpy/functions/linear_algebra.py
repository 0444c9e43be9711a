"""Functions of np.linalg that are loops with affine bounds, as programs that are inlined.

Rows are exchanged as LAPACK does: the pivot is the largest element left in the column. Which row that is depends on
data; where elements are stored does not: row i becomes `row k if i == pivot else row i`, for every i.
"""

from __future__ import annotations

from typing import Any

import numpy as np


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


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """np.linalg.norm(x): of vectors, and Frobenius' norm of matrices. Squares of integers are squares of floats."""
    x = x * 1.0
    if ord is None or ord == "fro":
        return np.sqrt(np.sum(np.abs(x) ** 2, axis=axis, keepdims=keepdims))
    assert (
        x.ndim == 1 or axis is not None
    )  # the norms of matrices by rows and columns, and of singular values
    if ord == np.inf:
        return np.max(np.abs(x), axis=axis, keepdims=keepdims)
    if ord == -np.inf:
        return np.min(np.abs(x), axis=axis, keepdims=keepdims)
    if ord == 0:
        return np.sum(x != 0, axis=axis, keepdims=keepdims)
    if ord == 1:
        return np.sum(np.abs(x), axis=axis, keepdims=keepdims)
    if ord == 2:
        return np.sqrt(np.sum(np.abs(x) ** 2, axis=axis, keepdims=keepdims))
    return np.sum(np.abs(x) ** ord, axis=axis, keepdims=keepdims) ** (1.0 / ord)


def vector_norm(x: Any, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """np.linalg.vector_norm(x)."""
    return norm(x, None if ord == 2 else ord, axis, keepdims)


def matrix_norm(x: Any) -> Any:
    """np.linalg.matrix_norm(x): Frobenius' norm."""
    return np.sqrt(np.sum(np.abs(x * 1.0) ** 2, axis=(-2, -1)))


def trace(x: Any, *, offset: int = 0) -> Any:
    """np.linalg.trace(x) of a matrix."""
    return np.trace(x, offset)


def matrix_power(a: Any, n: int) -> Any:
    """np.linalg.matrix_power(a, n) for n > 0."""
    assert n > 0
    return a if n == 1 else matrix_power(a, n - 1) @ a


def size_of(x: Any) -> Any:
    """What pivots are compared by: |x|, of complex numbers the sum of both parts."""
    return np.abs(np.real(x)) + np.abs(np.imag(x))


def pivot_of(left: Any, k: int) -> Any:
    """The row from k on whose element in column k is the largest: the first of them."""
    pivot, top = k, size_of(left[k, k])
    for i in range(k + 1, left.shape[0]):
        size = size_of(left[i, k])
        pivot = i if size > top else pivot
        top = size if size > top else top
    return pivot


def exchange(matrix: Any, k: int, pivot: Any) -> None:
    """Exchange row k and a row behind it, or itself: loops of which code generation leaves the iteration `pivot`."""
    for i in range(k + 1, matrix.shape[0]):
        for j in range(matrix.shape[1]):
            first = matrix[k, j]
            matrix[k, j] = matrix[i, j] if i == pivot else matrix[k, j]
            matrix[i, j] = first if i == pivot else matrix[i, j]


def solve(a: Any, b: Any) -> Any:
    """np.linalg.solve(a, b): elimination with exchange of rows; an array without inverse gives infinities or NaN."""
    if b.ndim == 1:
        return eliminated(a, b[:, None])[:, 0]
    return eliminated(a, b)


def inv(a: Any) -> Any:
    """np.linalg.inv(a)."""
    return eliminated(a, np.eye(a.shape[0], dtype=np.result_type(a, 1.0)))


def eliminated(a: Any, b: Any) -> Any:
    """The solution of both sides as one array, [a | b]; rows are divided, as one over a pivot of 1e-310 is infinite.

    Complex sums have an array of their own, whose parts stay in registers; real rows are subtracted where they lie.
    """
    n, dtype = a.shape[0], np.result_type(a, b, 1.0)
    both = np.empty((n, n + b.shape[1]), dtype)
    both[:, :n] = a
    both[:, n:] = b
    for k in range(n):
        exchange(both, k, pivot_of(both, k))
        for i in range(k + 1, n):
            factor = both[i, k] / both[k, k]
            both[i, k + 1 :] -= factor * both[k, k + 1 :]
    for k in range(n - 1, -1, -1):
        if dtype == np.result_type(both, 1j):
            both[k, n:] -= both[k, k + 1 : n] @ both[k + 1 : n, n:]
        else:
            for i in range(k + 1, n):
                both[k, n:] -= both[k, i] * both[i, n:]
        both[k, n:] /= both[k, k]
    return both[:, n:].copy()


def det(a: Any) -> Any:
    """np.linalg.det(a): the product of the pivots, and the sign of the exchanges."""
    n = a.shape[0]
    left = np.empty((n, n), np.result_type(a, 1.0))
    left[:] = a
    value = left[0, 0] * 0.0 + 1.0
    for k in range(n):
        pivot = pivot_of(left, k)
        exchange(left, k, pivot)
        value = value * left[k, k] if pivot == k else -value * left[k, k]
        for i in range(k + 1, n):
            factor = left[i, k] / left[k, k]
            left[i, k + 1 :] -= factor * left[k, k + 1 :]
    return value

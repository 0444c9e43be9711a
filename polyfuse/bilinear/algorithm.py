"""Bilinear algorithms for matrix products, as data, and the proof that one multiplies.

    algorithm ::= <m, k, n; r>  U  V  W        U: r forms over the m x k blocks of A
                                               V: r forms over the k x n blocks of B
                                               W: m x n forms over the r products

    product t = (sum of U[t, a] A[a]) (sum of V[t, b] B[b]),    C[c] = sum of W[c, t] product t

Blocks are numbered row by row, of C too. The identity. The algorithm multiplies matrices over any ring iff, for all
blocks a = (i, q), b = (q', j), c = (i', j'):

    sum over t of U[t, a] V[t, b] W[c, t] = 1 if i = i', q = q', j = j', else 0

(Brent, "Algorithms for matrix multiplication", 1970). It is one equation of integers for every triple of blocks,
and is checked in integers when an algorithm is made: there is no algorithm whose identity is not proven.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
import numpy.typing as npt

from polyfuse.errors import InvalidAlgorithm, quantity

Forms = tuple[tuple[int, ...], ...]
Table = Sequence[Sequence[int]] | npt.NDArray[Any]


@dataclass(frozen=True)
class Algorithm:
    """A proven bilinear algorithm <m, k, n; r>: A in m x k blocks times B in k x n blocks, with r products of blocks.

    Made by `algorithm`, which proves the identity (Brent's equations).

    Attributes:
        name: The name shown in reports.
        m: Blocks along the rows of A.
        k: Blocks along the columns of A.
        n: Blocks along the columns of B.
        left: U, r rows of m k integer coefficients: the sums of A's blocks.
        right: V, r rows of k n integer coefficients: the sums of B's blocks.
        result: W, m n rows of r integer coefficients: the result's blocks from the products.
        modulus: 0 if the identity holds over the integers, 2 if it holds modulo 2 only.
    """

    name: str
    m: int
    k: int
    n: int
    left: Forms
    right: Forms
    result: Forms
    modulus: int = 0

    def __post_init__(self) -> None:
        _check_shapes(self)
        _check_identity(self)

    @property
    def rank(self) -> int:
        """The number of products of blocks, r."""
        return len(self.left)

    @property
    def saving(self) -> float:
        """The algorithm's multiplications as a part of the classical product's: 7/8 for Strassen."""
        return self.rank / (self.m * self.k * self.n)

    @property
    def exponent(self) -> float:
        """The exponent of n in the operation count when the algorithm is applied recursively: log2 7 for Strassen."""
        return 3.0 * log(self.rank) / log(self.m * self.k * self.n)

    def __str__(self) -> str:
        limits = "" if not self.modulus else f", mod {self.modulus} only"
        return f"{self.name} <{self.m}, {self.k}, {self.n}; {self.rank}>{limits}"


def algorithm(
    name: str, shape: tuple[int, int, int], left: Table, right: Table, result: Table, modulus: int = 0
) -> Algorithm:
    """Make an algorithm from its tables, and prove that it multiplies.

    Args:
        name: The name shown in reports.
        shape: (m, k, n), the numbers of blocks.
        left: U, an r x mk table of integers.
        right: V, an r x kn table of integers.
        result: W, an mn x r table of integers.
        modulus: 0 for an identity over the integers, 2 for one modulo 2.

    Returns:
        The proven algorithm.

    Raises:
        InvalidAlgorithm: if a table has the wrong shape, a coefficient is not an integer, or an equation of the
            identity is false; the message names the first.
    """
    m, k, n = shape
    u, v, w = (_whole(name, table, which) for table, which in ((left, "U"), (right, "V"), (result, "W")))
    return Algorithm(name, m, k, n, u, v, w, modulus)


def classical(m: int, k: int, n: int) -> Algorithm:
    """Return the classical algorithm <m, k, n; mkn>, which computes each product of two blocks separately.

    Args:
        m: Blocks along the rows of A.
        k: Blocks along the columns of A.
        n: Blocks along the columns of B.

    Returns:
        The algorithm.

    >>> print(classical(1, 2, 1))
    classical <1, 2, 1; 2>
    """
    products = [(i, q, j) for i in range(m) for q in range(k) for j in range(n)]
    left = [_unit(m * k, i * k + q) for i, q, _ in products]
    right = [_unit(k * n, q * n + j) for _, q, j in products]
    result = [_unit(m * n, i * n + j) for i, _, j in products]
    return algorithm("classical", (m, k, n), left, right, list(zip(*result, strict=True)))


def kronecker(outer: Algorithm, inner: Algorithm, name: str | None = None) -> Algorithm:
    """Return the algorithm that multiplies the blocks of `outer` by `inner`: two levels of recursion as one.

    <m, k, n; r> and <m', k', n'; r'>  ->  <m m', k k', n n'; r r'>

    Args:
        outer: The algorithm of the outer level.
        inner: The algorithm that multiplies the blocks of `outer`.
        name: The name shown in reports; made from both names if None.

    Returns:
        The proven algorithm.
    """
    shape = (outer.m * inner.m, outer.k * inner.k, outer.n * inner.n)
    left = _product(outer.left, inner.left, (outer.m, outer.k), (inner.m, inner.k))
    right = _product(outer.right, inner.right, (outer.k, outer.n), (inner.k, inner.n))
    of_products = _product(
        tuple(zip(*outer.result, strict=True)),
        tuple(zip(*inner.result, strict=True)),
        (outer.m, outer.n),
        (inner.m, inner.n),
    )
    modulus = outer.modulus or inner.modulus
    return algorithm(name or f"{outer.name}*{inner.name}", shape, left, right, of_products.T, modulus=modulus)


def _product(a: Forms, b: Forms, shape: tuple[int, int], inner: tuple[int, int]) -> npt.NDArray[Any]:
    """Forms over blocks of blocks: [t, i, q] and [t', i', q']  ->  [t t', (i i')(q q')]."""
    x = np.array(a, dtype=object).reshape(-1, *shape)
    y = np.array(b, dtype=object).reshape(-1, *inner)
    both: npt.NDArray[Any] = x[:, None, :, None, :, None] * y[None, :, None, :, None, :]
    return both.reshape(x.shape[0] * y.shape[0], -1)


def _unit(size: int, position: int) -> tuple[int, ...]:
    return tuple(int(p == position) for p in range(size))


def _whole(name: str, table: Table, which: str) -> Forms:
    """The coefficients as Python's integers."""
    array = np.asarray(table)
    if array.ndim != 2:
        raise InvalidAlgorithm(
            f"{name}: {which} has {quantity(array.ndim, 'dimension')}, expected a table of rows"
        )
    if any(value != int(value) for value in array.flat):
        value = next(value for value in array.flat if value != int(value))
        raise InvalidAlgorithm(f"{name}: {which} has the coefficient {value}; expected integers")
    return tuple(tuple(int(value) for value in row) for row in array)


# -- the proof ---------------------------------------------------------------------------------------------------------


def _check_shapes(x: Algorithm) -> None:
    if min(x.m, x.k, x.n) < 1 or x.modulus not in (0, 2):
        raise InvalidAlgorithm(
            f"{x.name}: <{x.m}, {x.k}, {x.n}> mod {x.modulus} is not a valid shape; expected m, k, n >= 1 and "
            "modulus 0 or 2"
        )
    rank = len(x.left)
    wanted = {"U": (rank, x.m * x.k), "V": (rank, x.k * x.n), "W": (x.m * x.n, rank)}
    for (which, shape), table in zip(wanted.items(), (x.left, x.right, x.result), strict=True):
        rows, columns = len(table), {len(row) for row in table}
        if rows != shape[0] or columns != {shape[1]}:
            raise InvalidAlgorithm(
                f"{x.name}: {which} is {rows} x {', '.join(map(str, sorted(columns)))}, expected "
                f"{shape[0]} x {shape[1]} for <{x.m}, {x.k}, {x.n}> with {rank} products"
            )


def _check_identity(x: Algorithm) -> None:
    tables = [np.array(table, dtype=object) for table in (x.left, x.right, x.result)]
    largest = [max(abs(value) for value in table.flat) for table in tables]
    if x.rank * int(np.prod(largest, dtype=object)) < 2**62:  # no sum can leave 64 bits
        tables = [table.astype(np.int64) for table in tables]
    u, v, w = tables
    for a in range(x.m * x.k):
        i, q = divmod(a, x.k)
        found = (u[:, a, None] * v).T @ w.T
        expected = np.zeros_like(found)
        for j in range(x.n):
            expected[q * x.n + j, i * x.n + j] = 1
        wrong = (found - expected) % x.modulus != 0 if x.modulus else found != expected
        if wrong.any():
            b, c = (int(at) for at in np.argwhere(wrong)[0])
            raise InvalidAlgorithm(
                f"{x.name} does not multiply: A[{i}, {q}] B[{b // x.n}, {b % x.n}] occurs "
                f"{quantity(found[b, c], 'time')} in C[{c // x.n}, {c % x.n}], expected {expected[b, c]}"
                + (f" mod {x.modulus}" if x.modulus else "")
            )

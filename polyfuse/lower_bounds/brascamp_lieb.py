"""The exponents of the discrete Brascamp–Lieb inequality, by an exact linear program.

For maps phi_j of Z^d with kernels K_j, numbers s_j >= 0 and every finite set E of Z^d

    |E|  <=  prod_j |phi_j(E)|^s_j     iff     rank H  <=  sum_j s_j (rank H - rank(H ∩ K_j))     for all subgroups H

(Christ, Demmel, Knight, Scanlon, Yelick 2013, arXiv:1308.0068, theorem 3.2; the constant is 1). Finitely many H do:
those of the lattice that sums and intersections of the kernels make (Valdimarsson 2010). Where each phi_j is the sum of
maps of the same groups of dimensions, so is each H of that lattice, and both sides are sums over the groups: the
lattice of each group is enough. For accesses such as A[i, k] each group has one dimension, and the condition says that
the exponents of the accesses that name it sum to 1 at least.

    C[i, j] += A[i, k] * B[k, j]     s = 1/2, 1/2, 1/2     |E| <= sqrt(|C(E)| |A(E)| |B(E)|)      (Loomis, Whitney 1949)
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from polyfuse.lower_bounds.subspaces import Subspace, axes, both, orthogonal, span

MOST = 80
"""Subspaces of a group's lattice that are found at most. A lattice may be infinite."""

Conditions = tuple[tuple[tuple[int, ...], int], ...]


def exponents(dim: int, kernels: Sequence[Subspace], prices: Sequence[float]) -> tuple[Fraction, ...] | None:
    """Return exponents that fulfil the inequality's condition, with the least sum of exponent × price.

    Args:
        dim: The number of dimensions.
        kernels: The kernel of each map.
        prices: What an exponent of each map costs: the logarithm of its image's size. Not negative.

    Returns:
        One exponent for each map; None if no exponents do, or a lattice has too many subspaces.
    """
    known = conditions(dim, tuple(kernels))
    if known is None:
        return None
    costs = [Fraction(round(1000 * price), 1000) for price in prices]
    return least(costs, [row for row, _ in known], [rank for _, rank in known])


@lru_cache(maxsize=512)
def conditions(dim: int, kernels: tuple[Subspace, ...]) -> Conditions | None:
    """Return (rank of phi_j(H) for each j, rank H) for each H to be asked about; None if there are too many."""
    found: dict[tuple[tuple[int, ...], int], None] = {}
    for group in _groups(dim, kernels):
        lattice = _lattice(dim, group, kernels)
        if lattice is None:
            return None
        for space in lattice:
            ranks = tuple(len(space) - len(both(space, kernel, dim)) for kernel in kernels)
            found[ranks, len(space)] = None
    return tuple(found)


def _groups(dim: int, kernels: tuple[Subspace, ...]) -> list[tuple[int, ...]]:
    """The dimensions in groups such that each map is a sum of maps of one group each."""
    group = {d: {d} for d in range(dim)}
    for kernel in kernels:
        for row in orthogonal(kernel, dim):
            together = set().union(*(group[d] for d, value in enumerate(row) if value))
            for d in together:
                group[d] = together
    return sorted({tuple(sorted(members)) for members in group.values()})


def _lattice(dim: int, group: tuple[int, ...], kernels: tuple[Subspace, ...]) -> list[Subspace] | None:
    """The subspaces of a group that sums and intersections of the kernels make, and the whole of it."""
    whole = axes(group, dim)
    found = list(dict.fromkeys([whole, *(both(whole, kernel, dim) for kernel in kernels)]))
    done = 0
    while done < len(found):
        one = found[done]
        for other in found[:done]:
            for made in (span((*one, *other)), both(one, other, dim)):
                if made not in found:
                    found.append(made)
        if len(found) > MOST:
            return None
        done += 1
    return [space for space in found if space]


def least(
    costs: Sequence[Fraction], rows: Sequence[Sequence[int]], atleast: Sequence[int]
) -> tuple[Fraction, ...] | None:
    """Return x >= 0 with rows · x >= atleast and the least costs · x, exactly; None if there is none.

    The simplex method on the dual program, max atleast · y with rows' · y <= costs and y >= 0, for which y = 0 is a
    start as costs are not negative; Bland's rule. What the slack of a row of it is worth in the end is its x.

    >>> [str(x) for x in least([Fraction(1)] * 3, [(1, 1, 0), (1, 0, 1), (0, 1, 1)], [1, 1, 1])]
    ['1/2', '1/2', '1/2']
    """
    count, width = len(costs), len(rows)
    table = [
        [Fraction(rows[j][i]) for j in range(width)]
        + [Fraction(int(k == i)) for k in range(count)]
        + [costs[i]]
        for i in range(count)
    ]
    worth = [Fraction(-value) for value in atleast] + [Fraction(0)] * (count + 1)
    basis = [width + i for i in range(count)]
    while True:
        entering = next((c for c in range(width + count) if worth[c] < 0), None)
        if entering is None:
            return tuple(worth[width : width + count])
        ratios = [
            (table[r][-1] / table[r][entering], basis[r], r) for r in range(count) if table[r][entering] > 0
        ]
        if not ratios:
            return None
        _, _, leaving = min(ratios)
        scale = table[leaving][entering]
        table[leaving] = [value / scale for value in table[leaving]]
        for row in (*(table[r] for r in range(count) if r != leaving), worth):
            factor = row[entering]
            if factor:
                row[:] = [a - factor * b for a, b in zip(row, table[leaving], strict=True)]
        basis[leaving] = entering

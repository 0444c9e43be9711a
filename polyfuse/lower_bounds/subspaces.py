"""Subspaces of Q^d, exactly: rows of fractions in reduced echelon form, so that equal subspaces are equal values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

Vector = tuple[Fraction, ...]
Subspace = tuple[Vector, ...]
"""A basis in reduced row echelon form."""


def span(vectors: Iterable[Sequence[int | Fraction]]) -> Subspace:
    """Return the subspace that some vectors span.

    >>> span([(2, 2), (1, 1)]) == span([(3, 3)])
    True
    """
    rows = [list(map(Fraction, vector)) for vector in vectors]
    width = len(rows[0]) if rows else 0
    done = 0
    for column in range(width):
        pivot = next((r for r in range(done, len(rows)) if rows[r][column]), None)
        if pivot is None:
            continue
        rows[done], rows[pivot] = rows[pivot], rows[done]
        scale = rows[done][column]
        rows[done] = [value / scale for value in rows[done]]
        for r, row in enumerate(rows):
            if r != done and row[column]:
                factor = row[column]
                rows[r] = [a - factor * b for a, b in zip(row, rows[done], strict=True)]
        done += 1
    return tuple(tuple(row) for row in rows[:done])


def orthogonal(space: Subspace, dim: int) -> Subspace:
    """Return the vectors of Q^dim whose products with all of a subspace are 0: the kernel of its rows.

    >>> orthogonal(span([(1, 0)]), 2) == span([(0, 1)])
    True
    """
    pivots = [next(c for c, value in enumerate(row) if value) for row in space]
    found = []
    for free in (c for c in range(dim) if c not in pivots):
        vector = [Fraction(0)] * dim
        vector[free] = Fraction(1)
        for row, pivot in zip(space, pivots, strict=True):
            vector[pivot] = -row[free]
        found.append(vector)
    return span(found)


def both(one: Subspace, other: Subspace, dim: int) -> Subspace:
    """Return the intersection of two subspaces of Q^dim.

    >>> both(span([(1, 0, 0), (0, 1, 0)]), span([(0, 1, 0), (0, 0, 1)]), 3) == span([(0, 1, 0)])
    True
    """
    return orthogonal(span((*orthogonal(one, dim), *orthogonal(other, dim))), dim)


def axes(dims: Iterable[int], dim: int) -> Subspace:
    """Return the span of some of Q^dim's axes."""
    return span([[int(c == d) for c in range(dim)] for d in dims])

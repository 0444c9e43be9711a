"""The exact number of integer points of a set: as a number, or as a polynomial of its sizes.

    card { S[i, j, k] : 0 <= i < N and 0 <= j <= i and 0 <= k < M }  =  N (N + 1) / 2 · M

A set is cut into disjoint convex pieces, and a piece into groups of dimensions that share no constraint; the counts of
groups are multiplied. In a group, equalities with a coefficient of one remove a dimension. Then the dimensions are
summed over one by one by Faulhaber's formulas, which needs one lower and one upper bound of each with coefficients of
one; or the values of all dimensions but the longest are enumerated, and the longest's interval is counted at each.

A division is one more dimension, whose value the others determine: floor(i / 4) is the q with 4q <= i < 4q + 4. What
isl knows to exist, but not as a division, is not counted: the answer is None.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import islpy as isl
import numpy as np
import sympy

from polyfuse.sets import IN, PARAM, SET

ENUMERATED = 1_000_000
"""Points of a group's dimensions but the longest that are enumerated at most: 0.1 s."""

PIECES = 64
"""Convex pieces of a set that are counted at most."""


@dataclass(frozen=True)
class _Row:
    """A constraint: sum of coefficient × dimension + rest >= 0, or = 0; `rest` is a polynomial of sizes."""

    coefficients: tuple[tuple[int, int], ...]
    rest: sympy.Expr
    equality: bool

    def of(self, dim: int) -> int:
        """The coefficient of a dimension."""
        return next((factor for d, factor in self.coefficients if d == dim), 0)

    def without(self, dim: int, by: _Row) -> _Row:
        """The constraint with a dimension replaced by what an equality with a coefficient of ±1 says of it."""
        factor = self.of(dim) * by.of(dim)
        dims = {d for d, _ in (*self.coefficients, *by.coefficients)} - {dim}
        left = ((d, self.of(d) - factor * by.of(d)) for d in sorted(dims))
        kept = tuple((d, value) for d, value in left if value)
        return _Row(kept, sympy.expand(self.rest - factor * by.rest), self.equality)


def cardinality(set_: isl.Set) -> int | None:
    """Return the number of points of a bounded set whose sizes are fixed; None if it is not counted.

    >>> cardinality(isl.Set("{ S[i, j] : 0 <= i < 1000 and 0 <= j <= i }"))
    500500
    >>> cardinality(isl.Set("{ A[p, i] : 64p <= i < 64p + 64 and 0 <= i < 100 }"))
    100
    >>> cardinality(isl.Set("{ A[i] : 0 <= i < 100 and i mod 4 = 1 }"))
    25
    """
    total = 0
    for piece in _pieces(set_.project_out(PARAM, 0, set_.dim(PARAM))):
        if piece is None:
            return None
        found = _counted(piece)
        if found is None:
            return None
        total += found
    return total


def polynomial(set_: isl.Set) -> sympy.Expr | None:
    """Return the number of points as a polynomial of the sizes; None if Faulhaber's formulas do not give it.

    It holds for sizes at which no piece of the set is empty.

    >>> print(polynomial(isl.Set("[N] -> { S[i, j] : 0 <= i < N and 0 <= j <= i }")))
    N**2/2 + N/2
    """
    total = sympy.Integer(0)
    for piece in _pieces(set_):
        if piece is None:
            return None
        rows = _without_equalities(_rows(piece))
        if rows is None:
            return None
        value = sympy.Integer(1)
        for dims in _groups(rows[0], rows[1]):
            part = _summed([row for row in rows[1] if any(row.of(d) for d in dims)], dims)
            if part is None:
                return None
            value = value * part
        total = total + value
    return sympy.expand(total)


def _pieces(set_: isl.Set) -> Iterable[isl.BasicSet | None]:
    """Disjoint convex pieces, with divisions as dimensions; None where there are too many."""
    simple = set_.coalesce().remove_redundancies()
    if any(piece.dim(isl.dim_type.div) for piece in simple.get_basic_sets()):
        simple = simple.compute_divs().lift().flatten()
    found = simple.get_basic_sets()
    if len(found) > 1:
        found = simple.make_disjoint().coalesce().get_basic_sets()
    if len(found) > PIECES:
        return [None]
    whole = [piece.detect_equalities().remove_redundancies() for piece in found if not piece.is_empty()]
    return [None if piece.dim(isl.dim_type.div) else piece for piece in whole]


def _rows(piece: isl.BasicSet) -> tuple[tuple[int, ...], list[_Row]]:
    """A convex set's dimensions and constraints."""
    rows = []
    for constraint in piece.get_constraints():
        aff = constraint.get_aff()
        rest = sympy.Integer(_int(aff.get_constant_val()))
        for p in range(aff.dim(PARAM)):
            factor = _int(aff.get_coefficient_val(PARAM, p))
            if factor:
                rest = rest + factor * sympy.Symbol(aff.get_dim_name(PARAM, p))
        factors = ((d, _int(aff.get_coefficient_val(IN, d))) for d in range(aff.dim(IN)))
        kept = tuple((d, factor) for d, factor in factors if factor)
        if kept:
            rows.append(_Row(kept, rest, constraint.is_equality()))
    return tuple(range(piece.dim(SET))), rows


def _int(value: isl.Val) -> int:
    return int(value.to_python())


def _without_equalities(
    given: tuple[tuple[int, ...], list[_Row]], needed: bool = True
) -> tuple[tuple[int, ...], list[_Row]] | None:
    """Remove a dimension for each equality with a coefficient of ±1 in it; None if another is left and may not be."""
    dims, rows = given
    while True:
        found = (
            (row, d) for row in rows if row.equality for d, factor in row.coefficients if abs(factor) == 1
        )
        chosen = next(found, None)
        if chosen is None:
            return None if needed and any(row.equality for row in rows) else (dims, rows)
        equality, dim = chosen
        dims = tuple(d for d in dims if d != dim)
        left = (row.without(dim, equality) for row in rows if row is not equality)
        rows = [row for row in left if row.coefficients]


def _groups(dims: Sequence[int], rows: Sequence[_Row]) -> list[tuple[int, ...]]:
    """The dimensions in groups that share no constraint."""
    group = {d: {d} for d in dims}
    for row in rows:
        together = set().union(*(group[d] for d, _ in row.coefficients))
        for d in together:
            group[d] = together
    return sorted({tuple(sorted(members)) for members in group.values()})


# -- as a polynomial ---------------------------------------------------------------------------------------------------


def _summed(rows: list[_Row], dims: tuple[int, ...]) -> sympy.Expr | None:
    """The number of points of a group: 1 summed over its dimensions, one after the other, in some order that works."""
    value: sympy.Expr = sympy.Integer(1)
    symbols = {d: sympy.Dummy(f"d{d}") for d in dims}
    left = list(dims)
    while left:
        ends = next((each for d in left if (each := _ends(rows, d)) is not None), None)
        if ends is None:
            return None
        dim, lower, upper = ends
        low, high = (_solved(row, dim, symbols) for row in (lower, upper))
        value = _sum(value, symbols[dim], low, high)
        joined = _joined(lower, upper, dim)
        rows = [row for row in rows if row is not lower and row is not upper]
        if joined.coefficients:
            rows.append(joined)
        rows = _needed(rows)
        left.remove(dim)
    return value


def _ends(rows: list[_Row], dim: int) -> tuple[int, _Row, _Row] | None:
    """A dimension's lower and upper bound, if it has one of each, with coefficients of one."""
    own = [row for row in rows if row.of(dim)]
    if len(own) != 2 or sorted(row.of(dim) for row in own) != [-1, 1]:
        return None
    lower, upper = sorted(own, key=lambda row: -row.of(dim))
    return dim, lower, upper


def _solved(row: _Row, dim: int, symbols: dict[int, sympy.Dummy]) -> sympy.Expr:
    """The value of a dimension at which a constraint holds with equality."""
    rest = row.rest + sum(factor * symbols[d] for d, factor in row.coefficients if d != dim)
    return -rest if row.of(dim) == 1 else rest


def _joined(lower: _Row, upper: _Row, dim: int) -> _Row:
    """lower <= upper: what is left of two bounds when their dimension is summed over."""
    dims = sorted({d for d, _ in (*lower.coefficients, *upper.coefficients)} - {dim})
    factors = ((d, lower.of(d) + upper.of(d)) for d in dims)
    return _Row(tuple((d, f) for d, f in factors if f), sympy.expand(lower.rest + upper.rest), False)


def _needed(rows: list[_Row]) -> list[_Row]:
    """Without constraints that another one implies: the same coefficients, and a rest that is larger by a number."""
    kept: list[_Row] = []
    for row in rows:
        implied = False
        for other in list(kept):
            gap = row.rest - other.rest if row.coefficients == other.coefficients else None
            if gap is not None and gap.is_number:
                if gap < 0:
                    kept.remove(other)
                else:
                    implied = True
        if not implied:
            kept.append(row)
    return kept


def _sum(value: sympy.Expr, at: sympy.Dummy, low: sympy.Expr, high: sympy.Expr) -> sympy.Expr:
    """The sum of a polynomial over low <= at <= high, where low <= high + 1."""
    powers = sympy.Poly(value, at).all_coeffs()[::-1]
    terms = (
        factor * (_faulhaber(k).subs(_N, high) - _faulhaber(k).subs(_N, low - 1))
        for k, factor in enumerate(powers)
    )
    return sympy.expand(sum(terms))


_N = sympy.Dummy("n")


@lru_cache
def _faulhaber(power: int) -> sympy.Expr:
    """0^power + 1^power + … + n^power as a polynomial of n, which holds for n = -1 too."""
    x = sympy.Dummy("x")
    coefficients = sympy.symbols(f"c0:{power + 2}")
    form = sum(c * x**k for k, c in enumerate(coefficients))
    step = sympy.Poly(sympy.expand(form - form.subs(x, x - 1) - x**power), x).all_coeffs()
    solved = sympy.solve([*step, form.subs(x, -1)], coefficients, dict=True)[0]
    return sympy.expand(form.subs(solved).subs(x, _N))


# -- as a number -------------------------------------------------------------------------------------------------------


def _counted(piece: isl.BasicSet) -> int | None:
    """The points of a convex set without sizes."""
    found = _without_equalities(_rows(piece), needed=False)
    assert found is not None
    dims, rows = found
    whole = isl.Set.from_basic_set(piece)
    box = {d: (_int(whole.dim_min_val(d).ceil()), _int(whole.dim_max_val(d).floor())) for d in dims}
    counts = []
    for group in _groups(dims, rows):
        own = [row for row in rows if any(row.of(d) for d in group)]
        count = _enumerated(own, group, box)
        if count is None:
            value = None if any(row.equality for row in own) else _summed(own, group)
            count = None if value is None else int(value)
        if count is None:
            return None
        counts.append(count)
    return prod(counts)


def _enumerated(rows: list[_Row], dims: tuple[int, ...], box: dict[int, tuple[int, int]]) -> int | None:
    """The points of a group: the intervals of its longest dimension at all values of the others."""
    inner = max(dims, key=lambda d: box[d][1] - box[d][0])
    outer = [d for d in dims if d != inner]
    shape = [box[d][1] - box[d][0] + 1 for d in outer]
    if prod(shape) > ENUMERATED:
        return None
    grid = np.meshgrid(*(np.arange(box[d][0], box[d][1] + 1) for d in outer), indexing="ij", sparse=True)
    at = dict(zip(outer, grid, strict=True))
    low: np.ndarray = np.full(shape, box[inner][0], np.int64)
    high: np.ndarray = np.full(shape, box[inner][1], np.int64)
    inside: np.ndarray = np.ones(shape, bool)
    for row in rows:
        rest = int(row.rest) + sum(
            (factor * at[d] for d, factor in row.coefficients if d != inner), np.int64(0)
        )
        factor = row.of(inner)
        for sign in (1, -1) if row.equality else (1,):
            if factor * sign > 0:
                low = np.maximum(low, -((sign * rest) // abs(factor)))
            elif factor:
                high = np.minimum(high, (sign * rest) // abs(factor))
            else:
                inside = inside & (sign * rest >= 0)
    return int(np.where(inside, np.maximum(high - low + 1, 0), 0).sum())

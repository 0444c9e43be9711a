"""The number of points: as isl enumerates them, and polynomials at several sizes."""

from __future__ import annotations

import islpy as isl
import pytest

from polyfuse.lower_bounds.cardinality import cardinality, polynomial
from polyfuse.sets import fix_params, points

SETS = (
    "{ S[] }",
    "{ S[i, j] : 0 <= i < 7 and 2 <= j < 5 }",
    "{ S[i, j, k] : 0 <= i < 9 and 0 <= j <= i and j <= k < i + 2 }",
    "{ S[i, j] : 0 <= i < 9 and 0 <= j < 9 and i + j < 12 and j <= 2i }",
    "{ S[p, i] : 4p <= i < 4p + 4 and 0 <= i < 10 }",
    "{ S[p, q, i, j] : 4p <= i < 4p + 4 and 0 <= i < 10 and 3q <= j < 3q + 3 and 0 <= j < 7 }",
    "{ S[i] : 0 <= i < 20 and i mod 3 = 1 }",
    "{ S[i, j] : 0 <= i < 20 and 2j = i }",
    "{ S[i, j] : 0 <= i < 12 and j = 3i + 1 }",
    "{ S[e] : exists i, j : e = i + 2j and 0 <= i < 3 and 0 <= j < 4 }",
    "{ S[i, j] : 0 <= i < 4 and 0 <= j < 9; S[i, j] : 2 <= i < 8 and 3 <= j < 5 }",
    "{ S[i] : 0 <= i < 5; S[i] : 9 <= i < 5 }",
)


@pytest.mark.parametrize("text", SETS)
def test_the_number_of_points_is_exact(text: str) -> None:
    assert cardinality(isl.Set(text)) == len(list(points(isl.Set(text))))


def test_large_sets_are_counted_without_their_points() -> None:
    found = cardinality(isl.Set("{ S[i, j, k] : 0 <= k < 3000 and k < i < 3000 and k < j < 3000 }"))
    assert found == sum(k * k for k in range(3000))


POLYNOMIALS = (
    "[N] -> { S[i, j] : 0 <= i < N and 0 <= j <= i }",
    "[N, M] -> { S[i, j, k, l] : 0 <= k < N and k < i < N and k < j < N and i <= l < i + M }",
    "[N, M] -> { S[i, j] : 0 <= i < N and j = i + M }",
)


@pytest.mark.parametrize("text", POLYNOMIALS)
def test_polynomials_hold_at_all_sizes(text: str) -> None:
    found = polynomial(isl.Set(text))
    assert found is not None
    for n in (2, 3, 5):
        fixed = fix_params(isl.Set(text), {"N": n, "M": n + 1})
        at = {symbol: {"N": n, "M": n + 1}[symbol.name] for symbol in found.free_symbols}
        assert found.subs(at) == len(list(points(fixed)))


def test_a_polynomial_needs_one_bound_on_each_side() -> None:
    assert polynomial(isl.Set("[N, M] -> { S[i] : 0 <= i < N and i < M }")) is None
    assert polynomial(isl.Set("[N] -> { S[i] : 0 <= 2i < N }")) is None

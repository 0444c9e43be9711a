"""Exponents: the known ones, the inequality on random sets, and its condition on random subspaces."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest

from polyfuse.lower_bounds.brascamp_lieb import conditions, exponents, least
from polyfuse.lower_bounds.subspaces import both, orthogonal, span

Rows = list[list[int]]

PRODUCT: list[Rows] = [[[1, 0, 0], [0, 1, 0]], [[1, 0, 0], [0, 0, 1]], [[0, 1, 0], [0, 0, 1]]]
PAIRS: list[Rows] = [[[1, 0]], [[0, 1]]]
CONVOLUTION: list[Rows] = [[[1, 0, 0], [0, 1, 0]], [[0, 1, 1]], [[1, 0, 0], [0, 0, 1]]]
"""Over channel c, place x and window place w: O[c, x], I[x + w], W[c, w]."""
LINES: list[Rows] = [[[1, 0, 0], [0, 1, 0]], [[1, 0, 1], [0, 1, 0]], [[1, 0, 0], [0, 1, 1]]]
CASES = {
    "product": (PRODUCT, ["1/2", "1/2", "1/2"]),
    "pairs": (PAIRS, ["1", "1"]),
    "convolution": (CONVOLUTION, None),
    "lines": (LINES, None),
}


def kernels(maps: list[Rows], dim: int) -> list[tuple[tuple[Fraction, ...], ...]]:
    return [orthogonal(span(rows), dim) for rows in maps]


def image(rows: Rows, point: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sum(a * x for a, x in zip(row, point, strict=True)) for row in rows)


@pytest.mark.parametrize("name", CASES)
def test_the_inequality_and_its_condition_hold(name: str) -> None:
    maps, known = CASES[name]
    dim, random = len(maps[0][0]), Random(7)
    found = exponents(dim, kernels(maps, dim), [1.0] * len(maps))
    assert found is not None
    assert known is None or list(map(str, found)) == known
    for _ in range(40):
        side = random.choice((2, 3, 5))
        drawn = {tuple(random.randrange(side) for _ in range(dim)) for _ in range(random.randint(1, 60))}
        bound = 1.0
        for rows, s in zip(maps, found, strict=True):
            bound *= len({image(rows, point) for point in drawn}) ** float(s)
        assert len(drawn) <= bound + 1e-9
        space = span([[random.randint(-2, 2) for _ in range(dim)] for _ in range(random.randint(1, dim))])
        ranks = (len(space) - len(both(space, kernel, dim)) for kernel in kernels(maps, dim))
        assert len(space) <= sum(s * rank for s, rank in zip(found, ranks, strict=True))


def test_no_exponents_where_all_maps_forget_a_dimension() -> None:
    assert exponents(2, kernels([[[1, 0]]], 2), [1.0]) is None


def test_a_dimension_of_few_values_is_one_more_map() -> None:
    planes = [[[0, 0, 1]]]
    dear = exponents(3, kernels([*PRODUCT, *planes], 3), [10.0, 10.0, 10.0, 1.0])
    assert dear is not None
    assert list(map(str, dear)) == ["1", "0", "0", "1"]


def test_a_lattice_of_too_many_subspaces_has_no_answer() -> None:
    rows = [
        [[1, 0, 0, 0]],
        [[0, 1, 0, 0]],
        [[0, 0, 1, 0]],
        [[0, 0, 0, 1]],
        [[1, 1, 1, 1]],
        [[1, 2, 3, 5]],
        [[3, 1, 7, 2]],
    ]
    assert conditions(4, tuple(kernels(rows, 4))) is None


def test_the_linear_program_is_exact() -> None:
    assert least([Fraction(2), Fraction(3)], [(1, 1), (3, 1)], [1, 2]) == (Fraction(1), Fraction(0))
    assert least([Fraction(5), Fraction(1)], [(2, 1), (1, 0)], [3, Fraction(1, 3)]) == (
        Fraction(1, 3),
        Fraction(7, 3),
    )
    assert least([Fraction(1)], [(0,)], [1]) is None

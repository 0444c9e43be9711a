"""Points of unions and projections by intervals: as isl enumerates them, as `cardinality` counts them."""

from __future__ import annotations

import islpy as isl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyfuse.lower_bounds import swept as module
from polyfuse.lower_bounds.cardinality import cardinality
from polyfuse.lower_bounds.swept import swept
from polyfuse.sets import points
from tests.lower_bounds.test_cardinality import SETS

SMALL = st.integers(-3, 3)


@pytest.mark.parametrize("text", SETS)
def test_the_number_of_points_is_that_of_cardinality(text: str) -> None:
    assert swept(isl.Set(text)) == cardinality(isl.Set(text))


@given(a=SMALL, b=SMALL, c=SMALL, d=SMALL, m=st.integers(1, 4))
def test_overlapping_pieces_and_projections_have_each_point_once(
    a: int, b: int, c: int, d: int, m: int
) -> None:
    projected = isl.Set(
        f"{{ A[i, j] : exists e, f : 0 <= e < 7 and 0 <= f < 5 and {a}i + {b}e <= 9 and 0 <= i + {c}e < 12 and "
        f"{d} <= j + {b}f + {a}i <= 8 and -20 <= j < 20 }}"
    )
    both = projected.union(isl.Set(f"{{ A[i, j] : 0 <= i < 9 and {c}i <= j < 9 and (i + j) mod {m} = 0 }}"))
    assert swept(both) == len(list(points(both)))


SKEWED = isl.Set(
    "{ A[p, q, i, j] : exists t : 8p <= t < 8p + 8 and 0 <= t < 200 and 64q <= 2t + i < 64q + 64 and 0 <= i < 300 and "
    "0 <= j < 1000 and j <= i + t }"
)


def test_elements_of_skewed_tiles_are_counted_once_in_each_tile() -> None:
    most: dict[tuple[int, int, int], int] = {}
    for t in range(200):
        for i in range(300):
            key = t // 8, (2 * t + i) // 64, i
            most[key] = max(most.get(key, 0), min(999, i + t) + 1)
    assert swept(SKEWED) == sum(most.values())


def test_too_many_intervals_are_not_enumerated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ROWS", 1000)
    assert (
        swept(isl.Set("{ A[i, j] : exists e : 0 <= i < 2000 and 0 <= e < 5 and i <= j + 2e < 3000 }")) is None
    )

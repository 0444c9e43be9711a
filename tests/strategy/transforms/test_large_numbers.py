"""Sizes in place of large numbers: relations stay the same at the sizes' values, and isl's scheduler ends."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import islpy as isl
import pytest
from hypothesis import given

from papers.polybench import KERNELS
from polyfuse.ir.tree import parts, statements
from polyfuse.rewrite import reverse
from polyfuse.sets import fix_params
from polyfuse.strategy.transforms.isl_scheduler import found_by_isl
from polyfuse.strategy.transforms.large_numbers import LARGE, NEAR, Sizes, sizes_for

NUMBERS = st.integers(min_value=-500, max_value=500)


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=3))
def test_a_relation_is_the_same_at_the_values_of_its_sizes(boxes: list[tuple[int, int, int]]) -> None:
    parts = [
        f"S[i, j] -> T[i + {far}, j] : {low} <= i <= {high} and 0 <= j and i + 2j <= {high}"
        for low, high, far in boxes
    ]
    relation = isl.Map(f"{{ {'; '.join(parts)} }}")
    sizes = sizes_for([relation], ())
    assert fix_params(sizes.of_map(relation), sizes.values) == relation
    assert all(value >= LARGE for value in sizes.values.values())


def test_numbers_near_a_size_and_twice_of_it_share_it() -> None:
    domain = isl.Set("{ S[i, j] : 0 <= i < 200 and 3 <= j <= 200 and i + j <= 398 and i - j >= -60 }")
    sizes = sizes_for([domain], {"size0"})
    assert sizes == Sizes({"size0_2": 60, "size1": 199})
    text = "[n, m] -> { S[i, j] : 0 <= i <= m and 3 <= j <= m + 1 and i + j <= 2m and i - j >= -n }"
    expected = isl.Set(text).set_dim_name(isl.dim_type.param, 0, "size0_2")
    assert sizes.of_set(domain) == expected.set_dim_name(isl.dim_type.param, 1, "size1")
    apart = isl.Set(f"{{ S[i, j] : 0 <= i <= 199 and 0 <= j <= {199 + NEAR + 1} }}")
    assert sizes_for([apart], ()) == Sizes({"size0": 199, "size1": 199 + NEAR + 1})


def test_quotients_keep_their_numbers() -> None:
    relation = isl.Map("{ S[i] -> T[i] : i mod 32 <= 5 and 0 <= i < 320 }")
    assert sizes_for([relation], ()) == Sizes({})
    assert Sizes({"n": 319}).of_map(relation) == relation


@pytest.mark.parametrize("extent", [12, 200])
def test_isl_orders_numbers_as_it_does_sizes(extent: int) -> None:
    """With numbers isl takes 4 s for 12, finds another order, and does not end for 200."""
    sized = reverse(KERNELS["lu"].nest).nest.with_sizes({"N": extent})
    plain = replace(sized)
    assert sized.general[1] == {"N": extent}
    assert not plain.general[1]
    adjoints = max(parts(sized.order), key=lambda part: len(statements(part)))
    found = found_by_isl(sized, adjoints)
    assert found_by_isl(plain, adjoints) == found

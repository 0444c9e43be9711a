"""Orders by shifts and skews: every loop permutable, by the verb's own proof, with the least skew."""

from __future__ import annotations

from itertools import product

import hypothesis.strategies as st
import pytest
from hypothesis import given

from papers.polybench import KERNELS
from polyfuse.analysis.bands import LARGEST_SKEW, among, permutable
from polyfuse.ir import Nest
from polyfuse.schedule import Schedule
from polyfuse.strategy.transforms.skew import _Loops, _skewed, shifted_order
from tests.support.loop_programs import array, program

EXPECTED = {
    "jacobi-1d": {"S0": "[_t, 2_t + i, 0]", "S1": "[_t, 1 + 2_t + i, 1]"},
    "jacobi-2d": {"S0": "[_t, 2_t + i, 2_t + j, 0]", "S1": "[_t, 1 + 2_t + i, 1 + 2_t + j, 1]"},
    "seidel-2d": {"S0": "[_t, _t + i, 2_t + i + j]"},
    "fdtd-2d": {
        "S0": "[t, t, t + j, 0]",
        "S1": "[t, t + i, t + j, 1]",
        "S2": "[t, t + i, t + j, 2]",
        "S3": "[t, 1 + t + i, 1 + t + j, 3]",
    },
    "heat-3d": {
        "S0": "[_t, 2_t + i, 2_t + j, 2_t + k, 0]",
        "S1": "[_t, 1 + 2_t + i, 1 + 2_t + j, 1 + 2_t + k, 1]",
    },
}


@pytest.mark.parametrize("name", EXPECTED)
def test_stencils_of_any_depth(name: str) -> None:
    nest = KERNELS[name].nest
    assert shifted_order(nest, nest.order) == EXPECTED[name]
    assert band_after(nest) == len(nest.statements[-1].dims)


@pytest.mark.parametrize("name", ["adi", "nussinov", "trisolv"])
def test_none_where_distances_have_no_least(name: str) -> None:
    nest = KERNELS[name].nest
    assert shifted_order(nest, nest.order) is None


def test_candidates_come_once_each_and_the_least_skew_first() -> None:
    found = list(_skewed(_Loops(((1, 0, 0), (2, 1, 0))), 3))
    factors = product(range(LARGEST_SKEW + 1), repeat=2)
    every = {(one + 2 * two, two, 1) for one, two in factors if one + 2 * two <= LARGEST_SKEW}
    assert sorted(found) == sorted(every)
    assert [sum(weights) for weights in found] == sorted(map(sum, found))


def test_candidates_of_many_loops_are_made_as_they_are_asked_for() -> None:
    depth = 20
    alone = [tuple(int(d == at) for d in range(depth)) for at in range(depth)]
    candidates = _skewed(_Loops(tuple(alone[:-1])), depth)
    assert [sum(next(candidates)) for _ in range(depth + 1)] == [1] + [2] * (depth - 1) + [3]


offsets = st.lists(st.integers(-2, 2), min_size=1, max_size=3)


@given(first=offsets, second=offsets)
def test_random_stencils_become_permutable(first: list[int], second: list[int]) -> None:
    """B from A, A from B, at random offsets: a skew is found, the order is legal, and both its loops are permutable."""
    nest = two_stages(first, second)
    assert band_after(nest) == 2


def two_stages(first: list[int], second: list[int]) -> Nest:
    """for t: { for i: B[i] from A; for i: A[i] from B }, each value from these neighbours."""
    domain = "0 <= t < 5 and 2 <= i < 12"
    texts = {
        f"{{ S[t, i] : {domain} }}": "B[i] = " + " + ".join(f"A[i + {d}]" for d in first),
        f"{{ R[t, i] : {domain} }}": "A[i] = " + " + ".join(f"B[i + {d}]" for d in second),
    }
    return program("two", [array("A", 14), array("B", 14)], texts, ("t", [("i", "S"), ("i", "R")]))


def band_after(nest: Nest) -> int:
    """The loops of the band that the order found begins with; the verb proves that the order is legal."""
    found = shifted_order(nest, nest.order)
    assert found is not None
    tree = Schedule(nest).affine(**found).tree
    return len(permutable(tree, among(nest, tree)))

"""Accesses of one tensor: which share elements, and how many pass from one to another."""

from __future__ import annotations

import pytest

from papers.polybench import KERNELS
from polyfuse.lower_bounds.access_groups import access_groups

N = 6
BELOW = (N - 1) * (N - 2) // 2
"""Elements (a, b) with 1 <= b < a < N."""


@pytest.mark.parametrize(
    ("kernel", "name", "alike", "passing"),
    [
        # A[i, j], j >= i; A[i, k], k < i; A[k, j], k < j: those above the diagonal are updated, then read
        ("lu", "S2", [False, False, False], BELOW),
        # A[i, j], A[i, k], A[j, k], k < j < i: all but A[N - 1, N - 2] are updated, then read
        ("cholesky", "S0", [False, False, True], BELOW - 1),
        # B[i, j], B[k, j]: read before it is updated
        ("trmm", "S0", [False], (N - 2) * N),
        # path[i, j], path[i, k], path[k, j]: read before and after
        ("floyd-warshall", "S0", [True, True, True], 0),
    ],
)
def test_accesses_of_one_tensor(kernel: str, name: str, alike: list[bool], passing: int) -> None:
    nest = KERNELS[kernel].nest
    nest = nest.with_sizes(dict.fromkeys(nest.params, N))
    statement = nest.statement(name)
    tensor = statement.write.tensor
    every = {str(access): access for access in statement.accesses if access.tensor == tensor}
    accesses = list(every.values())
    found = access_groups(nest, statement, accesses)
    places = range(len(accesses))
    assert [found.numbers[a] == found.numbers[b] for b in places for a in range(b)] == alike
    assert found.passing == {tensor: passing}

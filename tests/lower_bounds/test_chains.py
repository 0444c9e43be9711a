"""Chains of values: their directions, and where they begin."""

from __future__ import annotations

import pytest

from papers.polybench import KERNELS
from polyfuse.ir import Nest, Tensor, statement
from polyfuse.lower_bounds.chains import chains

T, N = 5, 7


@pytest.mark.parametrize(
    ("kernel", "name", "found"),
    [
        # column 1 at each step but the first, which reads what the caller gave
        ("jacobi-1d", "S0", {(1, 0): 0, (1, -1): T - 1}),
        # in place: the left and the upper edge of each step, which nothing writes
        ("seidel-2d", "S0", {(0, 0, 1): T * (N - 2), (0, 1, 0): T * (N - 2), (1, 0, 0): 0}),
        # sums that are read between their updates; row 0 of ey is another statement's, at each step
        ("fdtd-2d", "S3", {(1, 0, 0): T * (N - 1), (1, -1, 0): None, (1, 0, -1): None}),
    ],
)
def test_directions_and_beginnings(kernel: str, name: str, found: dict[tuple[int, ...], int | None]) -> None:
    nest = KERNELS[kernel].nest
    nest = nest.with_sizes({size: T if size == "T" else N for size in nest.params})
    names = [s.name for s in nest.statements]
    every = {chain.direction: chain.begins for chain in chains(nest, name, names)}
    assert every.keys() == found.keys()
    assert all(count in (None, every[direction]) for direction, count in found.items())


def test_a_product_has_no_chains() -> None:
    nest = KERNELS["gemm"].nest.with_sizes({"NI": 4, "NJ": 4, "NK": 4})
    assert not chains(nest, "S1", ["S0", "S1"])


def test_a_chain_through_values_of_another_statement_begins_there() -> None:
    tensors = [Tensor("P", (5, 8), "float64", "inout"), Tensor("x", (8,), "float64", "input")]
    every = [
        statement("{ A[i] : 0 <= i < 8 }", "P[0, i] = x[i]"),
        statement("{ S[t, i] : 0 <= t < 4 and 0 <= i < 6 }", "P[t + 1, i + 1] = P[t, i + 2] - P[t, i]"),
    ]
    found = {chain.direction: chain.begins for chain in chains(Nest.of(tensors, every), "S", ["A", "S"])}
    # the first step reads what A computed; later steps read column 0 or 7, which the caller gave, each element once
    assert found == {(1, -1): 6, (1, 1): 6}

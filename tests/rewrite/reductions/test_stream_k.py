"""Reductions in equal shares (stream-k): which part a step belongs to, values, what is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product
from math import ceil

import islpy as isl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyfuse as pf
from polyfuse.checks import cuda_cases as cases
from polyfuse.errors import IllegalRewrite
from polyfuse.rewrite import Shares, split_reduction, why_not_split_reduction
from polyfuse.sets import points
from tests.support.examples import examples

# ruff: noqa: F821


def batched(count: int, rows: int, columns: int, steps: int) -> pf.Nest:
    x, y = (pf.nn.input(n, s) for n, s in (("x", (count, rows, steps)), ("y", (count, steps, columns))))
    return pf.lower(pf.nn.matmul(x, y))


def dealt_out(
    extents: tuple[int, int, int, int], tile: tuple[int, int], steps: int, count: int
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The share of each instance (b, i, j, k), counted out one chunk after the other."""
    batches, rows, columns, every = extents
    across = ceil(rows / tile[0]), ceil(columns / tile[1])
    chunks = ceil(every / steps)
    share = ceil(batches * across[0] * across[1] * chunks / count)
    order = product(range(batches), range(across[0]), range(across[1]), range(chunks))
    number = {where: position // share for position, where in enumerate(order)}
    for b, i, j, k in product(*map(range, extents)):
        yield number[b, i // tile[0], j // tile[1], k // steps], (b, i, j, k)


@settings(max_examples=examples(40), deadline=None)
@given(
    st.tuples(st.integers(1, 2), st.integers(1, 5), st.integers(1, 5), st.integers(1, 9)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.integers(1, 3),
    st.integers(1, 9),
)
def test_a_part_is_what_lies_in_one_share(
    extents: tuple[int, int, int, int], tile: tuple[int, int], steps: int, count: int
) -> None:
    nest = batched(*extents)
    name = nest.statements[-1].name
    dims = nest.statement(name).dims
    shares = Shares(count, steps, dict(zip(dims[1:3], tile, strict=True)))
    done = split_reduction(nest, name, dims[-1], shares=shares)
    found = list(dealt_out(extents, tile, steps, count))
    first = {
        results: min(s for s, (*r, _) in found if tuple(r) == results)
        for results in {f[1][:3] for f in found}
    }
    expected = {(share - first[where[:3]], *where) for share, where in found}
    assert set(points(done.nest.domains[done.partial])) == expected
    assert done.parts == 1 + max(part for part, *_ in expected)
    assert done.dealt is not None
    work = Counter(
        share for share, _ in {(s, (b, i // tile[0], j // tile[1], k // steps)) for s, (b, i, j, k) in found}
    )
    assert max(work.values()) <= done.dealt.share
    assert len(work) <= count
    arrays = {t.name: np.random.default_rng(0).integers(-4, 5, t.shape).astype(t.dtype) for t in nest.inputs}
    assert np.array_equal(pf.interpret(nest, arrays)["out"], pf.interpret(done.nest, arrays)["out"])


def test_parts_of_so_many_steps_are_shares_that_end_where_tiles_do() -> None:
    """4 tiles of 6 chunks of 4 steps in 8 shares: 3 chunks each, which are parts of 12 steps."""
    nest = cases.dense(24, 6, batch=6)
    shared = split_reduction(nest, "mac0", "k", shares=Shares(8, steps=4, tile={"i": 3, "j": 3}))
    by_size = split_reduction(nest, "mac0", "k", size=12)
    renumbered = isl.Map("{ part_mac0[b, i, j, k] -> part_mac0[b, i, j, 12b + k] }")
    assert shared.parts == by_size.parts == 2
    assert by_size.nest.domains["part_mac0"].apply(renumbered).is_equal(shared.nest.domains["part_mac0"])


def test_what_it_says(golden: Callable[[str, str], None]) -> None:
    done = split_reduction(cases.dense(10, 4, batch=6), "mac0", "k", shares=Shares(4, 2, {"i": 2, "j": 2}))
    golden("rewrite/shares.txt", f"{done}\n\n{done.nest}\n")


def test_a_loop_over_shares_is_a_skew() -> None:
    """Each share's chunks in one iteration: block 1 has the end of tile 0, and the beginning of tile 1."""
    nest = cases.dense(10, 4, batch=2)
    done = split_reduction(nest, "mac0", "k", shares=Shares(3, 2, {"i": 2, "j": 2}))
    assert done.dealt is not None
    s = (
        pf.Schedule(done.nest)
        .split("part_mac0", "i", 2)
        .split("part_mac0", "j", 2)
        .split("part_mac0", "k", 2)
    )
    s = s.reorder("part_mac0", "i", "j", "k_part", "k", "i_in", "j_in", "k_in").collapse(
        "part_mac0", "i", "j"
    )
    s = s.skew("part_mac0", "k_part", by="i_j", factor=done.dealt.chunks, per=done.dealt.share)
    share, tile, chunk = (s.loops("part_mac0")[p].date("part_mac0") for p in (1, 0, 2))
    where = isl.Map.from_pw_aff(share).flat_range_product(isl.Map.from_pw_aff(tile))
    where = where.flat_range_product(isl.Map.from_pw_aff(chunk)).intersect_domain(s.nest.domains["part_mac0"])
    assert sorted(points(where.range())) == [
        *((0, 0, c) for c in range(4)),
        (1, 0, 4),
        *((1, 1, c) for c in range(3)),
        *((2, 1, c) for c in (3, 4)),
    ]


@pf.nest
def mixed(A: f64[N, N], y: f64[N], z: f64[8], B: f64[8, 8]):
    for i in range(N):
        for j in range(N):
            y[i] += A[i, j]
    for i in range(8):
        for j in range(i + 1):
            z[i] += B[i, j]


@pytest.mark.parametrize(
    ("statement", "shares", "why"),
    [
        ("S0", Shares(4, 2), "sizes of S0 are known in a call only"),
        ("S1", Shares(4, 2), "not all results of S1 have the same steps"),
        ("S1", Shares(0, 2), "there is at least one share"),
        ("S1", Shares(4, 0), "at least one value along each dimension"),
        ("S1", Shares(4, 2, {"j": 2}), "j is not a dimension of the results of S1"),
        ("S1", Shares(4, 2, {"k": 2}), "k is not a dimension of the results of S1"),
    ],
)
def test_what_is_refused(statement: str, shares: Shares, why: str) -> None:
    refusal = why_not_split_reduction(mixed, statement, "j", shares=shares)
    assert refusal is not None
    assert str(shares) in refusal.rewrite
    with pytest.raises(IllegalRewrite, match=why) as error:
        split_reduction(mixed, statement, "j", shares=shares)
    assert error.value.refusal == refusal

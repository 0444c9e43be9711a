"""Eliminations in blocks of steps: the same numbers bit by bit, and what is refused; sums in their arrays."""

# ruff: noqa: F821, UP037

from __future__ import annotations

from math import sqrt

import islpy as isl
import numpy as np
import pytest

import polyfuse as pf
from papers.polybench import KERNELS
from polyfuse.errors import IllegalRewrite, ValidationFailure
from polyfuse.rewrite import expand, in_place, panels, why_not_panels
from polyfuse.rewrite.kept_order import turned_round
from polyfuse.sets import union_map
from tests.frontend.python.running import assert_close, by_python

lu = KERNELS["lu"].nest


@pf.nest
def upper(A: "f64[N, N]"):
    """A = U' U, whose sums on the diagonal read one element twice."""
    for i in range(N):
        for k in range(i):
            A[i, i] -= A[k, i] * A[k, i]
        A[i, i] = sqrt(A[i, i])
        for j in range(i + 1, N):
            for k in range(i):
                A[i, j] -= A[k, i] * A[k, j]
            A[i, j] /= A[i, i]


@pf.nest
def by_steps(A: "f64[N, N]"):
    """LU as it is written for a step after the other."""
    for k in range(N):
        for i in range(k + 1, N):
            A[i, k] /= A[k, k]
        for i in range(k + 1, N):
            for j in range(k + 1, N):
                A[i, j] = A[i, j] - A[i, k] * A[k, j]


@pf.nest
def solved(A: "f64[N, N]", B: "f64[N, M]"):
    """L X = B: rows are behind their steps, columns have nothing to do with them."""
    for i in range(N):
        for j in range(M):
            for k in range(i):
                B[i, j] -= A[i, k] * B[k, j]
            B[i, j] /= A[i, i]


@pf.nest
def in_variables(A: "f64[N, N]"):
    for i in range(N):
        for j in range(i):
            w = A[i, j]
            for k in range(j):
                w -= A[i, k] * A[k, j]
            A[i, j] = w / A[j, j]
        for j in range(i, N):
            w = A[i, j]
            for k in range(i):
                w -= A[i, k] * A[k, j]
            A[i, j] = w


BY = {
    "lu": (lu, {"S0": "[i, j, k, 1]", "S1": "[i, j, j, 0]", "S2": "[i, j, k, 2]"}, ("S0_rest",)),
    "upper": (
        upper,
        {"S0": "[i, i, k, 2]", "S1": "[i, i, i, 0]", "S2": "[i, j, k, 3]", "S3": "[i, j, i, 1]"},
        ("S2_rest",),
    ),
    "by steps": (by_steps, {"S0": "[i, k, k, 0]", "S1": "[i, j, k, 1]"}, ("S1_rest",)),
    "solved": (solved, {"S0": "[i, j, k, 1]", "S1": "[i, j, i, 0]"}, ("S0_rest",)),
}


def draw(nest: pf.Nest, n: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(n)
    a = rng.random((n, n))
    arrays = {"A": a @ a.T + n * np.eye(n), "B": rng.random((n, 5))}
    return {t.name: arrays[t.name] for t in nest.inputs}


@pytest.mark.parametrize(("n", "size"), [(1, 4), (4, 4), (7, 3), (10, 4), (9, 1), (6, 20)])
@pytest.mark.parametrize("name", BY)
def test_blocks_of_steps_give_the_same_numbers_bit_by_bit(name: str, n: int, size: int) -> None:
    nest, dates, updates = BY[name]
    done = panels(nest, dates, size)  # for all sizes
    assert done.updates == updates
    arrays = draw(nest, n)
    before, after = (pf.interpret(each, arrays) for each in (nest, done.nest))
    for tensor in before:
        np.testing.assert_array_equal(after[tensor], before[tensor])
    assert_close(after, by_python(nest, arrays))


def test_sums_that_do_the_same_are_one_and_each_region_runs_in_its_turn() -> None:
    done = panels(lu, BY["lu"][1], 64)
    assert str(done) == "blocks of 64 steps, S0_rest behind each block"
    names = [s.name for s in done.nest.statements]
    assert names == ["S1", "S0", "S1_below", "S0_below", "S0_right", "S0_rest"]
    solver = panels(solved, BY["solved"][1], 64).nest
    assert [s.name for s in solver.statements] == ["S1", "S0", "S0_rest"]
    text = str(done.nest.statement("S0_rest").domain)
    assert "0 <= k <= 63" in text
    assert str(done.nest.statement("S0_rest").reads[1]) == "A[64b + k, j]"


def test_fixed_sizes_without_anything_behind_a_block_are_refused() -> None:
    assert why_not_panels(lu.with_sizes({"N": 40}), BY["lu"][1], 32) is None
    refusal = why_not_panels(lu.with_sizes({"N": 30}), BY["lu"][1], 32)
    assert "no sum updates rows and columns behind a block of steps" in str(refusal)


@pytest.mark.parametrize(
    ("changed", "size", "why"),
    [
        ({}, 0, "a block has 0 steps"),
        ({}, 2.5, "a block has 2.5 steps"),
        ({"S1": "[i, j, 0]"}, 4, r"'\[i, j, 0\]' are not valid dates of S1"),
        ({"S1": "[i, j, j, k]"}, 4, "are not valid dates of S1"),
        ({"S1": "[i, j, j, i]"}, 4, "are not valid dates of S1"),
        ({"S1": "[i, 0, 0, 1]"}, 4, "are not valid dates of S1"),
    ],
)
def test_what_is_refused_is_said(changed: dict[str, str], size: float, why: str) -> None:
    with pytest.raises(IllegalRewrite, match=why):
        panels(lu, BY["lu"][1] | changed, size)


def test_statements_that_are_no_part_are_refused() -> None:
    assert "S0 are not exactly the statements of one outermost loop" in str(
        why_not_panels(lu, {"S0": "[i, j, k, 0]"}, 4)
    )


def test_an_order_that_turns_a_dependence_round_is_refused_with_the_two_instances() -> None:
    refusal = why_not_panels(lu, BY["lu"][1] | {"S1": "[i, j, 0, 0]"}, 4)
    assert refusal is not None
    assert "two instances would run in the wrong order" in str(refusal)
    assert [str(instance) for instance in refusal.instances] == ["S0[2, 1, 0]", "S1[2, 1]"]


def test_an_instance_that_would_not_run_is_no_rewrite() -> None:
    done = panels(lu, BY["lu"][1], 4)
    same = [isl.Map.identity(d.get_space().map_from_set()).intersect_domain(d) for d in lu.domains.values()]
    assert turned_round(lu, lu, union_map(same)) is None
    with pytest.raises(ValidationFailure, match="not every instance of the nest runs once"):
        turned_round(lu, lu, union_map(same[:-1]))
    with pytest.raises(ValidationFailure, match="not every instance"):
        turned_round(lu, done.nest, union_map(same))


def test_sums_in_variables_are_added_up_in_their_array() -> None:
    expanded = expand(in_variables).nest
    done = in_place(expanded)
    assert [str(t.name) for t in done.tensors] == ["A"]
    assert [s.name for s in done.statements] == ["S1", "S2", "S4"]  # S5 stored a sum where it is now
    arrays = draw(in_variables, 6)
    np.testing.assert_array_equal(pf.interpret(done, arrays)["A"], pf.interpret(expanded, arrays)["A"])
    assert in_place(done) is done


@pf.nest
def seen_meanwhile(A: "f64[N, N]", y: "f64[N, N]"):
    for i in range(N):
        for j in range(N):
            w = A[i, j]
            for k in range(j):
                w -= y[i, k]
            y[i, j] = A[i, j]
            A[i, j] = w


@pf.nest
def stored_elsewhere(A: "f64[N, N]", y: "f64[N, N]"):
    for i in range(N):
        for j in range(N - 1):
            w = A[i, j]
            for k in range(j):
                w -= y[i, k]
            A[i, j + 1] = w


@pf.nest
def not_always_stored(A: "f64[N, N]", y: "f64[N, N]"):
    for i in range(N):
        for j in range(N):
            w = A[i, j]
            for k in range(j):
                w -= y[i, k]
            if j > i:
                A[i, j] = w


@pf.nest
def read_twice(A: "f64[N, N]", y: "f64[N, N]"):
    for i in range(N):
        for j in range(N):
            w = A[i, j]
            for k in range(j):
                w -= y[i, k]
            A[i, j] = w
            y[i, j] = w


@pytest.mark.parametrize("nest", [seen_meanwhile, stored_elsewhere, not_always_stored, read_twice])
def test_sums_that_their_array_cannot_hold_stay_where_they_are(nest: pf.Nest) -> None:
    expanded = expand(nest).nest
    assert in_place(expanded) is expanded


def test_a_sum_that_reads_the_element_it_began_as_stays_where_it_is() -> None:
    @pf.nest
    def own(A: "f64[N, N]"):
        for i in range(N):
            for j in range(N):
                w = A[i, j]
                for k in range(N):
                    w += A[i, j] * A[k, k]
                A[i, j] = w

    expanded = expand(own).nest
    assert in_place(expanded) is expanded

"""Dependences that isl cannot find within its operations: the order as written, and an error with what is hard."""

from __future__ import annotations

from typing import Any, Literal

import islpy as isl
import numpy as np
import pytest

import polyfuse as pf
from polyfuse.analysis.validation import validate
from polyfuse.errors import BudgetExceeded, IllegalSchedule
from polyfuse.ir import Nest, Tensor, statement
from polyfuse.ir.dependences import earlier, no_fewer_pairs
from polyfuse.sets import union_map


def scattered() -> Nest:
    """A nest whose divisor isl cannot deal with: 28 s without a limit."""
    domain = "[N, M] -> { S0[i, j] : 0 <= i < N and 0 <= j < M }"
    tensors = (Tensor("x", ("N", "M"), "float32", "input"), Tensor("a", (65521,), "float32", "inout"))
    return Nest.of(
        tensors, (statement(domain, "a[(1000003 * i + 999983 * j) % 65521] = x[i, j]"),), name="scattered"
    )


def test_the_error_names_the_access(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polyfuse.ir.nest.DEPENDENCE_OPERATIONS", (1000, 500))
    nest = scattered()
    for _ in range(2):  # what was not found is not asked for again
        with pytest.raises(
            BudgetExceeded, match=r"more than 2000 operations \(a\[.* mod 65521\] in S0 has 1 quotient or"
        ):
            nest.dependences()


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_compile_keeps_the_order_as_written_and_says_so(
    monkeypatch: pytest.MonkeyPatch, target: Literal["cpu", "cuda"]
) -> None:
    monkeypatch.setattr("polyfuse.ir.nest.DEPENDENCE_OPERATIONS", (100, 50))
    place: dict[str, Any] = {"device": "lockstep", "machine": "h200"} if target == "cuda" else {}
    net = pf.compile(scattered(), target=target, sizes={"N": 3, "M": 4}, **place)
    assert "order as written is kept" in net.explain()
    assert "the dependences of scattered are too many for isl" in net.explain()
    x, a = np.arange(12, dtype=np.float32).reshape(3, 4), np.zeros(65521, np.float32)
    expected = a.copy()
    for i in range(3):
        for j in range(4):
            expected[(1000003 * i + 999983 * j) % 65521] = x[i, j]
    net(x, a)
    np.testing.assert_array_equal(a, expected)


def test_pairs_in_order_are_no_fewer_than_the_dependences() -> None:
    texts = (
        "a[(5 * i + 3 * j) % 7] += x[i, j]",
        "b[i + j // 2] = a[(i + j) % 9] * x[i, j]",
        "a[j // 3 + i] = b[2 * i]",
        "a[(5 * i) % 11] += b[j]",
    )
    domains = (f"[N] -> {{ S{k}[i, j] : 0 <= i < N and 0 <= j < 6 and (i + j) mod 2 = 0 }}" for k in range(4))
    tensors = (
        Tensor("x", ("N", 6), "float32", "input"),
        Tensor("a", ("N + 11",), "float32", "inout"),
        Tensor("b", ("2 * N + 6",), "float32", "inout"),
    )
    nest = Nest.of(
        tensors,
        [statement(d, t) for d, t in zip(domains, texts, strict=True)],
        context="[N] -> { : 1 <= N <= 9 }",
    )
    exact, more = nest.dependences(), no_fewer_pairs(nest.accesses, nest.original_dates())
    every = with_one_element(nest)
    for (kind, fewer), (_, pairs) in zip(exact.kinds(), more.kinds(), strict=True):
        assert fewer.is_subset(pairs), kind
        assert not fewer.is_empty(), kind
        assert pairs.is_subset(earlier(every, every, nest.original_dates())), kind


def test_without_divisors_any_two_instances_meet() -> None:
    box = "0 <= i < 6 and i mod 2 = 0"
    nest = Nest.of(
        (Tensor("a", (7,), "float32", "inout"), Tensor("b", (7,), "float32", "inout")),
        [
            statement(f"{{ S[i] : {box} }}", "a[(5 * i) % 7] = b[i]"),
            statement(f"{{ T[i] : {box} }}", "a[(3 * i) % 7] += b[i + 1]"),
            statement(f"{{ U[i] : {box} }}", "b[i] = a[i]"),
        ],
    )
    found = no_fewer_pairs(nest.accesses, nest.original_dates())
    even = "i mod 2 = 0 and j mod 2 = 0 and 0 <= i, j < 6"
    for pairs, expected in (
        (found.flow, f"S[i] -> T[j] : {even}; S[i] -> U[j] : {even}; T[i] -> U[j] : {even}"),
        (found.anti, f"S[i] -> U[i] : {box}"),
        (found.output, f"S[i] -> S[j] : i < j and {even}; S[i] -> T[j] : {even}"),
        (found.reduction, f"T[i] -> T[j] : i < j and {even}"),
    ):
        assert pairs.is_equal(isl.UnionMap(f"{{ {expected} }}")), str(pairs)


def with_one_element(nest: Nest) -> isl.UnionMap:
    """Every instance with one element that all have."""
    return union_map(
        isl.Map.from_domain_and_range(domain, isl.Set("{ one[] }")) for domain in nest.domains.values()
    )


def test_a_schedule_by_hand_keeps_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polyfuse.ir.nest.DEPENDENCE_OPERATIONS", (1000, 500))
    nest = scattered()
    with pytest.raises(IllegalSchedule, match="reverse"):
        pf.Schedule(nest).reverse("S0", "j")
    split = pf.Schedule(nest).split("S0", "j", 4)
    validate(split.source, split.nest, split.tree)
    with pytest.raises(BudgetExceeded, match="the dependences of scattered are too many for isl"):
        nest.flow_through("a")


def test_a_nest_is_not_asked_again_where_its_dependences_were_not_found() -> None:
    fresh = scattered().no_longer_asked()
    with pytest.raises(BudgetExceeded, match="the dependences of scattered are too many for isl"):
        fresh.dependences()
    assert fresh.pairs_in_order.pairs
    found = Nest.of(
        (Tensor("y", (3,), "float32", "output"),), (statement("{ S[i] : 0 <= i < 3 }", "y[i] = 0"),)
    )
    assert found.pairs_in_order is found.dependences()
    assert found.no_longer_asked() is found

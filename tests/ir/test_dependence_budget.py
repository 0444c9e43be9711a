"""Dependences that isl cannot find within its operations are an error that names what is too hard."""

from __future__ import annotations

import pytest

import polyfuse as pf
from polyfuse.errors import BudgetExceeded
from polyfuse.ir import Nest, Tensor, statement


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


def test_compile_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polyfuse.ir.nest.DEPENDENCE_OPERATIONS", (1000, 500))
    with pytest.raises(BudgetExceeded, match="the dependences of scattered are too many for isl"):
        pf.compile(scattered(), target="cpu")

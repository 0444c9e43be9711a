"""Statements of a pipeline that have to wait: sinks of what comes from another value, both sides of a reduction."""

from __future__ import annotations

import numpy as np

import polyfuse as pf
from polyfuse.analysis.doacross import waiting
from polyfuse.ir.tree import loops

# ruff: noqa: F821


def test_only_sinks_of_other_values_wait_and_both_updates_of_a_sum_do() -> None:
    @pf.nest
    def steps(x: f64[L, T], y: f64[L, T], total: f64[1]):
        for l in range(L):  # noqa: E741
            for t in range(T):
                total[0] += x[l, t]
                if l < L - 1:
                    total[0] += np.abs(x[l, t])

    first = next(loops(steps.order))
    reductions = tuple(pair for pair in steps.dependences().pairs if pair.source != pair.sink)
    assert {pair.kind for pair in reductions} == {"reduction"}
    assert waiting(first, reductions[:1]) == {"S0", "S1"}

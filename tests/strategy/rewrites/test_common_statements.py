"""Equal statements in a compile: found, priced, kept apart where memory or the caller asks for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.machine import Machine
from polyfuse.strategy.candidates import Choose, Wish
from polyfuse.strategy.remarks import Reason
from polyfuse.strategy.rewrites import common_statements
from polyfuse.strategy.rewrites.common_statements import PASS, computed_once

# ruff: noqa: F821

ZEN5 = Machine.preset("zen5")


def histograms(x: Any, w: Any) -> Any:
    counts = np.histogram(x, 10)[0]
    weights = np.histogram(x, 10, weights=w)[0]
    return weights / counts


def deviations(x: Any) -> Any:
    return np.mean(x, axis=0), np.std(x, axis=0)


X = np.random.default_rng(1).random((400, 30))


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_bins_are_found_once(target) -> None:
    nest = pf.nest(histograms, types={"x": "f64[40000]", "w": "f64[40000]"})
    nest = pf.rewrite.expand(nest).nest
    made, (said,) = computed_once(nest, ZEN5 if target == "cpu" else Machine.preset("h200"))
    assert said.taken
    assert "bin for bin_1" in said.text
    assert len(nest.statements) - len(made.statements) == 12


def test_numbers_stay_the_same() -> None:
    x, w = np.random.default_rng(0).random((2, 40000))
    net = pf.compile(histograms, example=(x, w), target="cpu")
    apart = pf.compile(histograms, example=(x, w), target="cpu", force={PASS: False})
    assert any(r.pass_ == PASS and r.taken for r in net.explain().remarks)
    assert not any(r.pass_ == PASS for r in apart.explain().remarks)
    assert "share" in net.schedule.trace(), "a step that a user can repeat"
    np.testing.assert_array_equal(net(x, w), apart(x, w))
    np.testing.assert_allclose(net(x, w), histograms(x, w), rtol=1e-12)


def test_a_mean_is_summed_once() -> None:
    net = pf.compile(deviations, example=(X,), target="cpu", force={PASS: True})
    assert any(r.pass_ == PASS and r.taken for r in net.explain().remarks)
    for found, expected in zip(net(X), deviations(X), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def far_apart(x: f64[N, N], y: f64[N, N], z: f64[N, N]):
    a = np.exp(x)
    b = np.sin(a @ a)
    c = np.cos(b @ b)
    y[:] = b @ c
    d = np.exp(x)
    z[:] = d @ d.T


def test_values_that_would_be_kept_for_longer_are_computed_again() -> None:
    nest = pf.rewrite.expand(pf.nest(far_apart)).nest.with_sizes({"N": 500})
    made, (said,) = computed_once(nest, ZEN5)
    assert made is nest
    assert said.reason is Reason.DEARER
    assert "take more memory at once" in said.text
    small = pf.rewrite.expand(pf.nest(far_apart)).nest.with_sizes({"N": 20})
    made, (said,) = computed_once(small, ZEN5)
    assert said.taken, "what fits into the first cache is kept"


def test_statements_without_equal_bodies_are_not_looked_at(monkeypatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("a key was asked for")

    monkeypatch.setattr(common_statements, "_key", never)
    nest = pf.lower(pf.nn.relu(pf.nn.input("x", (8, 8))))
    assert computed_once(nest, ZEN5) == (nest, ())


def test_a_caller_can_leave_statements_out() -> None:
    nest = pf.rewrite.expand(pf.nest(far_apart)).nest.with_sizes({"N": 20})
    _, (said,) = computed_once(nest, ZEN5)
    choose = Choose(wishes=(Wish(PASS, frozenset(said.statements), False),))
    assert computed_once(nest, ZEN5, choose) == (nest, ())

"""Sums that go on where others began them, added up in temporaries of their own: the same values in the same order."""

from __future__ import annotations

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.ir.tree import loops_around
from polyfuse.rewrite import own_sums
from tests.frontend.python.running import defined


def recurrent(layer: nn.Module) -> pf.Nest:
    return pf.lower(nn.Sequential(layer), batch=3, features=(4, 5))


@pytest.mark.parametrize("layer", [nn.LSTM(5, 7), nn.RNN(5, 7)], ids=["LSTM", "RNN"])
def test_a_recurrent_product_is_summed_apart_bit_by_bit_alike(layer: nn.Module) -> None:
    nest = recurrent(layer)
    made = own_sums(nest, "step0")
    assert made is not None
    made.check()
    x = np.random.default_rng(1).standard_normal((3, 4, 5)).astype(np.float32)
    assert (pf.interpret(made, [x])["out"] == pf.interpret(nest, [x])["out"]).all()
    copies = [len(loops_around(made.order, name)) for name in ("begin_step0", "end_step0")]
    assert copies == [3, 3]  # time, rows and units, but no steps of the product
    assert made.dependences().pairs  # taken over, and found anew for what changed


def test_what_reads_its_own_sums_is_left_alone() -> None:
    nest = defined(
        """
@pf.nest
def solved(a: "f64[N, N]", x: "f64[N]"):
    for i in range(N):
        for k in range(i):
            x[i] -= a[i, k] * x[k]
"""
    )
    (name,) = (s.name for s in nest.statements)
    assert own_sums(nest, name) is None


def test_what_is_no_sum_is_left_alone() -> None:
    nest = recurrent(nn.RNN(5, 7))
    assert own_sums(nest, "start0") is None


def test_copies_stand_outside_all_loops_over_steps() -> None:
    nest = defined(
        """
@pf.nest
def total(a: "f64[T, N, K]", y: "f64[N]"):
    for t in range(T):
        for i in range(N):
            for k in range(K):
                y[i] += a[t, i, k]
"""
    ).with_sizes({"T": 2, "N": 3, "K": 4})
    (name,) = (s.name for s in nest.statements)
    made = own_sums(nest, name)
    assert made is not None
    made.check()
    assert [len(loops_around(made.order, s.name)) for s in made.statements] == [1, 3, 1]
    rng = np.random.default_rng(2)
    arrays = {"a": rng.standard_normal((2, 3, 4)), "y": rng.standard_normal(3)}
    one, other = (pf.interpret(n, {**arrays})["y"] for n in (nest, made))
    assert (one == other).all()


def test_results_that_lie_apart_lie_side_by_side_in_their_temporary() -> None:
    draw = np.random.default_rng(1)
    w = draw.standard_normal((3, 2, 4, 4)).astype(np.float32)
    nest = pf.lower(nn.conv_transpose(nn.input("x", (1, 3, 5, 6)), w, stride=2, padding=1))
    sums = [s.name for s in nest.statements if s.is_reduction]
    assert len(sums) == 4
    made = own_sums(nest, sums[0])
    assert made is not None
    made.check()
    total = made.statement(sums[0]).write
    assert (made.tensor(total.tensor).shape, str(total)) == ((1, 2, 5, 6), f"{total.tensor}[i, j, k, l]")
    x = draw.standard_normal((1, 3, 5, 6)).astype(np.float32)
    assert (pf.interpret(made, [x])["out"] == pf.interpret(nest, [x])["out"]).all()

"""Gradients under a limit of memory: what is kept, what is computed again, the same numbers, and what is refused."""

# ruff: noqa: F821

from __future__ import annotations

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn, optim
from polyfuse.rewrite import reverse

LAYERS, WIDTH, BATCH = 3, 64, 32
VALUE = BATCH * WIDTH * 4
"""The bytes of what a layer computes."""


def layers() -> pf.Nest:
    x = nn.input("x", (BATCH, WIDTH))
    for layer in range(LAYERS):
        x = nn.tanh(nn.relu(nn.matmul(x, nn.input(f"w{layer}", (WIDTH, WIDTH)))))
    return nn.lower(nn.mean(x * x))


def arguments() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {t.name: rng.normal(size=t.shape).astype("float32") / 8 for t in layers().inputs}


def test_without_a_limit_that_binds_everything_is_kept() -> None:
    found = reverse(layers(), seeded=True)
    kept = optim.kept_values(found, 10**9, "zen5")
    assert kept.bytes == 2 * LAYERS * VALUE
    assert str(kept.nest) == str(found.nest)
    assert not any(remark.taken for remark in kept.remarks)


@pytest.mark.parametrize("values", [4, 1, 0])
def test_a_limit_is_met_by_computing_again_with_the_same_numbers(values: int) -> None:
    found, given = reverse(layers(), seeded=True), arguments()
    kept = optim.kept_values(found, values * VALUE + 10, "zen5")
    assert kept.bytes <= values * VALUE
    again = [remark for remark in kept.remarks if remark.taken]
    assert len(again) >= 2 * LAYERS - values
    assert all(remark.seconds is not None and "to compute it again" in remark.text for remark in kept.remarks)
    if values == 4:  # a function of each element is computed again, and no product
        assert all(remark.seconds[0] < 5e-6 for remark in again if remark.seconds is not None)
    plain, other = pf.interpret(found.nest, given), pf.interpret(kept.nest, given)
    for name, gradient in plain.items():
        np.testing.assert_array_equal(other[name], gradient)
    assert str(pf.grad(layers(), memory=values * VALUE + 10, machine="zen5")) == str(kept.nest)


@pf.nest
def logistic(x: f64[8], r: f64[8]):
    for _t in range(4):
        for i in range(8):
            x[i] = r[i] * x[i] * (1.0 - x[i])


def test_a_limit_that_no_choice_meets_says_the_least_that_does() -> None:
    least = 4 * 8 * 8
    with pytest.raises(
        pf.BadArgument, match=f"memory=100, but .* at least {least} bytes .*: memory={least} does"
    ):
        pf.vjp(logistic, values=True, memory=100)
    assert pf.vjp(logistic, values=True, memory=least).tensors
    assert pf.vjp(logistic, memory=0).tensors, "x is there, and nobody asks for its last value"
    with pytest.raises(pf.BadArgument, match="expected a number of bytes"):
        pf.vjp(logistic, memory=-1)
    with pytest.raises(pf.BadArgument, match="over N: how large values are is not known"):
        pf.grad(nn.lower(nn.mean(nn.tanh(nn.tanh(nn.input("x", ("N",)))))), memory=100)


def test_a_step_under_a_limit_trains_as_one_without() -> None:
    x, y = nn.input("x", (16, 4)), nn.input("y", (16, 1))
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1, seed=1))
    loss = nn.lower(nn.mse_loss(model(x), y))
    names, rng = tuple(loss.constants), np.random.default_rng(1)
    usual, limited = (
        optim.with_update(loss, names, optim.SGD(0.1), limit=limit) for limit in (None, (0, "zen5"))
    )
    assert not usual.remarks
    assert any(remark.taken for remark in limited.remarks)
    given = {t.name: rng.normal(size=t.shape).astype(t.dtype) for t in usual.nest.inputs}
    plain, other = (pf.interpret(each.nest, given) for each in (usual, limited))
    for name, value in plain.items():
        np.testing.assert_array_equal(other[name], value)

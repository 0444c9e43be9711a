"""Losses: their values by NumPy written out, their gradients by central differences, what they refuse."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from tests.support.gradients import agrees

Array = Any

WEIGHT = np.array([0.5, 2.0, 1.0])
X, Y = nn.input("x", (4, 3), "float64"), nn.input("y", (4, 3), "float64")
T = nn.input("t", (4,), "int64")
IMAGES, LABELS = nn.input("x", (2, 3, 4), "float64"), nn.input("t", (2, 4), "int64")


def log_softmax(x: Array) -> Array:
    return x - x.max(1, keepdims=True) - np.log(np.exp(x - x.max(1, keepdims=True)).sum(1, keepdims=True))


def own(x: Array, t: Array) -> Array:
    return -np.take_along_axis(x, np.expand_dims(t, 1), 1).squeeze(1)


def smooth(d: Array, beta: float) -> Array:
    return np.where(d < beta, d * d / (2 * beta), d - beta / 2)


CASES: dict[str, tuple[nn.Value, Callable[[Array, Array], Array]]] = {
    "cross_entropy": (nn.cross_entropy(X, T), lambda x, t: own(log_softmax(x), t).mean()),
    "cross_entropy, weighted": (
        nn.cross_entropy(X, T, WEIGHT),
        lambda x, t: (own(log_softmax(x), t) * WEIGHT[t]).sum() / WEIGHT[t].sum(),
    ),
    "cross_entropy of images": (
        nn.cross_entropy(IMAGES, LABELS, reduction="none"),
        lambda x, t: own(log_softmax(x), t),
    ),
    "cross_entropy of probabilities": (
        nn.cross_entropy(X, Y),
        lambda x, y: -(y * log_softmax(x)).sum(1).mean(),
    ),
    "nll_loss": (nn.nll_loss(X, T, reduction="sum"), lambda x, t: own(x, t).sum()),
    "mse_loss": (nn.mse_loss(X, Y), lambda x, y: ((x - y) ** 2).mean()),
    "l1_loss": (nn.l1_loss(X, Y, "sum"), lambda x, y: abs(x - y).sum()),
    "smooth_l1_loss": (nn.smooth_l1_loss(X, Y, 0.5), lambda x, y: smooth(abs(x - y), 0.5).mean()),
    "smooth_l1_loss, beta 0": (nn.smooth_l1_loss(X, Y, 0), lambda x, y: abs(x - y).mean()),
    "binary_cross_entropy_with_logits": (
        nn.binary_cross_entropy_with_logits(X, Y, "none"),
        lambda x, y: np.maximum(x, 0) - x * y + np.log1p(np.exp(-abs(x))),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name: str) -> None:
    loss, reference = CASES[name]
    nest = pf.lower(loss)
    rng = np.random.default_rng(3)
    x, target = (
        rng.integers(0, 3, t.shape) if t.dtype == "int64" else rng.normal(size=t.shape) for t in nest.inputs
    )
    np.testing.assert_allclose(
        pf.interpret(nest, {nest.inputs[0].name: x, nest.inputs[1].name: target})["out"],
        reference(x, target),
        rtol=1e-13,
    )
    agrees(nest)


def test_layers_are_the_functions() -> None:
    for layer, function in (
        (nn.CrossEntropyLoss(WEIGHT), nn.cross_entropy(X, T, WEIGHT)),
        (nn.NLLLoss(reduction="sum"), nn.nll_loss(X, T, reduction="sum")),
    ):
        assert str(pf.lower(layer(X, T))) == str(pf.lower(function))
        assert layer.target_like(IMAGES) == ((2, 4), "int64")
    for layer, function in (
        (nn.MSELoss("sum"), nn.mse_loss(X, Y, "sum")),
        (nn.L1Loss(), nn.l1_loss(X, Y)),
        (nn.SmoothL1Loss(0.25), nn.smooth_l1_loss(X, Y, 0.25)),
        (nn.BCEWithLogitsLoss(), nn.binary_cross_entropy_with_logits(X, Y)),
    ):
        assert str(pf.lower(layer(X, Y))) == str(pf.lower(function))
        assert layer.target_like(X) == ((4, 3), "float64")


def test_extreme_scores_are_finite() -> None:
    x, y = np.array([[1e4, -1e4, 0.0]] * 4), np.array([[0.0, 1.0, 0.5]] * 4)
    for loss in (nn.cross_entropy(X, Y), nn.binary_cross_entropy_with_logits(X, Y)):
        nest = pf.lower(loss)
        order = {"x": x, "y": y}
        found = pf.interpret(pf.grad(nest, wrt="x", values=True), order)
        assert all(np.isfinite(value).all() for value in found.values())
    slope = pf.interpret(pf.grad(pf.lower(nn.binary_cross_entropy_with_logits(X, Y, "sum")), "x"), order)
    np.testing.assert_allclose(slope["x_grad"], [[1.0, -1.0, 0.0]] * 4, atol=1e-15)


def test_a_smooth_absolute_error_passes_nan_on() -> None:
    x, y = np.full((4, 3), np.nan), np.zeros((4, 3))
    found = pf.interpret(pf.grad(pf.lower(nn.smooth_l1_loss(X, Y)), values=True), {"x": x, "y": y})
    assert all(np.isnan(value).all() for value in found.values())


def test_numbers_that_are_no_classes_are_refused_by_the_call() -> None:
    net = pf.compile(pf.lower(nn.nll_loss(X, T)))
    with pytest.raises(pf.BadArgument, match="t\\[3\\] is 3, expected 0 <= t\\[3\\] < 3"):
        net(np.zeros((4, 3)), np.array([0, 1, 2, 3]))


@pytest.mark.parametrize(
    ("loss", "why"),
    [
        (lambda: nn.mse_loss(X, nn.input("y", (3,), "float64")), "must have the shape of x"),
        (lambda: nn.nll_loss(X, nn.input("t", (3,), "int64")), "do not fit the scores"),
        (lambda: nn.nll_loss(X, Y), "does not hold class numbers"),
        (lambda: nn.nll_loss(X, T, np.ones(4)), "weights are"),
        (lambda: nn.l1_loss(X, Y, "max"), "reduction is 'max'"),  # type: ignore[arg-type]
        (lambda: nn.smooth_l1_loss(X, Y, -1.0), "at least 0"),
        (lambda: nn.cross_entropy(X, Y, WEIGHT), "for class numbers"),
        (lambda: nn.MSELoss()(np.ones(3), X), "expected values"),  # type: ignore[arg-type]
    ],
)
def test_refusals(loss: Callable[[], object], why: str) -> None:
    with pytest.raises(pf.BadArgument, match=why):
        loss()

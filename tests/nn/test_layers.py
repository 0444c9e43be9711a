"""Every layer against NumPy formulas written down independently."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.errors import BadArgument
from polyfuse.interpret import interpret

Array = np.ndarray[Any, Any]
erf = np.vectorize(math.erf, otypes=[np.float64])


def softmax(x: Array, axis: int) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def normal(x: Array, axes: tuple[int, ...], eps: float = 1e-5) -> Array:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


ACTIVATIONS: dict[str, tuple[nn.Module, Callable[[Array], Array]]] = {
    "relu": (nn.ReLU(), lambda x: x * (x > 0)),
    "leaky": (nn.LeakyReLU(0.2), lambda x: np.where(x > 0, x, 0.2 * x)),
    "tanh": (nn.Tanh(), np.tanh),
    "sigmoid": (nn.Sigmoid(), lambda x: 0.5 * (1 + np.tanh(x / 2))),
    "gelu": (nn.GELU(), lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2)))),
    "gelu_tanh": (
        nn.GELU("tanh"),
        lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    ),
    "silu": (nn.SiLU(), lambda x: x * 0.5 * (1 + np.tanh(x / 2))),
    "softmax": (nn.Softmax(), lambda x: softmax(x, -1)),
    "softmax_0": (nn.Softmax(axis=0), lambda x: softmax(x, 0)),
    "log_softmax": (nn.LogSoftmax(), lambda x: np.log(softmax(x, -1))),
    "log_softmax_0": (nn.LogSoftmax(axis=0), lambda x: np.log(softmax(x, 0))),
    "residual": (nn.Residual(nn.Tanh()), lambda x: np.tanh(x) + x),
    "nothing": (nn.Sequential(), lambda x: x),
}
SHAPES = [(4, 7), (1, 1), (3, 5, 9), (2, 3, 4, 5), (6,)]


def tolerance(dtype: str) -> float:
    return 2e-6 if dtype == "float32" else 1e-13


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_layers_without_weights(name: str, shape: tuple[int, ...], dtype: str) -> None:
    module, formula = ACTIVATIONS[name]
    x = (3 * np.random.default_rng(0).standard_normal(shape)).astype(dtype)
    nest = nn.lower(module, batch=shape[:-1], features=shape[-1], dtype=dtype)
    found = interpret(nest, [x])["out"]
    assert (found.dtype, found.shape) == (x.dtype, x.shape)
    np.testing.assert_allclose(
        found, formula(x.astype(np.float64)), rtol=tolerance(dtype), atol=tolerance(dtype)
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch", [(), 3, (0,), (2, 3), (2, 1, 4)])
@pytest.mark.parametrize(("features", "out"), [(7, 5), (1, 3), (33, 1)])
def test_linear(features: int, out: int, batch: Any, bias: bool, dtype: str) -> None:
    layer = nn.Linear(features, out, bias=bias, dtype=dtype)
    nest = nn.lower(layer, batch=batch)
    x = np.random.default_rng(0).standard_normal(nest.tensor("x").shape).astype(dtype)
    expected = np.einsum("...k,kj->...j", x.astype(np.float64), layer.weight)
    if layer.bias is not None:
        expected = expected + layer.bias
    found = interpret(nest, [x])["out"]
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, rtol=10 * tolerance(dtype), atol=10 * tolerance(dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("shape", "normalized"), [((4, 7), 7), ((2, 3, 5), (3, 5)), ((0, 3), 3), ((2, 2, 1), 1)]
)
@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm(shape: tuple[int, ...], normalized: Any, affine: bool, dtype: str) -> None:
    layer = nn.LayerNorm(normalized, eps=1e-3, affine=affine, dtype=dtype)
    rng = np.random.default_rng(0)
    if layer.gamma is not None and layer.beta is not None:
        layer.gamma[...], layer.beta[...] = rng.random(layer.gamma.shape), rng.random(layer.gamma.shape)
    rank = len(layer.normalized_shape)
    x = (5 + rng.standard_normal(shape)).astype(dtype)
    expected = normal(x.astype(np.float64), tuple(range(-rank, 0)), 1e-3)
    if affine:
        expected = expected * layer.gamma + layer.beta
    nest = nn.lower(layer, batch=shape[: len(shape) - rank], dtype=dtype)
    found = interpret(nest, [x])["out"]
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, rtol=20 * tolerance(dtype), atol=20 * tolerance(dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("shape", "normalized"), [((4, 7), 7), ((2, 3, 5), (3, 5))])
@pytest.mark.parametrize("affine", [True, False])
def test_rms_norm(shape: tuple[int, ...], normalized: Any, affine: bool, dtype: str) -> None:
    layer = nn.RMSNorm(normalized, eps=1e-3, affine=affine, dtype=dtype)
    rng = np.random.default_rng(0)
    if layer.gamma is not None:
        layer.gamma[...] = rng.random(layer.gamma.shape)
    axes = tuple(range(-len(layer.normalized_shape), 0))
    x = (5 + rng.standard_normal(shape)).astype(dtype)
    wide = x.astype(np.float64)
    expected = wide / np.sqrt((wide * wide).mean(axes, keepdims=True) + 1e-3)
    if layer.gamma is not None:
        expected = expected * layer.gamma
    nest = nn.lower(layer, batch=shape[: len(shape) + axes[0]], dtype=dtype)
    found = interpret(nest, [x])["out"]
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, rtol=20 * tolerance(dtype), atol=20 * tolerance(dtype))


@pytest.mark.parametrize("name", ["relu", "leaky", "tanh", "sigmoid", "gelu", "gelu_tanh"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nan_and_infinity_pass_through(name: str, dtype: str) -> None:
    module, _ = ACTIVATIONS[name]
    low = {"relu": 0, "leaky": -math.inf, "tanh": -1, "sigmoid": 0, "gelu": math.nan, "gelu_tanh": math.nan}[
        name
    ]
    high = {"tanh": 1, "sigmoid": 1}.get(name, math.inf)
    x = np.array([math.nan, math.inf, -math.inf, 0], dtype)
    zero = 0.5 if name == "sigmoid" else 0
    found = interpret(nn.lower(module, batch=(), features=4, dtype=dtype), [x])["out"]
    np.testing.assert_array_equal(found, np.array([math.nan, high, low, zero], dtype))


def test_nan_spoils_its_own_row_only() -> None:
    x = np.ones((3, 4), np.float32)
    x[1, 2] = np.nan
    model = nn.Sequential(nn.Linear(4, 4), nn.Softmax(), nn.LayerNorm(4), nn.LogSoftmax())
    found = interpret(nn.lower(model, batch=3), [x])["out"]
    assert np.isnan(found).tolist() == [[False] * 4, [True] * 4, [False] * 4]


def test_softmax_of_large_numbers_is_stable() -> None:
    x = np.array([[1e4, 1e4 - 1, -1e4]], np.float32)
    for module in (nn.Softmax(), nn.LogSoftmax()):
        found = interpret(nn.lower(module, batch=1, features=3), [x])["out"]
        assert np.isfinite(found).all()
    np.testing.assert_allclose(np.exp(found[0, :2]).sum(), 1, rtol=1e-6)


def test_a_batch_of_none_gives_a_result_of_none() -> None:
    model = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.LayerNorm(4), nn.Softmax())
    found = interpret(nn.lower(model, batch=0), [np.empty((0, 5), np.float32)])["out"]
    assert (found.shape, found.dtype) == ((0, 4), np.float32)


def test_a_deep_network() -> None:
    rng = np.random.default_rng(0)
    layers = [nn.Linear(16, 16, seed=rng, dtype="float64") for _ in range(8)]
    model = nn.Sequential(*(part for layer in layers for part in (layer, nn.ReLU())))
    x = rng.standard_normal((3, 16))
    expected = x
    for layer in layers:
        expected = np.maximum(expected @ layer.weight + layer.bias, 0)
    found = interpret(nn.lower(model, batch=3), {"x": x})["out"]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_weights_are_drawn_by_shape_and_seed_alone() -> None:
    first, again, other = nn.Linear(9, 4, seed=3), nn.Linear(9, 4, seed=3), nn.Linear(9, 4, seed=4)
    assert np.array_equal(first.weight, again.weight)
    assert not np.array_equal(first.weight, other.weight)
    assert np.abs(first.weight).max() <= 1 / 3
    assert first.weight.dtype == np.float32
    assert nn.Linear(9, 4, bias=False).bias is None


def test_dropout_is_the_identity() -> None:
    with_it = nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.9), nn.ReLU())
    assert str(pf.lower(with_it, batch=2)) == str(
        pf.lower(nn.Sequential(nn.Linear(4, 5), nn.ReLU()), batch=2)
    )
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(
        pf.interpret(pf.lower(nn.Dropout(), batch=2, features=3), {"x": x})["out"], x
    )


def test_layers_print_as_they_are_made() -> None:
    model = nn.Sequential(nn.Linear(4, 5, bias=False), nn.Residual(nn.GELU("tanh")), nn.LayerNorm(5))
    assert repr(model) == (
        "Sequential(Linear(4, 5, bias=False, dtype='float32'), Residual(inner=GELU(approximate='tanh')), "
        "LayerNorm((5,), eps=1e-05, affine=True))"
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.Linear(0, 4), r"Linear\(0, 4\): both sizes must be at least 1"),
        (
            lambda: nn.Linear(4, 4, dtype="complex64"),
            "or bfloat16, not in 'complex64'",
        ),
        (lambda: nn.LayerNorm(()), "at least one size"),
        (lambda: nn.RMSNorm((4, 0)), r"RMSNorm\(\(4, 0\)\): at least one size"),
        (lambda: nn.Dropout(1.5), r"Dropout\(p=1.5\): expected a probability from 0 to 1"),
        (lambda: nn.gelu(nn.input("x", (2,)), "erf"), "approximate is 'erf', expected 'none' or 'tanh'"),  # type: ignore[arg-type]
        (lambda: nn.ReLU()(np.ones(3)), "ReLU was called with ndarray, expected a value such as nn.input"),  # type: ignore[arg-type]
        (lambda: nn.Softmax(axis=2)(nn.input("x", (2, 3))), "axis 2 of <input x: float32.* has 2 axes"),
    ],
)
def test_bad_layers_are_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(BadArgument, match=message):
        make()

"""Comparisons, choices, powers and activations against NumPy, with NaN, infinities and small numbers."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.testing import assert_allclose

import polyfuse as pf
from polyfuse import nn

X = np.array([-np.inf, -30, -2.5, -1, -1e-3, -1e-9, 0, 1e-9, 1e-3, 0.5, 1, 3, 19, 25, 90, np.inf, np.nan])
Y = np.array([1.0, -30, 0, 2, 0, 0.5, 0, -1, np.nan, 0.5, 2, -3, 1, 25, 1, np.inf, 0])


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(0, x)


def _erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf)(x)


UNARY: dict[str, tuple[Callable, Callable]] = {
    "abs": (nn.abs, np.abs),
    "sign": (nn.sign, lambda x: np.nan_to_num(np.sign(x), nan=0.0)),
    "square": (nn.square, np.square),
    "reciprocal": (nn.reciprocal, np.reciprocal),
    "rsqrt": (nn.rsqrt, lambda x: 1 / np.sqrt(x)),
    "erf": (nn.erf, _erf),
    "exp2": (nn.exp2, np.exp2),
    "log2": (nn.log2, np.log2),
    "log10": (nn.log10, np.log10),
    "log1p": (nn.log1p, np.log1p),
    "expm1": (nn.expm1, np.expm1),
    "isnan": (nn.isnan, np.isnan),
    "isinf": (nn.isinf, np.isinf),
    "relu6": (nn.relu6, lambda x: np.clip(x, 0, 6)),
    "hardsigmoid": (nn.hardsigmoid, lambda x: np.clip(x + 3, 0, 6) / 6),
    "hardswish": (nn.hardswish, lambda x: x * np.clip(x + 3, 0, 6) / 6),
    "elu": (nn.elu, lambda x: np.where(x > 0, x, np.expm1(x))),
    "celu": (lambda x: nn.elu(x, 2.0, 1.0, 0.5), lambda x: np.where(x > 0, x, 2 * np.expm1(x / 2))),
    "softplus": (nn.softplus, _softplus),
    "log_sigmoid": (nn.log_sigmoid, lambda x: -_softplus(-x)),
    "mish": (nn.mish, lambda x: x * np.tanh(_softplus(x))),
    "clamp": (lambda x: nn.clamp(x, -1, 2), lambda x: np.clip(x, -1, 2)),
    "at least": (lambda x: nn.clamp(x, low=0.5), lambda x: np.maximum(x, 0.5)),
    "at most": (lambda x: nn.clamp(x, high=0.5), lambda x: np.minimum(x, 0.5)),
    "tan": (nn.tan, np.tan),
    "asin": (nn.asin, np.arcsin),
    "acos": (nn.acos, np.arccos),
    "atan": (nn.atan, np.arctan),
    "sinh": (nn.sinh, np.sinh),
    "cosh": (nn.cosh, np.cosh),
    "asinh": (nn.asinh, np.arcsinh),
    "acosh": (nn.acosh, np.arccosh),
    "atanh": (nn.atanh, np.arctanh),
    "floor": (nn.floor, np.floor),
    "ceil": (nn.ceil, np.ceil),
    "trunc": (nn.trunc, np.trunc),
    "round": (nn.round, np.round),
    "cube": (lambda x: x**3, lambda x: x**3),
    "logical_not": (nn.logical_not, np.logical_not),
}

BINARY: dict[str, tuple[Callable, Callable]] = {
    "less": (nn.less, np.less),
    "less_equal": (nn.less_equal, np.less_equal),
    "greater": (nn.greater, np.greater),
    "greater_equal": (nn.greater_equal, np.greater_equal),
    "equal": (nn.equal, np.equal),
    "not_equal": (nn.not_equal, np.not_equal),
    "logical_and": (nn.logical_and, np.logical_and),
    "logical_or": (nn.logical_or, np.logical_or),
    "logical_xor": (nn.logical_xor, np.logical_xor),
    "fmod": (nn.fmod, np.fmod),
    "remainder": (nn.remainder, np.mod),
    "divided down": (lambda x, y: nn.divide(x, y, "floor"), lambda x, y: np.floor(x / y)),
    "divided to 0": (lambda x, y: nn.divide(x, y, "trunc"), lambda x, y: np.trunc(x / y)),
    "where": (lambda x, y: nn.where(nn.less(x, 1.0), y, x), lambda x, y: np.where(x < 1, y, x)),
}


@pytest.fixture(scope="module")
def computed() -> dict[str, np.ndarray]:
    """Every function of X and Y, by the oracle."""
    x, y = nn.input("x", X.shape, "float64"), nn.input("y", Y.shape, "float64")
    outputs = [ours(x) for ours, _ in UNARY.values()] + [ours(x, y) for ours, _ in BINARY.values()]
    with np.errstate(all="ignore"):
        results = pf.interpret(pf.lower(outputs), {"x": X, "y": Y})
    return dict(zip((*UNARY, *BINARY), results.values(), strict=True))


@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_is_what_numpy_computes(computed: dict[str, np.ndarray], name: str) -> None:
    with np.errstate(all="ignore"):
        want = UNARY[name][1](X) if name in UNARY else BINARY[name][1](X, Y)
    finite = np.isfinite(X)  # formulas by parts give NaN at infinities where NumPy may have a limit
    limits = name in ("elu", "celu", "softplus", "log_sigmoid", "mish", "hardswish", "expm1", "log1p")
    kept = finite if limits else np.ones(X.shape, bool)
    assert_allclose(computed[name][kept], want[kept].astype(float), rtol=1e-12, atol=0)


def test_limits_of_what_falls_off(computed: dict[str, np.ndarray]) -> None:
    """At inf, where no formula loses the limit; NaN stays NaN."""
    last = int(np.flatnonzero(np.inf == X)[0])
    for name in ("elu", "softplus", "log1p", "expm1"):
        assert computed[name][last] == np.inf
    for name in ("elu", "softplus", "log_sigmoid", "mish", "log1p", "expm1", "hardswish"):
        assert np.isnan(computed[name][-1])


def test_compiled_in_float32() -> None:
    x = nn.input("x", (40,))
    net = pf.compile(
        pf.lower(nn.where(nn.greater(x, 0.0), nn.mish(x), nn.expm1(x)) + nn.softplus(x, beta=2.0))
    )
    given = np.linspace(-12, 12, 40, dtype="float32")
    wide = given.astype("float64")
    want = np.where(wide > 0, wide * np.tanh(_softplus(wide)), np.expm1(wide)) + _softplus(2 * wide) / 2
    assert_allclose(net(given), want, rtol=2e-6, atol=1e-7)


def test_products_over_axes() -> None:
    given = np.arange(1.0, 13).reshape(3, 4).astype("float32")
    x = nn.input("x", given.shape)
    results = pf.interpret(pf.lower([nn.prod(x, 1), nn.prod(x, 0, keepdims=True), nn.prod(x)]), {"x": given})
    for found, want in zip(
        results.values(), (given.prod(1), given.prod(0, keepdims=True), given.prod()), strict=True
    ):
        assert_allclose(found, want, rtol=1e-6)


def test_clamp_needs_a_bound() -> None:
    with pytest.raises(pf.BadArgument, match="lower bound"):
        nn.clamp(nn.input("x", (3,)))


def test_named_constants_keep_their_names_and_memory() -> None:
    weights = np.ones((3, 2), "float32")
    w = nn.constant(weights, "layers_0_weight")
    nest = pf.lower(nn.linear(nn.linear(nn.input("x", (4, 3)), w), nn.transpose(w)))
    assert list(nest.constants) == ["layers_0_weight"]
    assert nest.constants["layers_0_weight"] is weights
    with pytest.raises(pf.BadArgument, match="two tensors would be named 'x'"):
        pf.lower(nn.linear(nn.input("x", (4, 3)), nn.constant(weights, "x")))
    with pytest.raises(pf.BadArgument, match=r"constant name '0\.weight' is not a free identifier"):
        nn.constant(weights, "0.weight")

"""Operators and methods of values against NumPy's of arrays; torch's names of arguments."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import polyfuse as pf
from polyfuse import nn
from polyfuse.errors import BadArgument

X = np.array([[-2.5, -1.0, 0.0], [1.0, 2.5, np.nan]])

CASES: dict[str, tuple[Callable, Callable]] = {
    "abs": (lambda x: x.abs(), np.abs),
    "power": (lambda x: x**2 + 2.0**x, lambda x: x**2 + 2.0**x),
    "less": (lambda x: x < 1, lambda x: x < 1),
    "at most": (lambda x: x <= x[0], lambda x: x <= x[0]),
    "greater": (lambda x: x > x[0], lambda x: x > x[0]),
    "at least": (lambda x: x >= 1.0, lambda x: x >= 1),
    "equal": (lambda x: x.eq(1.0), lambda x: x == 1),
    "unequal": (lambda x: x.ne(1.0), lambda x: x != 1),
    "rounded down": (lambda x: x // 2 + 3 // x[1, 1], lambda x: x // 2 + 3 // x[1, 1]),
    "remainder": (lambda x: x % 2 + 3 % x[1, 1], lambda x: x % 2 + 3 % x[1, 1]),
    "sum": (lambda x: x.sum(1), lambda x: x.sum(1)),
    "mean": (lambda x: x.mean((0, 1), keepdims=True), lambda x: x.mean((0, 1), keepdims=True)),
    "max": (lambda x: x.max(0), lambda x: x.max(0)),
    "min": (lambda x: x.min(dim=0, keepdim=True), lambda x: x.min(0, keepdims=True)),
    "reshape": (lambda x: x.reshape(3, -1), lambda x: x.reshape(3, -1)),
    "reshape by a tuple": (lambda x: x.reshape((6,)), lambda x: x.reshape(6)),
    "permute": (lambda x: x.permute(1, 0), lambda x: x.T),
    "transpose": (lambda x: x.transpose(0, 1), lambda x: x.T),
    "flatten": (lambda x: x.flatten(), lambda x: x.reshape(-1)),
    "of an element": (lambda x: x[0, 1].flatten(), lambda x: x[0, 1].reshape(1)),
}


@pytest.mark.parametrize("name", CASES)
def test_methods_are_numpys(name: str) -> None:
    method, expected = CASES[name]
    nest = pf.lower(method(nn.input("x", X.shape, "float64")))
    assert_allclose(pf.interpret(nest, [X])["out"], expected(X), rtol=1e-14)


@pytest.mark.parametrize("name", ["abs", "less", "at most", "rounded down", "remainder", "max", "flatten"])
def test_methods_of_integers(name: str) -> None:
    method, expected = CASES[name]
    x = np.array([[-7, -1, 3], [4, 5, 6]], np.int64)
    nest = pf.lower(method(nn.input("x", x.shape, "int64")))
    assert_array_equal(pf.interpret(nest, [x])["out"], expected(x))


def test_flatten_joins_the_axes_that_are_named() -> None:
    w = nn.input("w", (2, 3, 4, 5))
    assert w.flatten(1, 2).shape == (2, 12, 5)
    assert nn.Flatten()(w).shape == (2, 60)
    symbolic = nn.input("w", ("N", 3, 4))
    assert str(nn.Flatten()(symbolic).shape) == "(N, 12)"
    assert str(symbolic.flatten(0, 1).shape) == "(3 * N, 4)"


def test_no_branch_depends_on_a_value() -> None:
    x = nn.input("x", (2,))
    with pytest.raises(BadArgument, match=r"not computed yet, .*nn.where\(condition, a, b\)"):
        assert x > 0


@pytest.mark.parametrize(
    ("theirs", "own"),
    [
        (lambda: nn.Conv2d(in_channels=2, out_channels=4, kernel_size=3), lambda: nn.Conv2d(2, 4, 3)),
        (lambda: nn.MaxPool(kernel_size=2), lambda: nn.MaxPool(2)),
        (
            lambda: nn.AvgPool(kernel_size=2, count_include_pad=False),
            lambda: nn.AvgPool(2, count_padding=False),
        ),
        (lambda: nn.AdaptiveAvgPool(output_size=1), lambda: nn.AdaptiveAvgPool(1)),
        (lambda: nn.BatchNorm(num_features=4), lambda: nn.BatchNorm(4)),
        (lambda: nn.GroupNorm(num_groups=2, num_channels=4), lambda: nn.GroupNorm(2, 4)),
        (lambda: nn.LayerNorm(4, elementwise_affine=False), lambda: nn.LayerNorm(4, affine=False)),
        (lambda: nn.Embedding(num_embeddings=5, embedding_dim=2), lambda: nn.Embedding(5, 2)),
        (lambda: nn.LeakyReLU(negative_slope=0.2), lambda: nn.LeakyReLU(0.2)),
        (lambda: nn.Softmax(dim=1), lambda: nn.Softmax(1)),
        (lambda: nn.LSTM(input_size=3, hidden_size=4, num_layers=2), lambda: nn.LSTM(3, 4, 2)),
        (lambda: nn.GRUCell(input_size=3, hidden_size=4), lambda: nn.GRUCell(3, 4)),
    ],
)
def test_layers_take_torchs_names(theirs: Callable, own: Callable) -> None:
    assert repr(theirs()) == repr(own())


def test_one_argument_has_one_name() -> None:
    with pytest.raises(BadArgument, match="MaxPool: kernel_size is torch's name of window; give one of them"):
        nn.MaxPool(window=2, kernel_size=2)
    with pytest.raises(BadArgument, match="sum: dim is torch's name of axis"):
        nn.sum(nn.input("x", (2, 3)), axis=0, dim=0)

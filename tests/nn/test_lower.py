"""Lowering: names, shapes, roles, weights, and how long it takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from polyfuse import nn
from polyfuse.errors import BadArgument
from polyfuse.interpret import interpret
from polyfuse.ir import Nest

NAMES = {
    "linear": (nn.Linear(4, 4), "zero0 mac0 bias0"),
    "no_bias": (nn.Linear(4, 4, bias=False), "zero0 mac0"),
    "relu": (nn.ReLU(), "relu0"),
    "leaky_relu": (nn.LeakyReLU(), "leaky_relu0"),
    "tanh": (nn.Tanh(), "tanh0"),
    "sigmoid": (nn.Sigmoid(), "sigmoid0"),
    "gelu": (nn.GELU(), "gelu0"),
    "silu": (nn.SiLU(), "silu0"),
    "softmax": (nn.Softmax(), "rowmax_init0 rowmax0 exp0 rowsum_init0 rowsum0 inverse0 scale0"),
    "log_softmax": (nn.LogSoftmax(), "rowmax_init0 rowmax0 rowsum_init0 rowsum0 logsum0 shift0"),
    "layer_norm": (
        nn.LayerNorm(4),
        "meansum_init0 meansum0 mean0 apart0 devsum_init0 devsum0 varsum_init0 varsum0 rstd0 shift0 norm0 affine0",
    ),
    "rms_norm": (nn.RMSNorm(4), "squares_init0 squares0 rrms0 norm0"),
    "residual": (nn.Residual(nn.ReLU()), "relu0 add0"),
}


def names(nest: Nest) -> list[str]:
    return [s.name for s in nest.statements]


@pytest.mark.parametrize("kind", NAMES)
def test_statements_are_named_after_the_layer(kind: str) -> None:
    module, expected = NAMES[kind]
    assert names(nn.lower(module, batch=2, features=4)) == expected.split()


def test_one_layers_statements_share_a_number() -> None:
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Softmax(), nn.Linear(4, 4), nn.LogSoftmax())
    found = names(nn.lower(model, batch=2))
    assert found[:2] == ["zero0", "mac0"]
    assert found[9:12] == ["zero1", "mac1", "bias1"]
    assert found[12:] == ["rowmax_init1", "rowmax1", "rowsum_init1", "rowsum1", "logsum1", "shift1"]


def test_tensors_of_a_network() -> None:
    model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 4))
    nest = nn.lower(model, batch=(2, 3))
    assert [str(t) for t in nest.tensors] == [
        "input x: float32[2, 3, 8]",
        "temporary y0: float32[2, 3, 6]",
        "constant w0: float32[8, 6]",
        "temporary z0: float32[2, 3, 6]",
        "constant b0: float32[6]",
        "temporary a0: float32[2, 3, 6]",
        "temporary y1: float32[2, 3, 4]",
        "constant w1: float32[6, 4]",
        "constant b1: float32[4]",
        "output out: float32[2, 3, 4]",
    ]
    assert nest.statement("mac0").dims == ("i", "j", "k", "l")
    assert nest.name == "sequential"


def test_the_first_layer_that_knows_says_the_shape_of_the_input() -> None:
    assert nn.lower(nn.Sequential(nn.ReLU(), nn.Linear(5, 2)), batch=3).tensor("x").shape == (3, 5)
    assert nn.lower(nn.Residual(nn.LayerNorm((2, 3))), batch=3).tensor("x").shape == (3, 2, 3)
    assert nn.lower(nn.LayerNorm(3, dtype="float64"), batch=1).tensor("x").dtype == "float64"
    assert nn.lower(nn.Linear(5, 2), batch=3, features=(4, 5)).tensor("x").shape == (3, 4, 5)


class Mine(nn.Module):
    """A layer as a user would write one."""

    def __init__(self) -> None:
        self.first = nn.Linear(3, 5, dtype="float64", seed=1)
        self.second = nn.Linear(5, 3, dtype="float64", seed=2)

    def forward(self, x: nn.Value) -> nn.Value:
        return self.second(nn.tanh(self.first(x))) + x


def test_a_module_of_ones_own() -> None:
    model = Mine()
    x = np.random.default_rng(0).standard_normal((2, 3))
    expected = (
        np.tanh(x @ model.first.weight + model.first.bias) @ model.second.weight + model.second.bias + x
    )
    np.testing.assert_allclose(interpret(nn.lower(model, batch=2), [x])["out"], expected)
    assert list(nn.named_constants(model)) == ["w0", "b0", "w1", "b1"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nn.lower(nn.Linear(2, 2)), "needs the batch: batch=64"),
        (lambda: nn.lower(nn.ReLU(), batch=2), r"no layer of ReLU says the shape of its input.*features=\(512,\)"),
        (lambda: nn.lower(nn.Linear(2, 2), batch=2, features=3), r"\(2, 3\) does not fit the weight \(2, 2\)"),
        (lambda: nn.lower(nn.Linear(2, 2), batch=2, dtype="float64"), "element types float64 and float32"),
        (
            lambda: nn.lower(nn.Sequential(nn.Linear(2, 3), nn.Linear(4, 2)), batch=1),
            r"\(1, 3\) does not fit the weight \(4, 2\)",
        ),
        (lambda: nn.lower(nn.Module(), batch=2, features=3), r"Module defines no forward"),
        (lambda: nn.lower("model"), "lower takes a model, a value, or a tuple of values; given 'model'"),
    ],
)  # fmt: skip
def test_what_is_missing_is_said(call: Any, message: str) -> None:
    with pytest.raises((BadArgument, NotImplementedError), match=message):
        call()


def test_constants_are_the_layers_own_arrays() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3))
    layer, norm = model.layers
    nest = nn.lower(model, batch=1)
    assert nest.constants["w0"] is layer.weight
    assert nest.constants["gamma0"] is norm.gamma
    assert nn.named_constants(model).keys() == {"w0", "b0", "gamma0", "beta0"}
    assert all(nn.named_constants(model)[name] is array for name, array in nest.constants.items())


def test_an_array_in_two_places_is_one_constant() -> None:
    weight = np.eye(3, dtype=np.float32)
    first, second = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
    first.weight = second.weight = weight
    nest = nn.lower(nn.Sequential(first, second), batch=1)
    assert [t.name for t in nest.with_role("constant")] == ["w0"]


def test_a_tensor_may_have_the_name_of_a_function() -> None:
    x, y = nn.input("exp", (4,)), nn.input("log", (4,))
    nest = nn.lower([nn.exp(x), nn.log(y), nn.log(x), nn.exp(y)])
    a, b = np.float32([1, 2, 3, 4]), np.float32([5, 6, 7, 8])
    found = interpret(nest, {"exp": a, "log": b})
    for number, wanted in enumerate((np.exp(a), np.log(b), np.log(a), np.exp(b))):
        np.testing.assert_allclose(found[f"out{number}"], wanted, rtol=1e-6)

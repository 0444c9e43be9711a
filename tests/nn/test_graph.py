"""The functional form: any graph of values, and what does not go together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from polyfuse import nn
from polyfuse.errors import BadArgument
from polyfuse.interpret import interpret
from polyfuse.ir import Nest

X = np.random.default_rng(1).standard_normal((4, 6))


def x() -> nn.Value:
    return nn.input("x", (4, 6), "float64")


def run(*outputs: nn.Value, **inputs: Any) -> list[Any]:
    found = interpret(nn.lower(outputs), inputs or {"x": X})
    return [found[t.name] for t in nn.lower(outputs).outputs]


OPERATORS = {
    "a + b": lambda a, b: a + b,
    "a - b": lambda a, b: a - b,
    "a * b": lambda a, b: a * b,
    "a / b": lambda a, b: a / b,
    "-a": lambda a, b: -a,
    "2 + a": lambda a, b: 2 + a,
    "a - 2.5": lambda a, b: a - 2.5,
    "-2 - a": lambda a, b: -2 - a,
    "1 / a": lambda a, b: 1 / a,
    "a / -3": lambda a, b: a / -3,
    "(a - b) - (b - a)": lambda a, b: (a - b) - (b - a),
    "a - (a + b)": lambda a, b: a - (a + b),
}


@pytest.mark.parametrize("text", OPERATORS)
def test_operators_are_numpys_to_the_last_bit(text: str) -> None:
    f = OPERATORS[text]
    a, b = nn.input("a", (4, 6), "float64"), nn.input("b", (4, 6), "float64")
    inputs = {"a": X, "b": X[::-1]}
    (found,) = run(f(a, b) + 0 * b, **inputs)
    assert np.array_equal(found, f(X, X[::-1]) + 0 * X)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_broadcasting_is_numpys(data: st.DataObject) -> None:
    whole = data.draw(st.lists(st.integers(0, 3), min_size=0, max_size=3))
    shapes = [
        tuple(
            data.draw(st.sampled_from([1, size])) for size in whole[data.draw(st.integers(0, len(whole))) :]
        )
        for _ in range(2)
    ]
    a, b = (np.random.default_rng(k).standard_normal(shape) for k, shape in enumerate(shapes))
    values = [nn.input(name, shape, "float64") for name, shape in zip("ij", shapes, strict=True)]
    (found,) = run(nn.multiply(*values), i=a, j=b)
    assert found.shape == (a * b).shape
    assert np.array_equal(found, a * b)


def test_arrays_and_unusual_numbers_are_constants() -> None:
    row = np.arange(6.0)
    v = x()
    found = run(v + row, row * v, v * np.float64(3), nn.maximum(v, float("-inf")), nn.minimum(v, np.inf))
    for value, expected in zip(found, [X + row, row * X, 3 * X, X, X], strict=True):
        assert np.array_equal(value, expected)


REDUCTIONS = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min}


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 2), (1, -1), (), (0, 1, 2)])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str, axis: Any, keepdims: bool) -> None:
    array = np.random.default_rng(0).standard_normal((2, 3, 5))
    value = nn.input("x", array.shape, "float64")
    (found,) = run(getattr(nn, name)(value, axis, keepdims=keepdims), x=array)
    expected = REDUCTIONS[name](array, axis=axis, keepdims=keepdims)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-14, atol=1e-15)


def test_reductions_of_nothing() -> None:
    value, empty = nn.input("x", (0, 3)), np.empty((0, 3), np.float32)
    with np.errstate(all="ignore"):
        found = run(nn.sum(value, 0), nn.mean(value, 0), nn.sum(value, 1), x=empty)
    assert found[0].tolist() == [0, 0, 0]
    assert np.isnan(found[1]).all()
    assert found[2].shape == (0,)
    with pytest.raises(BadArgument, match=r"max: axes \(0,\) of \(0, 3\) are empty"):
        nn.max(value, 0)
    assert run(nn.max(value, 1), x=empty)[0].shape == (0,)


def test_functions() -> None:
    v = x()
    pairs = [
        (nn.exp(v), np.exp(X)),
        (nn.log(nn.exp(v)), X),
        (nn.sqrt(v * v), np.abs(X)),
        (nn.maximum(v, 0.5), np.maximum(X, 0.5)),
        (nn.minimum(0.5, v), np.minimum(0.5, X)),
        (nn.subtract(v, 1), X - 1),
        (nn.divide(1, v), 1 / X),
        (nn.add(v, v), X + X),
    ]
    for found, (_, expected) in zip(run(*(value for value, _ in pairs)), pairs, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-14)


def test_a_residual_block() -> None:
    value = x()
    layer = nn.Linear(6, 6, dtype="float64")
    expected = np.maximum(X @ layer.weight + layer.bias, 0) + X
    for h in (nn.linear(value, layer), nn.linear(value, layer.weight, layer.bias), layer(value)):
        np.testing.assert_allclose(run(nn.relu(h) + value)[0], expected, rtol=1e-13)


def test_matrix_products_of_two_inputs() -> None:
    q, k = nn.input("q", (4, 6), "float64"), nn.input("k", (6, 4), "float64")
    (found,) = run(nn.softmax(q @ k / 6**0.5), q=X, k=X.T.copy())
    scores = X @ X.T / 6**0.5
    np.testing.assert_allclose(found, np.exp(scores) / np.exp(scores).sum(1, keepdims=True), rtol=1e-13)


def names(nest: Nest) -> tuple[str, ...]:
    return tuple(s.name for s in nest.statements)


def test_a_value_used_twice_is_computed_once() -> None:
    h = nn.tanh(x())
    nest = nn.lower(h * h + h)
    assert names(nest) == ("tanh0", "mul0", "add0")


def test_an_output_that_is_also_consumed() -> None:
    h = nn.tanh(x())
    nest = nn.lower((h, h + 1))
    assert names(nest) == ("tanh0", "add0")
    assert [a.tensor for a in nest.statement("add0").reads] == ["out0"]
    np.testing.assert_allclose(run(h, h + 1)[1], np.tanh(X) + 1)


def test_one_value_as_two_outputs_is_copied() -> None:
    h = nn.tanh(x())
    nest = nn.lower((h, h, h))
    assert names(nest) == ("tanh0", "copy0", "copy1")
    assert len({found.tobytes() for found in run(h, h, h)}) == 1


def test_loops_are_not_named_like_inputs() -> None:
    nest = nn.lower(nn.input("j", (2, 3)) * nn.input("i", ()))
    assert nest.statement("mul0").dims == ("k", "l")
    assert (
        run(nn.input("j", (2, 3)) * nn.input("i", ()), j=np.ones((2, 3), "f"), i=2.0)[0].tolist()
        == [[2] * 3] * 2
    )


def test_an_input_as_output_is_copied() -> None:
    assert names(nn.lower(x())) == ("copy0",)
    assert np.array_equal(run(x())[0], X)
    assert np.array_equal(run(nn.constant(X) + 0 * x(), nn.constant(X))[1], X)


def test_inputs_come_in_the_order_they_are_first_needed() -> None:
    a, b = nn.input("a", (2,)), nn.input("b", (2,))
    assert [t.name for t in nn.lower((b * 2, a + b)).inputs] == ["b", "a"]


def test_a_layer_used_twice_shares_its_weights() -> None:
    layer = nn.Linear(6, 6, dtype="float64")
    nest = nn.lower(layer(layer(x())))
    assert [t.name for t in nest.with_role("constant")] == ["w0", "b0"]
    assert names(nest) == ("zero0", "mac0", "bias0", "zero1", "mac1", "bias1")
    expected = (X @ layer.weight + layer.bias) @ layer.weight + layer.bias
    np.testing.assert_allclose(run(layer(layer(x())))[0], expected, rtol=1e-12)


def test_a_deep_graph_of_shared_values_is_walked_once() -> None:
    value = nn.input("x", (1,))
    for _ in range(60):
        value = value + value
    assert run(value, x=np.ones(1, np.float32))[0].tolist() == [2.0**60]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: x() + nn.input("y", (4, 5), "float64"),
            r"add: shapes \(4, 6\) and \(4, 5\) do not broadcast",
        ),
        (lambda: x() * np.ones(5), r"mul: shapes \(4, 6\) and \(5,\) do not broadcast"),
        (
            lambda: x() + nn.input("y", (4, 6)),
            "element types float64 and float32 cannot be mixed: <input x",
        ),
        (
            lambda: nn.Linear(5, 3, dtype="float64")(x()),
            r"linear: the input \(4, 6\) does not fit the weight \(5, 3\)",
        ),
        (lambda: nn.Linear(6, 3)(x()), "element types float64 and float32"),
        (
            lambda: nn.linear(x(), np.ones((6, 3)), np.ones(4)),
            r"linear: the bias \(4,\) does not fit the weight \(6, 3\)",
        ),
        (
            lambda: nn.linear(x(), np.ones(6)),
            r"the weight has shape \(6,\), expected \(in_features, out_features\)",
        ),
        (lambda: nn.linear(x(), nn.Linear(6, 2), np.ones(2)), "a layer has its own bias"),
        (
            lambda: nn.LayerNorm(4, dtype="float64")(x()),
            r"layer_norm: the input \(4, 6\) does not end in the normalized shape \(4,\)",
        ),
        (lambda: nn.layer_norm(x(), 6, np.ones(5), np.ones(6)), r"gamma has shape \(5,\), expected \(6,\)"),
        (lambda: nn.layer_norm(x(), 6, np.ones(6)), "give both gamma and beta"),
        (lambda: nn.sum(x(), 2), "sum: axis 2 of <input x.* which has 2 axes"),
        (lambda: nn.mean(x(), (1, -1)), r"mean: axes \(1, -1\) of <input x.* name an axis twice"),
        (lambda: nn.add(1, 2), "at least one operand must come from nn.input or a layer"),
        (lambda: x() + "1", "'1' is neither a value, an array nor a number"),  # type: ignore[operator]
        (
            lambda: x() + np.ones(6, np.int64),
            "element types float64 and int64 cannot be mixed",
        ),
        (lambda: nn.input("x", (-1, 2)), "has a negative size"),
        (lambda: nn.input("2x", (1,)), "'2x' is not a free identifier"),
        (lambda: nn.input("lambda", (1,)), "'lambda' is not a free identifier"),
        (lambda: nn.input("inf", ()), "'inf' is not a free identifier"),
        (lambda: nn.lower(nn.input("out", (1,)) + 1), "two tensors would be named 'out'"),
        (lambda: nn.lower(nn.input("y", (1,)) + nn.input("y", (1,))), "two tensors would be named 'y'"),
        (lambda: nn.lower(()), "lower takes a model, a value, or a tuple of values"),
        (lambda: nn.lower(x(), batch=3), "batch, features and dtype are for models"),
    ],
)
def test_what_does_not_go_together_is_named(make: Any, message: str) -> None:
    with pytest.raises(BadArgument, match=message):
        make()


@pytest.mark.parametrize(
    "name", ["w0", "y0", "b0", "z0", "k", "i", "mod", "max", "out0", "mac0", "relu0", "zero0"]
)
def test_an_input_may_have_any_name(name: str) -> None:
    value = nn.input(name, (2, 3))
    layer = nn.Linear(3, 3)
    nest = nn.lower(nn.relu(layer(value)))
    found = interpret(nest, {name: np.ones((2, 3), np.float32)})["out"]
    np.testing.assert_allclose(found[0], np.maximum(layer.weight.sum(0) + layer.bias, 0), rtol=1e-5)
    assert not {t.name for t in nest.tensors} & set(names(nest))


@pytest.mark.parametrize(
    ("made", "shape"),
    [
        (lambda v, n: nn.lower(nn.Linear(n, 2)(v)).outputs[0], (4, 2)),
        (lambda v, n: nn.lower(nn.ReLU(), batch=n, features=n).inputs[0], (6, 6)),
        (lambda v, n: nn.lower(nn.LayerNorm(n), batch=2).inputs[0], (2, 6)),
        (lambda v, n: nn.sum(v, axis=n - 5), (4,)),
        (lambda v, n: nn.reshape(v, [n, -1]), (6, 4)),
        (lambda v, n: nn.narrow(v, n - 5, 0, n), (4, 6)),
        (lambda v, n: nn.split(v, n // 3, axis=n - 5)[0], (4, 2)),
        (lambda v, n: nn.pad(v, [n, (0, n)]), (16, 12)),
        (lambda v, n: nn.Conv2d(n, n, n // 2, stride=n // 6)(nn.input("i", (1, 6, 5, 5))), (1, 6, 3, 3)),
        (lambda v, n: nn.max_pool(nn.input("i", (1, 6, 8, 8)), n // 3), (1, 6, 4, 4)),
        (lambda v, n: v[n - 3, :], (6,)),
    ],
)
def test_sizes_and_axes_may_be_numpys(made: Any, shape: tuple[int, ...]) -> None:
    v = nn.input("x", (4, 6))
    assert tuple(made(v, np.int64(6)).shape) == tuple(made(v, 6).shape) == shape


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (
            lambda v: nn.lower(nn.Linear(6, 2), batch=2.5),
            "lower: batch: expected an integer, or a size such as",
        ),
        (
            lambda v: nn.lower(nn.Linear(6, 2), batch="2"),
            "batch: '2' is not affine in sizes",
        ),
        (lambda v: nn.lower(nn.ReLU(), batch=[4, 2.5], features=3), r"batch: .* given 2.5"),
        (lambda v: nn.Linear(6, 2.0), r"Linear: expected an integer, or several, given \(6, 2.0\)"),
        (lambda v: nn.LSTM(6, 2.0), "LSTM: expected an integer"),
        (lambda v: nn.Conv2d(3, 4, 3.0), "Conv2d: window is 3.0"),
        (lambda v: nn.Linear(6, 2, dtype="float8"), "not in 'float8'"),
        (lambda v: nn.sum(v, axis=1.0), "sum: axis: expected an integer"),
        (lambda v: nn.softmax(v, axis=None), "softmax: axis: expected an integer, given None"),
        (lambda v: nn.narrow(v, 0, 1.0, 2), "narrow: .* given 1.0"),
        (lambda v: nn.pad(v, 1), "pad: widths 1 of"),
        (lambda v: nn.pad(v, (0, 1), value="a"), "pad: value='a', expected a number"),
        (lambda v: nn.linear(v, "w"), "linear: 'w' is not a weight"),
        (lambda v: nn.Linear(6, 2, seed="a"), "Linear: seed='a', expected a non-negative integer"),
        (lambda v: nn.Embedding(6, 2, seed=-1), "Embedding: seed=-1, .* non-negative"),
        (lambda v: nn.Conv2d(3, 4, 3, seed=0.5), "Conv2d: seed=0.5"),
        (lambda v: nn.LSTM(6, 2, seed=None), "LSTM: seed=None"),
        (lambda v: v[::0], "a slice whose step is not 0"),
        (lambda v: v[np.array([0, 1])], "an index that is a value is not supported"),
        (lambda v: nn.softmax(np.ones((3, 4))), "softmax: ndarray is not a value"),
        (lambda v: nn.lower(None), "lower takes a model, a value, or a tuple of values; given None"),
        (lambda v: nn.constant([1, 2]), r"constant: \[1, 2\] is not an array"),
        (lambda v: nn.concat(v), "concat: no values"),
        (lambda v: nn.input("é", (4,)), "'é' is not a free identifier"),
        (lambda v: nn.Sequential([nn.ReLU()]), r"Sequential: \[ReLU\(\)\] is not a layer"),
        (lambda v: nn.Sequential(nn.ReLU), r"Sequential: <class .* is not a layer; ReLU\(\) is one"),
        (lambda v: nn.Residual(3), "Residual: 3 is not a layer; expected layers and functions"),
        (lambda v: nn.Sequential(lambda u: 3)(v), "<lambda> returned 3, expected a value"),
    ],
)
def test_what_is_no_size_no_value_and_no_layer_is_refused(make: Any, why: str) -> None:
    with pytest.raises(BadArgument, match=why):
        make(nn.input("x", (4, 6)))


def test_arrays_are_constants_in_front_of_a_product_and_beside_values() -> None:
    v, ones = x(), np.ones((2, 4))
    (product, joined) = run(ones @ v, nn.concat([np.ones((1, 6)), v]))
    assert np.allclose(product, ones @ X)
    assert np.array_equal(joined, np.concatenate([np.ones((1, 6)), X]))


def test_constants_by_name_of_layers_that_do_not_know_their_input() -> None:
    assert list(nn.named_constants(nn.LSTM(3, 4), batch=(1, 1))) == ["w0", "u0", "b0", "bu0"]
    assert list(nn.named_constants(nn.Conv2d(3, 4, 3), features=(3, 5, 5))) == ["w0", "b0"]

"""Recurrent layers: cells and sequences against NumPy, step by step; oracle, machine code and lock-step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyfuse as pf
from polyfuse import nn
from polyfuse.errors import BadArgument
from tests.support.examples import examples

Array = np.ndarray[Any, Any]
States = tuple[Array, ...]

GATES = {"lstm": 4, "gru": 3, "gru_before": 3, "rnn": 1, "rnn_relu": 1}


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def stepped(kind: str, x: Array, states: States, w: Array, u: Array, b: Array, bu: Array) -> States:
    """The states after one step, as the textbooks write it: one gate at a time."""
    h = states[0]
    of_x = np.split(x @ w.T + b, GATES[kind], axis=1)
    of_h = np.split(h @ u.T + bu, GATES[kind], axis=1)
    if kind == "lstm":
        i, f, g, o = (a + c for a, c in zip(of_x, of_h, strict=True))
        c = sigmoid(f) * states[1] + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(c), c
    if kind == "gru":
        r, z = (sigmoid(a + c) for a, c in zip(of_x[:2], of_h[:2], strict=True))
        n = np.tanh(of_x[2] + r * of_h[2])
        return ((1 - z) * n + z * h,)
    if kind == "gru_before":
        (r, z), of_n = (
            (sigmoid(a + c) for a, c in zip(of_x[:2], of_h[:2], strict=True)),
            slice(2 * h.shape[1], None),
        )
        n = np.tanh(of_x[2] + (r * h) @ u[of_n].T + bu[of_n])
        return ((1 - z) * n + z * h,)
    total = of_x[0] + of_h[0]
    return (np.tanh(total) if kind == "rnn" else np.maximum(total, 0),)


def unrolled(kind: str, x: Array, states: States, *parameters: Array) -> tuple[Array, ...]:
    """(outputs, states after the last step)."""
    outputs = np.empty((len(x), *states[0].shape), x.dtype)
    for t in range(len(x)):
        states = stepped(kind, x[t], states, *parameters)
        outputs[t] = states[0]
    return outputs, *states


def parameters_of(kind: str, features: int, hidden: int, dtype: str = "float64") -> list[Array]:
    draw = np.random.default_rng((features, hidden))
    rows = GATES[kind] * hidden
    shapes = ((rows, features), (rows, hidden), (rows,), (rows,))
    return [draw.uniform(-1, 1, shape).astype(dtype) for shape in shapes]


def given_to(kind: str, x: nn.Value, states: list[nn.Value], parameters: list[Any]) -> tuple[nn.Value, ...]:
    w, u, b, bu = parameters
    if kind == "lstm":
        return nn.lstm(x, w, u, b, bu, *states)
    if kind.startswith("gru"):
        return nn.gru(x, w, u, b, bu, *states, reset_after=kind == "gru")
    return nn.rnn(x, w, u, b, bu, *states, nonlinearity="relu" if kind == "rnn_relu" else "tanh")


def drawn(kind: str, sizes: tuple[int, int, int, int], dtype: str = "float64") -> tuple[Array, States]:
    times, rows, features, hidden = sizes
    draw = np.random.default_rng(sizes)
    x = draw.standard_normal((times, rows, features)).astype(dtype)
    count = 2 if kind == "lstm" else 1
    return x, tuple(draw.standard_normal((rows, hidden)).astype(dtype) for _ in range(count))


def sequence(kind: str, sizes: tuple[int, int, int, int], dtype: str = "float64") -> pf.Nest:
    times, rows, features, hidden = sizes
    x = nn.input("x", (times, rows, features), dtype)
    states = [nn.input(name, (rows, hidden), dtype) for name in ("h", "c")[: 2 if kind == "lstm" else 1]]
    return nn.lower(given_to(kind, x, states, parameters_of(kind, features, hidden, dtype)))


@pytest.mark.parametrize("kind", GATES)
@settings(max_examples=examples(12))
@given(sizes=st.tuples(st.integers(0, 4), *[st.integers(1, 4)] * 3))
def test_a_sequence_is_its_steps_for_all_sizes(kind: str, sizes: tuple[int, int, int, int]) -> None:
    nest = sequence(kind, sizes)
    x, states = drawn(kind, sizes)
    found = pf.interpret(nest, dict(zip(("x", "h", "c"), (x, *states), strict=False)))
    expected = unrolled(kind, x, states, *parameters_of(kind, sizes[2], sizes[3]))
    for k, value in enumerate(expected):
        np.testing.assert_allclose(found[f"out{k}"], value, atol=1e-12)


TARGETS: list[dict[str, Any]] = [
    {"target": "cpu"},
    {"target": "cuda", "machine": "h200", "device": "lockstep"},
]


@pytest.mark.parametrize("options", TARGETS, ids=lambda options: str(options["target"]))
@pytest.mark.parametrize("kind", GATES)
def test_a_sequence_compiled_is_its_steps(kind: str, options: dict[str, Any]) -> None:
    sizes = (4, 5, 6, 17)
    x, states = drawn(kind, sizes, "float32")
    net = pf.compile(sequence(kind, sizes, "float32"), **options)
    expected = unrolled(kind, x, states, *parameters_of(kind, 6, 17, "float32"))
    for found, value in zip(net(x, *states), expected, strict=True):
        np.testing.assert_allclose(found, value, atol=1e-4)


def weights(layer: Any, number: int) -> list[Array]:
    return [layer.w[number], layer.u[number], layer.b[number], layer.bu[number]]


@pytest.mark.parametrize(
    ("layer", "kind"),
    [(nn.LSTM(5, 7, 3), "lstm"), (nn.GRU(5, 7, 2), "gru"), (nn.RNN(5, 7, 2), "rnn")],
    ids=["lstm", "gru", "rnn"],
)
def test_layers_feed_one_another_and_give_all_states(layer: Any, kind: str) -> None:
    (x, _), zero = drawn(kind, (4, 3, 5, 7), "float32"), np.zeros((3, 7), np.float32)
    count = 2 if kind == "lstm" else 1
    net = pf.compile(nn.lower(layer.unrolled(nn.input("x", x.shape))), target="cpu")
    outputs, *lasts = net(x)
    for number in range(layer.layers):
        x, *expected = unrolled(kind, x, (zero,) * count, *weights(layer, number))
        for found, state in zip(lasts, expected, strict=True):
            np.testing.assert_allclose(found[number], state, atol=1e-5)
    np.testing.assert_allclose(outputs, x, atol=1e-5)


def test_states_of_all_layers_can_be_given() -> None:
    layer = nn.LSTM(3, 4, 2, dtype="float64")
    x, _ = drawn("lstm", (3, 2, 3, 4))
    h, c = np.random.default_rng(1).standard_normal((2, 2, 2, 4))
    values = [nn.input(name, a.shape, "float64") for name, a in (("x", x), ("h", h), ("c", c))]
    found = pf.interpret(nn.lower(layer.unrolled(*values)), {"x": x, "h": h, "c": c})
    for number in range(2):
        x, last, cell = unrolled("lstm", x, (h[number], c[number]), *weights(layer, number))
        np.testing.assert_allclose(found["out1"][number], last, atol=1e-12)
        np.testing.assert_allclose(found["out2"][number], cell, atol=1e-12)
    np.testing.assert_allclose(found["out0"], x, atol=1e-12)


@pytest.mark.parametrize(
    ("cell", "kind"),
    [(nn.LSTMCell(5, 7), "lstm"), (nn.GRUCell(5, 7), "gru"), (nn.RNNCell(5, 7), "rnn")],
    ids=["lstm", "gru", "rnn"],
)
def test_a_cell_is_one_step(cell: Any, kind: str) -> None:
    (x, *_), states = drawn(kind, (1, 3, 5, 7), "float32")
    names = ("h", "c")[: len(states)]
    values = cell.step(nn.input("x", (3, 5)), *(nn.input(name, (3, 7)) for name in names))
    net = pf.compile(nn.lower(values), target="cpu")
    found = net(x, *states)
    expected = stepped(kind, x, states, *weights(cell, 0))
    for one, value in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
        np.testing.assert_allclose(one, value, atol=1e-5)


def test_a_cell_without_a_state_starts_from_0() -> None:
    cell = nn.LSTMCell(5, 7, bias=False)
    x, _ = drawn("lstm", (1, 3, 5, 7), "float32")
    zero, none = np.zeros((3, 7), np.float32), np.zeros(28, np.float32)
    expected = stepped("lstm", x[0], (zero, zero), cell.w[0], cell.u[0], none, none)
    found = pf.interpret(nn.lower(cell, batch=3), {"x": x[0]})["out"]
    np.testing.assert_allclose(found, expected[0], atol=1e-6)


def test_one_loop_over_time_holds_the_step() -> None:
    nest = nn.lower(nn.LSTM(5, 7), batch=(4, 3))
    around = {name: loop for loop in pf.Schedule(nest).loops("step0") for name, _ in loop.dates}
    assert pf.Schedule(nest).loops("step0")[0] is pf.Schedule(nest).loops("hidden0")[0]
    assert {"step0", "cell0", "hidden0"} <= around.keys()
    assert "mac0" not in around


def test_what_does_not_fit_is_said() -> None:
    x, (w, u, b, bu) = nn.input("x", (4, 3, 5), "float64"), parameters_of("lstm", 5, 7)
    h = nn.input("h", (3, 7), "float64")
    with pytest.raises(
        BadArgument, match=r"the input has shape \(3, 7\), expected \(times, batch, features\)"
    ):
        nn.lstm(h, w, u)
    with pytest.raises(BadArgument, match=r"expected \(3 \* hidden, features\) and \(3 \* hidden, hidden\)"):
        nn.gru(x, w, u)
    with pytest.raises(BadArgument, match=r"the input \(4, 3, 5\) does not fit the weight \(28, 6\)"):
        nn.lstm(x, np.ones((28, 6)), u)
    with pytest.raises(BadArgument, match="give both biases b and bu"):
        nn.lstm(x, w, u, b)
    with pytest.raises(BadArgument, match=r"a bias has shape \(7,\), expected \(28,\)"):
        nn.lstm(x, w, u, b, bu[:7])
    with pytest.raises(BadArgument, match="give both states h and c"):
        nn.lstm(x, w, u, b, bu, h)
    with pytest.raises(BadArgument, match=r"an initial state has shape \(4, 3, 5\), expected .* \(3, 7\)"):
        nn.lstm(x, w, u, b, bu, x, x)
    with pytest.raises(BadArgument, match="nonlinearity is 'sin'"):
        nn.rnn(x, np.ones((7, 5)), np.ones((7, 7)), nonlinearity="sin")  # type: ignore[arg-type]
    with pytest.raises(BadArgument, match="all must be at least 1"):
        nn.LSTM(5, 0)

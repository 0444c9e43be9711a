"""Functions on values for recurrent layers: one step of a cell, and whole sequences. Weights are stacked as in torch.

x is (T, B, D) for a sequence, (B, D) for a cell: time first. `w` is (gates * H, D), `u` (gates * H, H), both biases
(gates * H,), or None both. A state is (B, H); states that are not given are 0.
"""

from __future__ import annotations

from typing import Literal

from polyfuse.errors import BadArgument
from polyfuse.nn.graph import Further, Value, apply, as_value
from polyfuse.nn.nest_writer import Array
from polyfuse.nn.recurrent.operations import CELL, GRU, LSTM, RNN, Cell, Recurrence
from polyfuse.nn.shape.functional import narrow, select

Parameter = Array | Value
Nonlinearity = Literal["tanh", "relu"]


def lstm(
    x: Value,
    w: Parameter,
    u: Parameter,
    b: Parameter | None = None,
    bu: Parameter | None = None,
    h: Parameter | None = None,
    c: Parameter | None = None,
) -> tuple[Value, Value, Value]:
    """(outputs (T, B, H), last h (B, H), last c (B, H)) of an LSTM over a sequence; gates i, f, g, o.

    z = x @ w.T + b + h @ u.T + bu, c' = sigmoid(f) * c + sigmoid(i) * tanh(g), h' = sigmoid(o) * tanh(c').
    Statements zero, mac, bias (the product with x, over all times), start, startcell, and in the loop over time step
    (the product with h), cell, hidden. BadArgument where sizes do not go together.
    """
    states = _recurrence(LSTM(), x, w, u, b, bu, _both("lstm", h, c), sequence=True)
    return _outputs(states), _last(states), _last(_further(states))


def gru(
    x: Value,
    w: Parameter,
    u: Parameter,
    b: Parameter | None = None,
    bu: Parameter | None = None,
    h: Parameter | None = None,
) -> tuple[Value, Value]:
    """(outputs (T, B, H), last h (B, H)) of a gated recurrent unit over a sequence; gates r, z, n.

    n = tanh(x @ w.T + b + r * (h @ u.T + bu)), h' = (1 - z) * n + z * h: the reset gate after the product, as in torch
    and cuDNN. BadArgument where sizes do not go together.
    """
    states = _recurrence(GRU(), x, w, u, b, bu, _given(h), sequence=True)
    return _outputs(states), _last(states)


def rnn(
    x: Value,
    w: Parameter,
    u: Parameter,
    b: Parameter | None = None,
    bu: Parameter | None = None,
    h: Parameter | None = None,
    nonlinearity: Nonlinearity = "tanh",
) -> tuple[Value, Value]:
    """(outputs (T, B, H), last h (B, H)) of h' = tanh(x @ w.T + b + h @ u.T + bu), or max(…, 0) with "relu"."""
    states = _recurrence(RNN(_known(nonlinearity)), x, w, u, b, bu, _given(h), sequence=True)
    return _outputs(states), _last(states)


def lstm_cell(
    x: Value,
    h: Parameter,
    c: Parameter,
    w: Parameter,
    u: Parameter,
    b: Parameter | None = None,
    bu: Parameter | None = None,
) -> tuple[Value, Value]:
    """The next (h, c) of an LSTM after one step: x (B, D), h and c (B, H)."""
    state = _recurrence(LSTM(), x, w, u, b, bu, _both("lstm_cell", h, c), sequence=False)
    return state, _further(state)


def gru_cell(
    x: Value,
    h: Parameter,
    w: Parameter,
    u: Parameter,
    b: Parameter | None = None,
    bu: Parameter | None = None,
) -> Value:
    """The next h of a gated recurrent unit after one step: x (B, D), h (B, H)."""
    state = _recurrence(GRU(), x, w, u, b, bu, _given(h), sequence=False)
    return state


def rnn_cell(
    x: Value,
    h: Parameter,
    w: Parameter,
    u: Parameter,
    b: Parameter | None = None,
    bu: Parameter | None = None,
    nonlinearity: Nonlinearity = "tanh",
) -> Value:
    """The next h of a plain recurrent cell after one step: x (B, D), h (B, H)."""
    state = _recurrence(RNN(_known(nonlinearity)), x, w, u, b, bu, _given(h), sequence=False)
    return state


def _recurrence(
    cell: Cell,
    x: Value,
    w: Parameter,
    u: Parameter,
    b: Parameter | None,
    bu: Parameter | None,
    states: tuple[Parameter, ...],
    sequence: bool,
) -> Value:
    if (b is None) != (bu is None):
        raise BadArgument(f"{cell.name}: the biases b and bu come together; give both or neither")
    biases = [bias for bias in (b, bu) if bias is not None]
    operation = Recurrence(cell, sequence, bool(biases), bool(states))
    operands = [x, *(as_value(given, x.dtype) for given in (w, u, *biases, *states))]
    return apply(operation, operands)


def _outputs(states: Value) -> Value:
    return narrow(states, 0, 1, states.shape[0] - 1)


def _last(states: Value) -> Value:
    return select(states, 0, states.shape[0] - 1)


def _further(state: Value) -> Value:
    return Value(Further(CELL), (state,), state.shape, state.dtype)


def _given(h: Parameter | None) -> tuple[Parameter, ...]:
    return () if h is None else (h,)


def _both(name: str, h: Parameter | None, c: Parameter | None) -> tuple[Parameter, ...]:
    if h is None and c is None:
        return ()
    if h is None or c is None:
        raise BadArgument(f"{name}: the states h and c come together; give both or neither")
    return h, c


def _known(nonlinearity: Nonlinearity) -> Nonlinearity:
    if nonlinearity not in ("tanh", "relu"):
        raise BadArgument(f"rnn: nonlinearity is {nonlinearity!r}, expected 'tanh' or 'relu'")
    return nonlinearity

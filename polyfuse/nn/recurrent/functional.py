"""Functions for recurrent layers: one step of a cell, and whole sequences. Weights are stacked as in torch.

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
    """An LSTM over a sequence; gates i, f, g, o. Hochreiter and Schmidhuber, Long Short-Term Memory (1997).

    z = x @ w.T + b + h @ u.T + bu, c' = sigmoid(f) * c + sigmoid(i) * tanh(g), h' = sigmoid(o) * tanh(c').
    Statements zero, mac, bias (the product with x, over all times), start, startcell, and in the loop over time step
    (the product with h), cell, hidden.

    Args:
        x: (T, B, D).
        w: (4 H, D).
        u: (4 H, H).
        b: (4 H,); given together with bu or not at all.
        bu: (4 H,).
        h: The first state (B, H); given together with c, else both are 0.
        c: The first cell state (B, H).

    Returns:
        Outputs (T, B, H), last h (B, H), last c (B, H).

    Raises:
        BadArgument: if the sizes do not fit together, or one of a pair is missing.
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
    *,
    reset_after: bool = True,
) -> tuple[Value, Value]:
    """A gated recurrent unit over a sequence; gates r, z, n. Cho et al. (2014), the reset gate as in torch and cuDNN.

    n = tanh(x @ w.T + b + r * (h @ u.T + bu)), h' = (1 - z) * n + z * h: the reset gate multiplies after the product.
    The paper's multiplies before it: n = tanh(x @ w.T + b + (r * h) @ u.T + bu).

    Args:
        x: (T, B, D).
        w: (3 H, D).
        u: (3 H, H).
        b: (3 H,); given together with bu or not at all.
        bu: (3 H,).
        h: The first state (B, H); 0 by default.
        reset_after: False for the paper's form.

    Returns:
        Outputs (T, B, H), last h (B, H).

    Raises:
        BadArgument: if the sizes do not fit together, or one of the biases is missing.
    """
    states = _recurrence(GRU(reset_after), x, w, u, b, bu, _given(h), sequence=True)
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
    """A plain recurrent layer over a sequence: h' = tanh(x @ w.T + b + h @ u.T + bu).

    Args:
        x: (T, B, D).
        w: (H, D).
        u: (H, H).
        b: (H,); given together with bu or not at all.
        bu: (H,).
        h: The first state (B, H); 0 by default.
        nonlinearity: "tanh", or "relu" for max(…, 0).

    Returns:
        Outputs (T, B, H), last h (B, H).

    Raises:
        BadArgument: if the sizes do not fit together, or `nonlinearity` is unknown.
    """
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
    """One step of an LSTM; see `lstm`.

    Args:
        x: (B, D).
        h: The state (B, H).
        c: The cell state (B, H).
        w: (4 H, D).
        u: (4 H, H).
        b: (4 H,); given together with bu or not at all.
        bu: (4 H,).

    Returns:
        The next h and the next c, each (B, H).

    Raises:
        BadArgument: if the sizes do not fit together.
    """
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
    """One step of a gated recurrent unit; see `gru`.

    Args:
        x: (B, D).
        h: The state (B, H).
        w: (3 H, D).
        u: (3 H, H).
        b: (3 H,); given together with bu or not at all.
        bu: (3 H,).

    Returns:
        The next h (B, H).

    Raises:
        BadArgument: if the sizes do not fit together.
    """
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
    """One step of a plain recurrent layer; see `rnn`.

    Args:
        x: (B, D).
        h: The state (B, H).
        w: (H, D).
        u: (H, H).
        b: (H,); given together with bu or not at all.
        bu: (H,).
        nonlinearity: "tanh", or "relu" for max(…, 0).

    Returns:
        The next h (B, H).

    Raises:
        BadArgument: if the sizes do not fit together, or `nonlinearity` is unknown.
    """
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
        raise BadArgument(f"{cell.name}: give both biases b and bu, or neither")
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
        raise BadArgument(f"{name}: give both states h and c, or neither")
    return h, c


def _known(nonlinearity: Nonlinearity) -> Nonlinearity:
    if nonlinearity not in ("tanh", "relu"):
        raise BadArgument(f"rnn: nonlinearity is {nonlinearity!r}, expected 'tanh' or 'relu'")
    return nonlinearity

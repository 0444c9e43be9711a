"""Importers of recurrent layers: LSTM, GRU and RNN in one or both directions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from polyfuse import nn
from polyfuse.frontend.onnx.operators.registry import ONNX, Node, Operand, Unsupported, value_of
from polyfuse.nn.graph import Value
from polyfuse.nn.sizes import number

Run = Callable[..., tuple[Value, ...]]

ORDERS = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}
"""Where polyfuse.nn's gates are in ONNX's order: LSTM iofc -> ifgo, GRU zrh -> rzn."""

USUAL = {"LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh"), "RNN": ("tanh",)}


def _ordered(x: Value, order: Sequence[int]) -> Value:
    """The gates along the first axis in another order."""
    if len(order) == 1:
        return x
    size = x.shape[0] // len(order)
    return nn.concat([nn.narrow(x, 0, gate * size, size) for gate in order], 0)


def _importer(kind: str) -> Callable[..., tuple[Value, ...]]:
    gates = len(ORDERS[kind])

    def recurrent(
        node: Node,
        x: Operand,
        w: Operand,
        r: Operand,
        b: Operand = None,
        sequence_lens: Operand = None,
        initial_h: Operand = None,
        initial_c: Operand = None,
        p: Operand = None,
        *,
        activation_alpha: Sequence[float] = (),
        activation_beta: Sequence[float] = (),
        activations: Sequence[str] = (),
        clip: float = 0.0,
        direction: str = "forward",
        hidden_size: int = 0,
        input_forget: int = 0,
        layout: int = 0,
        linear_before_reset: int = 0,
    ) -> tuple[Value, ...]:
        value = value_of(x)
        value = nn.permute(value, (1, 0, 2)) if layout else value
        steps, batch, _ = value.shape
        _check(kind, node, sequence_lens, number(kind, steps), p, clip, input_forget)
        ways = 2 if direction == "bidirectional" else 1
        kinds = [name.lower() for name in activations] or list(USUAL[kind]) * ways
        each = len(kinds) // ways
        weights, inner = value_of(w, value.dtype), value_of(r, value.dtype)
        hidden = inner.shape[2]
        outputs, ends = [], []
        for way in range(ways):
            function = _run(kind, tuple(kinds[way * each : (way + 1) * each]), bool(linear_before_reset))
            order = ORDERS[kind]
            bias: list[Value | None] = [None, None]
            if b is not None:
                both = nn.select(value_of(b, value.dtype), 0, way)
                bias = [
                    _ordered(nn.narrow(both, 0, k * gates * hidden, gates * hidden), order) for k in (0, 1)
                ]
            first = [_state(s, layout, way, value) for s in (initial_h, initial_c) if s is not None]
            if kind == "LSTM" and len(first) == 1:
                zeros = nn.constant(np.zeros((batch, hidden), value.dtype))
                first = [first[0], zeros] if initial_h is not None else [zeros, first[0]]
            backwards = direction == "reverse" or way == 1
            read = nn.flip(value, 0) if backwards else value
            found, *last = function(
                read,
                _ordered(nn.select(weights, 0, way), order),
                _ordered(nn.select(inner, 0, way), order),
                *bias,
                *first,
            )
            outputs.append(nn.flip(found, 0) if backwards else found)
            ends.append(last)
        return _results(outputs, ends, layout)

    return recurrent


def _results(outputs: list[Value], ends: list[list[Value]], layout: int) -> tuple[Value, ...]:
    """Y (T, ways, B, H), or (B, T, ways, H) in layout 1, and the last states (ways, B, H) or (B, ways, H)."""
    every = nn.stack(outputs, 1)
    every = nn.permute(every, (2, 0, 1, 3)) if layout else every
    return every, *(nn.stack(list(state), 1 if layout else 0) for state in zip(*ends, strict=True))


def _state(state: Operand, layout: int, way: int, like: Value) -> Value:
    return nn.select(value_of(state, like.dtype), 1 if layout else 0, way)


def _check(
    kind: str, node: Node, lengths: Operand, steps: int, p: Operand, clip: float, input_forget: int
) -> None:
    """Unsupported for what polyfuse.nn's layers do not have."""
    if lengths is not None and set(node.integers(lengths, "sequence lengths")) != {steps}:
        raise Unsupported("sequences of different lengths")
    if p is not None and node.numbers(p, "peepholes").any():
        raise Unsupported("an LSTM with peepholes")
    if clip or input_forget:
        raise Unsupported(f"a {kind} with clip or input_forget")


def _run(kind: str, activations: tuple[str, ...], reset_after: bool) -> Run:
    if kind == "RNN" and activations == ("relu",):
        return lambda x, w, u, b, bu, h=None: nn.rnn(x, w, u, b, bu, h, "relu")
    if activations != USUAL[kind]:
        raise Unsupported(f"a {kind} with the activations {', '.join(activations)}")
    runs: dict[str, Run] = {"LSTM": nn.lstm, "GRU": partial(nn.gru, reset_after=reset_after), "RNN": nn.rnn}
    return runs[kind]


for _kind in ORDERS:
    ONNX[_kind] = _importer(_kind)

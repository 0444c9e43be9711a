"""Importers of whole recurrent layers: LSTM, GRU and RNN of several layers and both directions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from polyfuse import nn
from polyfuse.frontend.importers import Unsupported, converted
from polyfuse.frontend.torch.aten.registry import ATEN, Result, floating, whole
from polyfuse.nn.graph import Value

Parameters = list[Any]
Run = Callable[[Value, Parameters, Parameters], tuple[Value, ...]]
"""A layer in one direction: x (T, B, D), its weights and biases, its first states -> outputs, and the last states."""


def _lstm(x: Value, weights: Parameters, states: Parameters) -> tuple[Value, ...]:
    return nn.lstm(x, *_with_biases(weights), *states)


def _gru(x: Value, weights: Parameters, states: Parameters) -> tuple[Value, ...]:
    return nn.gru(x, *_with_biases(weights), *states)


def _tanh(x: Value, weights: Parameters, states: Parameters) -> tuple[Value, ...]:
    return nn.rnn(x, *_with_biases(weights), *states)


def _relu(x: Value, weights: Parameters, states: Parameters) -> tuple[Value, ...]:
    (state,), (w, u, b, bu) = states, _with_biases(weights)
    return nn.rnn(x, w, u, b, bu, state, "relu")


def _with_biases(weights: Parameters) -> Parameters:
    return weights if len(weights) == 4 else [*weights, None, None]


def _importer(run: Run) -> Callable[..., tuple[Value, ...]]:
    def recurrent(
        result: Result,
        x: Any,
        states: Any,
        parameters: Sequence[Any],
        has_biases: bool,
        layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[Value, ...]:
        dtype, each, ways = floating(result), 4 if has_biases else 2, 2 if bidirectional else 1
        if train and dropout > 0 and layers > 1:
            raise Unsupported("draws random numbers for dropout; call model.eval()")
        if len(parameters) != each * layers * ways:
            raise Unsupported("a recurrent layer with a projection of its states (proj_size)")
        every = [converted(one, dtype) for one in (states if isinstance(states, list | tuple) else [states])]
        weights = iter([converted(one, dtype) for one in parameters])
        value = converted(x, dtype)
        value = nn.permute(value, (1, 0, 2)) if batch_first else value
        ends: list[tuple[Value, ...]] = []
        for layer in range(layers):
            outputs = []
            for way in range(ways):
                first = [nn.select(state, 0, layer * ways + way) for state in every]
                read = nn.flip(value, 0) if way else value
                found, *last = run(read, _taken(weights, each), first)
                outputs.append(nn.flip(found, 0) if way else found)
                ends.append(tuple(last))
            value = nn.concat(outputs, -1) if ways == 2 else outputs[0]
        value = nn.permute(value, (1, 0, 2)) if batch_first else value
        return value, *(nn.stack(list(kind), 0) for kind in zip(*ends, strict=True))

    return recurrent


def _taken(weights: Iterator[Any], count: int) -> Parameters:
    return [next(weights) for _ in range(count)]


for _name, _run in {"lstm": _lstm, "gru": _gru, "rnn_tanh": _tanh, "rnn_relu": _relu}.items():
    ATEN[f"aten.{_name}.input"] = whole(_name)(_importer(_run))

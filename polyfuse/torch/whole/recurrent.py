"""LSTM, GRU and RNN as one operator each.

    torch.lstm(x, (h, c), weights, …)   ->   polyfuse::lstm(x, [h, c], weights, …)

torch has them only as compositions, which AOTAutograd would write out step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from polyfuse.torch.whole.operators import kept_whole

LAYERS: dict[str, Callable[..., Any]] = {
    "lstm": torch.lstm,
    "gru": torch.gru,
    "rnn_tanh": torch.rnn_tanh,
    "rnn_relu": torch.rnn_relu,
}
"""torch's operators by name."""


def _called(
    name: str, x: torch.Tensor, states: Any, weights: Any, *settings: Any
) -> tuple[torch.Tensor, ...]:
    """The layer's outputs and its last states."""
    first = tuple(states) if name == "lstm" else states[0]
    return tuple(one.contiguous() for one in LAYERS[name](x, first, weights, *settings))


def _shapes(
    x: torch.Tensor, states: Any, weights: Any, has_biases: bool, layers: int, dropout: float, *flags: bool
) -> tuple[torch.Tensor, ...]:
    _, bidirectional, _ = flags
    outputs = x.new_empty((*x.shape[:2], (2 if bidirectional else 1) * states[0].shape[-1]))
    return outputs, *(torch.empty_like(one, memory_format=torch.contiguous_format) for one in states)


OPERATORS = {
    name: kept_whole(
        name,
        "Tensor input, Tensor[] hx, Tensor[] params",
        "bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first",
        3 if name == "lstm" else 2,
        partial(_called, name),
        _shapes,
    )
    for name in LAYERS
}
"""The operators by name."""


def _chosen(
    name: str, x: Any, states: Any, weights: Any, has_biases: Any = None, *settings: Any
) -> tuple[torch.library.CustomOpDef, tuple[Any, ...]] | None:
    """The operator and its arguments; None for a packed sequence, and for dropout between layers while training."""
    if not isinstance(weights, list | tuple):
        return None
    layers, dropout, train, *others = settings
    if train and dropout and layers > 1:
        return None
    hx = list(states) if isinstance(states, Sequence) else [states]
    return OPERATORS[name], (x, hx, weights, has_biases, layers, 0.0, train, *others)


CHOSEN = {function: partial(_chosen, name) for name, function in LAYERS.items()}
"""What to call in the place of torch's functions."""

"""Recurrent layers: LSTM, GRU and RNN over sequences, in one or several layers, and their cells."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from polyfuse.errors import BadArgument
from polyfuse.ir import DType
from polyfuse.ir.whole import all_whole
from polyfuse.nn.graph import Value, constant, dtype_of
from polyfuse.nn.initial_weights import generator
from polyfuse.nn.layers import Module
from polyfuse.nn.nest_writer import Array
from polyfuse.nn.recurrent import functional as recurrent
from polyfuse.nn.recurrent.functional import Nonlinearity
from polyfuse.nn.shape.functional import expand, select, stack
from polyfuse.nn.torch_names import torch_names

Parameters = tuple[Array, Array, Array | None, Array | None]
"""A layer's w, u, b and bu."""


@torch_names(input_size="features", hidden_size="hidden", num_layers="layers")
class Recurrent(Module):
    """The weights of one or more layers, stacked as in torch: `w` (gates * H, D), `u` (gates * H, H), `b` and `bu`.

    Each is a list with one array a layer; the layers above the first take H features. Weights are drawn uniformly from
    ±1/sqrt(H), by shapes and `seed`.
    """

    gates: ClassVar[int]

    def __init__(
        self,
        features: int,
        hidden: int,
        layers: int = 1,
        bias: bool = True,
        dtype: str = "float32",
        seed: int | np.random.Generator = 0,
    ) -> None:
        """Draw the weights.

        Args:
            features: The size of an input.
            hidden: The size of a state.
            layers: The number of layers, each of which takes the outputs of the one below.
            bias: False leaves both biases out.
            dtype: The element type of the weights: "float32", "float64", "float16" or "bfloat16".
            seed: Seeds the weights: a number, or a numpy Generator that several layers share.

        Raises:
            BadArgument: if a size is below 1, or dtype is another type.
        """
        if min(all_whole(type(self).__name__, (features, hidden, layers))) < 1:
            raise BadArgument(
                f"{type(self).__name__}({features}, {hidden}, layers={layers}): all must be at least 1"
            )
        sizes = (self.gates, features, hidden, layers)
        draw = generator(type(self).__name__, seed, sizes)
        bound, element, rows = 1 / np.sqrt(hidden), dtype_of(dtype), self.gates * hidden

        def drawn(*shape: int) -> Array:
            return draw.uniform(-bound, bound, shape).astype(element)

        self.hidden, self.layers = hidden, layers
        self.w = [drawn(rows, hidden if layer else features) for layer in range(layers)]
        self.u = [drawn(rows, hidden) for _ in range(layers)]
        self.b: list[Array | None] = [drawn(rows) if bias else None for _ in range(layers)]
        self.bu: list[Array | None] = [drawn(rows) if bias else None for _ in range(layers)]

    @property
    def in_features(self) -> tuple[int]:
        """The size the first layer's weight takes."""
        return (int(self.w[0].shape[1]),)

    @property
    def dtype(self) -> DType:
        """The weights'."""
        return dtype_of(self.w[0].dtype)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.in_features[0]}, {self.hidden}, layers={self.layers}, "
            f"bias={self.b[0] is not None}, dtype={self.dtype!r})"
        )


class LSTM(Recurrent):
    """An LSTM over a sequence (T, B, features) -> (T, B, hidden); see `lstm`."""

    gates = 4

    def forward(self, x: Value) -> Value:
        """Return the last layer's outputs, from states of 0."""
        return self.unrolled(x)[0]

    def unrolled(
        self, x: Value, h: Value | None = None, c: Value | None = None
    ) -> tuple[Value, Value, Value]:
        """Run from given states.

        Args:
            x: (T, B, features).
            h: The first states (layers, B, hidden); 0 by default.
            c: The first cell states (layers, B, hidden); 0 by default.

        Returns:
            Outputs (T, B, hidden), last h and last c, each (layers, B, hidden).
        """
        hs, cs = [], []
        for layer, parameters in enumerate(zip(self.w, self.u, self.b, self.bu, strict=True)):
            x, last, cell = recurrent.lstm(x, *parameters, _of(h, layer), _of(c, layer))
            hs.append(last)
            cs.append(cell)
        return x, stack(hs), stack(cs)


class OneState(Recurrent):
    """A recurrent layer whose only state is its output."""

    @abstractmethod
    def layer(self, x: Value, parameters: Parameters, h: Value | None) -> tuple[Value, Value]:
        """Run one layer from a state: its outputs and its last state."""

    def forward(self, x: Value) -> Value:
        """Return the last layer's outputs, from states of 0."""
        return self.unrolled(x)[0]

    def unrolled(self, x: Value, h: Value | None = None) -> tuple[Value, Value]:
        """Run from a given state.

        Args:
            x: (T, B, features).
            h: The first states (layers, B, hidden); 0 by default.

        Returns:
            Outputs (T, B, hidden), last h (layers, B, hidden).
        """
        hs = []
        for layer, parameters in enumerate(zip(self.w, self.u, self.b, self.bu, strict=True)):
            x, last = self.layer(x, parameters, _of(h, layer))
            hs.append(last)
        return x, stack(hs)


class GRU(OneState):
    """A gated recurrent unit over a sequence (T, B, features) -> (T, B, hidden); see `gru`."""

    gates = 3

    def layer(self, x: Value, parameters: Parameters, h: Value | None) -> tuple[Value, Value]:
        """`gru`."""
        return recurrent.gru(x, *parameters, h)


class RNN(OneState):
    """A plain recurrent layer over a sequence (T, B, features) -> (T, B, hidden); see `rnn`."""

    gates = 1
    nonlinearity: Nonlinearity = "tanh"

    def layer(self, x: Value, parameters: Parameters, h: Value | None) -> tuple[Value, Value]:
        """`rnn`."""
        return recurrent.rnn(x, *parameters, h, self.nonlinearity)


@torch_names(input_size="features", hidden_size="hidden")
class _Cell(Recurrent):
    """One layer's weights, for one step at a time."""

    def __init__(
        self,
        features: int,
        hidden: int,
        bias: bool = True,
        dtype: str = "float32",
        seed: int | np.random.Generator = 0,
    ) -> None:
        """Draw the weights.

        Args:
            features: The size of an input.
            hidden: The size of a state.
            bias: False leaves both biases out.
            dtype: The element type of the weights: "float32", "float64", "float16" or "bfloat16".
            seed: Seeds the weights: a number, or a numpy Generator that several layers share.

        Raises:
            BadArgument: if a size is below 1, or dtype is another type.
        """
        super().__init__(features, hidden, 1, bias, dtype, seed)

    def _none(self, x: Value) -> Value:
        return expand(constant(np.zeros((1, self.hidden), x.dtype)), (x.shape[0], self.hidden))


class LSTMCell(_Cell):
    """One step of an LSTM: x (B, features), states (B, hidden)."""

    gates = 4

    def forward(self, x: Value) -> Value:
        """Return the next h, from states of 0."""
        return self.step(x, self._none(x), self._none(x))[0]

    def step(self, x: Value, h: Value, c: Value) -> tuple[Value, Value]:
        """Return the next states.

        Args:
            x: (B, features).
            h: The state (B, hidden).
            c: The cell state (B, hidden).

        Returns:
            The next h and the next c.
        """
        return recurrent.lstm_cell(x, h, c, self.w[0], self.u[0], self.b[0], self.bu[0])


class GRUCell(_Cell):
    """One step of a gated recurrent unit: x (B, features), h (B, hidden)."""

    gates = 3

    def forward(self, x: Value) -> Value:
        """Return the next h, from a state of 0."""
        return self.step(x, self._none(x))

    def step(self, x: Value, h: Value) -> Value:
        """Return the next state.

        Args:
            x: (B, features).
            h: The state (B, hidden).

        Returns:
            The next h.
        """
        return recurrent.gru_cell(x, h, self.w[0], self.u[0], self.b[0], self.bu[0])


class RNNCell(_Cell):
    """One step of a plain recurrent layer: x (B, features), h (B, hidden)."""

    gates = 1
    nonlinearity: Nonlinearity = "tanh"

    def forward(self, x: Value) -> Value:
        """Return the next h, from a state of 0."""
        return self.step(x, self._none(x))

    def step(self, x: Value, h: Value) -> Value:
        """Return the next state.

        Args:
            x: (B, features).
            h: The state (B, hidden).

        Returns:
            The next h.
        """
        return recurrent.rnn_cell(x, h, self.w[0], self.u[0], self.b[0], self.bu[0], self.nonlinearity)


def _of(states: Value | None, layer: int) -> Value | None:
    """One layer's part of the states of all."""
    return None if states is None else select(states, 0, layer)

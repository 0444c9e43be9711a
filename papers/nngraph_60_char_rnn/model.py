"""The char-rnn: two LSTM layers over characters and a Linear, as char-rnn wrote it, as layers, and in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import polyfuse as pf
from polyfuse import nn

Array = np.ndarray[Any, Any]
States = list[Array]
Step = Callable[[Array, States], tuple[Array, States]]
"""(the letters' numbers, states h and c of each layer) -> (probabilities of the next one, new states)."""

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Layer:
    """Weights stacked as in torch, gates i f g o: w (4 H, D), u (4 H, H), b and bu (4 H,)."""

    w: Array
    u: Array
    b: Array
    bu: Array

    @property
    def hidden(self) -> int:
        return int(self.u.shape[1])


@dataclass(frozen=True)
class Network:
    """LSTM layers, and what turns the last one's state into a number for each letter."""

    layers: tuple[Layer, ...]
    out_w: Array
    out_b: Array

    @classmethod
    def trained(cls) -> Network:
        """The weights that `train.py` kept."""
        with np.load(DATA / "weights.npz", allow_pickle=False) as kept:
            arrays = {name: kept[name].astype(np.float32) for name in kept.files}
        depth = sum(name.startswith("weight_ih") for name in arrays)
        kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        layers = [Layer(*(arrays[f"{kind}_l{n}"] for kind in kinds)) for n in range(depth)]
        return cls(tuple(layers), arrays["out_w"], arrays["out_b"])

    @classmethod
    def drawn(cls, letters: int, hidden: int, depth: int = 2) -> Network:
        """Weights of any size, for counts and times."""
        draw, bound = np.random.default_rng(0), hidden**-0.5

        def some(*shape: int) -> Array:
            return draw.uniform(-bound, bound, shape).astype(np.float32)

        rows = 4 * hidden
        layers = [
            Layer(some(rows, hidden if n else letters), some(rows, hidden), some(rows), some(rows))
            for n in range(depth)
        ]
        return cls(tuple(layers), some(letters, hidden), some(letters))

    def copied(self) -> Network:
        """The same weights in arrays of its own, as a training step changes them."""
        layers = tuple(Layer(*(x.copy() for x in (one.w, one.u, one.b, one.bu))) for one in self.layers)
        return Network(layers, self.out_w.copy(), self.out_b.copy())

    @property
    def letters(self) -> int:
        return int(self.out_b.shape[0])

    def start(self, batch: int) -> States:
        return [np.zeros((batch, layer.hidden), np.float32) for layer in self.layers for _ in "hc"]

    def step_as_written(self, batch: int) -> pf.Nest:
        """char-rnn's graph of one step: two products, their sum in four Narrows, eight pointwise nodes a layer.

        A letter chooses a row of the first layer's weight: what its row of 0 and 1 gives in a product.
        """
        h, after = nn.input("x", (batch,), "int64"), list[nn.Value]()
        for n, layer in enumerate(self.layers):
            state, cell = (nn.input(f"{name}{n}", (batch, layer.hidden)) for name in "hc")
            rows = np.ascontiguousarray(layer.w.T)
            own = nn.linear(h, rows, layer.b) if n else nn.embedding(h, rows) + layer.b
            gates = own + nn.linear(state, layer.u.T, layer.bu)
            i, f, g, o = nn.split(gates, layer.hidden, axis=1)
            cell = nn.sigmoid(f) * cell + nn.sigmoid(i) * nn.tanh(g)
            h = nn.sigmoid(o) * nn.tanh(cell)
            after += [h, cell]
        return pf.lower([nn.softmax(nn.linear(h, self.out_w.T, self.out_b)), *after])

    def sequence(self, times: int, batch: int) -> pf.Nest:
        """All steps of a sequence, the loop over time in the nest; the probabilities after every step.

        `nn.lstm` takes vectors: a letter's is a row of 0 and 1, looked up where the product over all times needs it.
        """
        letters = nn.input("x", (times, batch), "int64")
        h: nn.Value = nn.embedding(letters, np.eye(self.letters, dtype=np.float32))
        for layer in self.layers:
            h, _, _ = nn.lstm(h, layer.w, layer.u, layer.b, layer.bu)
        return pf.lower(nn.softmax(nn.linear(h, self.out_w.T, self.out_b)))

    def reference(self, x: Array, states: States) -> tuple[Array, States]:
        """One step in NumPy."""
        after: States = []
        x = np.eye(self.letters, dtype=np.float32)[x]
        for layer, h, c in zip(self.layers, states[::2], states[1::2], strict=True):
            i, f, g, o = np.split(x @ layer.w.T + layer.b + h @ layer.u.T + layer.bu, 4, axis=1)
            cell = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
            x = _sigmoid(o) * np.tanh(cell)
            after += [x, cell]
        e = np.exp(x @ self.out_w.T + self.out_b)
        return e / e.sum(axis=1, keepdims=True), after


def _sigmoid(x: Array) -> Array:
    value: Array = 1 / (1 + np.exp(-x))
    return value


def compiled(net: pf.Executable) -> Step:
    """An executable of `step_as_written` as a step."""

    def step(x: Array, states: States) -> tuple[Array, States]:
        after: tuple[Array, ...] = net(x, *states)
        return after[0], list(after[1:])

    return step


def alphabet() -> str:
    """The letters of the text, in the order of the network's numbers."""
    return "".join(sorted(set((DATA / "text.txt").read_text(encoding="utf-8"))))


def generated(network: Network, step: Step, begin: str, count: int, seed: int) -> str:
    """`count` letters after a beginning, each drawn by the network's probabilities."""
    return begin + "".join(_drawn(network, step, begin, count, np.random.default_rng(seed)))


def _drawn(network: Network, step: Step, begin: str, count: int, draw: np.random.Generator) -> Iterator[str]:
    letters, states = alphabet(), network.start(1)
    for letter in begin[:-1]:
        _, states = step(np.array([letters.index(letter)]), states)
    last = begin[-1]
    for _ in range(count):
        probabilities, states = step(np.array([letters.index(last)]), states)
        bounds = np.cumsum(probabilities[0], dtype=np.float64)
        last = letters[int(np.searchsorted(bounds, draw.random() * bounds[-1]))]
        yield last

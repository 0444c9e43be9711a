"""The training half: the network of `model.py` trained on the text by polyfuse alone, and its steps' copies counted.

one step as written      the graph of `step_as_written` with cross-entropy, its gradients and the update
sequences                STEPS letters of BATCH places in the text at once, Adam, as `torch_training.py` trains it
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Any

import numpy as np

import polyfuse as pf
from papers.nngraph_60_char_rnn.model import DATA, Array, Network, alphabet
from polyfuse import nn
from polyfuse.ir.scalar import Read

HIDDEN, STEPS, BATCH, RATE = 48, 32, 16, 4e-3
CURVE = DATA / "torch_losses.csv"
"""The losses of torch's steps, from the same weights and on the same letters."""


class Trained(nn.Module):
    """The network's arrays as a model. Subclasses are its forms."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.weights = [x for layer in network.layers for x in (layer.w, layer.u, layer.b, layer.bu)]
        self.weights += [network.out_w, network.out_b]


class Sequences(Trained):
    """(steps, batch) letters -> (steps * batch, letters) scores, from states of 0."""

    def forward(self, x: nn.Value) -> nn.Value:
        h: nn.Value = nn.embedding(x, np.eye(self.network.letters, dtype=np.float32))
        for layer in self.network.layers:
            h, _, _ = nn.lstm(h, layer.w, layer.u, layer.b, layer.bu)
        rows = nn.reshape(h, (-1, h.shape[2]))
        return nn.linear(rows, nn.transpose(nn.constant(self.network.out_w), 0, 1), self.network.out_b)


class OneStep(Trained):
    """One step of given states, each gate a Narrow of the sum, as char-rnn wrote it. Letters are rows of 0 and 1."""

    def forward(self, *inputs: nn.Value) -> nn.Value:
        h, *states = inputs
        for layer, state, cell in zip(self.network.layers, states[::2], states[1::2], strict=True):
            w, u = (nn.transpose(nn.constant(x), 0, 1) for x in (layer.w, layer.u))
            gates = nn.linear(h, w, layer.b) + nn.linear(state, u, layer.bu)
            i, f, g, o = nn.split(gates, layer.hidden, axis=1)
            h = nn.sigmoid(o) * nn.tanh(nn.sigmoid(f) * cell + nn.sigmoid(i) * nn.tanh(g))
        return nn.linear(h, nn.transpose(nn.constant(self.network.out_w), 0, 1), self.network.out_b)


def one_step(network: Network, batch: int, **options: Any) -> pf.optim.TrainStep:
    """A training step of one step in time, its views as written."""
    width = network.layers[0].hidden
    states = [nn.input(f"{kind}{n}", (batch, width)) for n in range(len(network.layers)) for kind in "hc"]
    inputs = (nn.input("x", (batch, network.letters)), *states)
    return pf.train_step(OneStep(network), nn.CrossEntropyLoss(), pf.optim.SGD(0.1), inputs=inputs, **options)


def sequences(network: Network, **options: Any) -> pf.optim.TrainStep:
    """A training step of whole sequences."""
    inputs = (nn.input("x", (STEPS, BATCH), "int64"),)
    return pf.train_step(
        Sequences(network), nn.CrossEntropyLoss(), pf.optim.Adam(RATE), inputs=inputs, **options
    )


def copies(net: pf.Executable) -> list[str]:
    """The statements of a call that only move elements which another kernel wrote, forward or backward.

    Also one that adds each element to where nothing else adds: that is a Narrow's adjoint, into zeros. A move inside a
    kernel is from a register, or from a tile that is in the cache.
    """
    nest, found = net.nest, []
    written = {s.name: s for s in nest.statements}
    for launch in net.kernels:
        ran = [written[name] for name in launch.statements if name in written and not launch.once]
        here = {s.write.tensor for s in ran}
        for s in ran:
            if not isinstance(s.body, Read) or s.op not in ("=", "+="):
                continue
            source = nest.tensor(s.reads[s.body.position].tensor)
            adds_up = s.op == "+=" and not s.write.map.intersect_domain(nest.domains[s.name]).is_injective()
            if source.name not in here and source.rank and source.gather is None and not adds_up:
                found.append(s.name)
    return found


def batches(count: int) -> Iterator[tuple[Array, Array]]:
    """Letters at random places of the text, and those that follow them: the same in every run."""
    letters, draw = alphabet(), np.random.default_rng(0)
    text = (DATA / "text.txt").read_text(encoding="utf-8")
    codes = np.array([letters.index(letter) for letter in text])
    for _ in range(count):
        at = draw.integers(0, len(codes) - STEPS - 1, BATCH)[None] + np.arange(STEPS + 1)[:, None]
        yield codes[at[:-1]], codes[at[1:]].reshape(-1)


def first_network() -> Network:
    """The weights that both begin with: copies, since they are changed."""
    return Network.drawn(len(alphabet()), HIDDEN)


def trained(network: Network, count: int, **options: Any) -> list[float]:
    """The losses of so many steps; the network's arrays are changed."""
    step = sequences(network, **options)
    return [step(x, target) for x, target in batches(count)]


def torch_losses() -> Array:
    """The losses that `torch_training.py` kept."""
    with CURVE.open(encoding="utf-8", newline="") as file:
        return np.array([float(row["loss"]) for row in csv.DictReader(file)])

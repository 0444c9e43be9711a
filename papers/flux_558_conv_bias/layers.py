"""The convolutional layers of the model zoo's network for MNIST: 3 x 3 windows, padding 1, ReLU, pooling by 2."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import polyfuse as pf
from polyfuse import nn
from polyfuse.ir import Nest

Array = Any


@dataclass(frozen=True)
class Layer:
    """Images of (channels, side, side) to `filters` of half the side; without pooling, of the same side."""

    channels: int
    side: int
    filters: int
    pooled: bool

    @property
    def image(self) -> tuple[int, int, int]:
        return self.channels, self.side, self.side

    def weights(self) -> tuple[Array, Array]:
        """Weight and bias, the same in every run."""
        rng = np.random.default_rng(self.filters)
        weight = rng.standard_normal((self.filters, self.channels, 3, 3), np.float32)
        return weight * (9 * self.channels) ** -0.5, rng.standard_normal(self.filters, np.float32)

    def nest(self, batch: int) -> Nest:
        """Convolution, bias, ReLU, and pooling if there is any."""
        value = nn.relu(nn.conv2d(nn.input("x", (batch, *self.image)), *self.weights(), padding=1))
        return pf.lower(nn.max_pool(value, 2) if self.pooled else value)

    def reference(self, x: Array) -> Array:
        """The same by NumPy in float64, the window's elements one by one."""
        value = np.maximum(self._sums(x), 0)
        return self._tiles(value).max(axis=(3, 5)) if self.pooled else value

    def gradients(self, x: Array, seed: Array) -> tuple[Array, Array]:
        """Gradients of weight and bias by NumPy. Of equal elements of a tile only zeros occur, which have no slope."""
        sums = self._sums(x)
        if self.pooled:
            tiles = self._tiles(sums)
            chosen = tiles == tiles.max(axis=(3, 5), keepdims=True)
            seed = np.where(chosen, seed[:, :, :, None, :, None], 0).reshape(sums.shape)
        slopes = np.where(sums > 0, seed, 0)
        every = [np.einsum("nfhw,nchw->fc", slopes, part, optimize=True) for _, part in self._windows(x)]
        return np.stack(every, axis=-1).reshape(self.filters, self.channels, 3, 3), slopes.sum(axis=(0, 2, 3))

    def output(self, batch: int) -> tuple[int, int, int, int]:
        """The shape of the result."""
        side = self.side // 2 if self.pooled else self.side
        return batch, self.filters, side, side

    def _sums(self, x: Array) -> Array:
        """Before the activation, in float64."""
        bias = self.weights()[1]
        return (
            sum(np.einsum("fc,nchw->nfhw", w, part, optimize=True) for w, part in self._windows(x))
            + (bias[:, None, None])
        )

    def _windows(self, x: Array) -> Iterator[tuple[Array, Array]]:
        """For each element of the window, its weights and the pixels that it sees."""
        weight = self.weights()[0]
        padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
        for r in range(3):
            for s in range(3):
                yield weight[:, :, r, s], padded[:, :, r : r + self.side, s : s + self.side]

    def _tiles(self, value: Array) -> Array:
        """Images as tiles of 2 x 2: (batch, filters, rows, 2, columns, 2)."""
        half = self.side // 2
        return value.reshape(*value.shape[:2], half, 2, half, 2)

    def about(self) -> dict[str, Any]:
        """What a row says of it."""
        pooled = " + pool" if self.pooled else ""
        return {"layer": f"{self.channels} → {self.filters}, {self.side} × {self.side}{pooled}"}


LAYERS = Layer(1, 28, 16, pooled=True), Layer(16, 14, 32, pooled=True), Layer(1, 28, 16, pooled=False)

"""The convolutional layers of the model zoo's network for MNIST: 3 x 3 windows, padding 1, ReLU, pooling by 2."""

from __future__ import annotations

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
        weight, bias = self.weights()
        padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = (
            (weight[:, :, r, s], padded[:, :, r : r + self.side, s : s + self.side])
            for r in range(3)
            for s in range(3)
        )
        sums = sum(np.einsum("fc,nchw->nfhw", w, part, optimize=True) for w, part in windows)
        value = np.maximum(sums + bias[:, None, None], 0)
        if not self.pooled:
            return value
        half = self.side // 2
        blocks = value[:, :, : 2 * half, : 2 * half].reshape(*value.shape[:2], half, 2, half, 2)
        return blocks.max(axis=(3, 5))

    def about(self) -> dict[str, Any]:
        """What a row says of it."""
        pooled = " + pool" if self.pooled else ""
        return {"layer": f"{self.channels} → {self.filters}, {self.side} × {self.side}{pooled}"}


LAYERS = Layer(1, 28, 16, pooled=True), Layer(16, 14, 32, pooled=True), Layer(1, 28, 16, pooled=False)

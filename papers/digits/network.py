"""The network with its trained weights, as polyfuse's layers and as NumPy's arithmetic; images and labels it never saw.

image [8, 8] -> 2 x (convolution 3 x 3, batch norm, ReLU, pooling by 2): 16 channels of 4 x 4, 32 of 2 x 2
             -> linear: 10 scores
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import polyfuse as pf
from polyfuse import nn
from polyfuse.ir import Nest

Array = Any

FILE = Path(__file__).parent / "digits.npz"
WHITE = 16
"""The largest value of a pixel."""

EPSILON = 1e-5


def kept() -> Mapping[str, Array]:
    """Weights by name; 360 `images` of (8, 8) with values of 0 to WHITE, and their `labels`."""
    with np.load(FILE) as file:
        return {name: file[name] for name in file.files}


def inputs(images: Array) -> Array:
    """(N, 8, 8) whole numbers -> (N, 1, 8, 8) float32 from 0 to 1."""
    return np.ascontiguousarray(images[:, None] / np.float32(WHITE), np.float32)


def nest(batch: int, weights: Mapping[str, Array]) -> Nest:
    """The network for so many images at once."""
    value = nn.input("x", (batch, 1, 8, 8))
    for n in range(2):
        statistics = (weights[f"{name}{n}"] for name in ("mean", "var", "gamma", "beta"))
        value = nn.batch_norm(nn.conv2d(value, weights[f"conv{n}"], padding=1), *statistics, eps=EPSILON)
        value = nn.max_pool(nn.relu(value), 2)
    return pf.lower(nn.linear(nn.reshape(value, (batch, -1)), weights["weight"], weights["bias"]))


def reference(x: Array, weights: Mapping[str, Array]) -> Array:
    """The same scores by NumPy in float64."""
    value = x.astype(np.float64)
    for n in range(2):
        side = value.shape[-1]
        padded = np.pad(value, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
        sums = np.einsum("nchwrs,fcrs->nfhw", windows, weights[f"conv{n}"], optimize=True)
        mean, var, gamma, beta = (
            weights[f"{name}{n}"][:, None, None].astype(np.float64)
            for name in ("mean", "var", "gamma", "beta")
        )
        positive = np.maximum((sums - mean) / np.sqrt(var + EPSILON) * gamma + beta, 0)
        half = side // 2
        value = positive.reshape(*positive.shape[:2], half, 2, half, 2).max(axis=(3, 5))
    return value.reshape(len(x), -1) @ weights["weight"] + weights["bias"]

"""The workloads: what is computed, on which arrays, and how exactly. NumPy alone; nothing of any side.

A *kind* is a computation (kinds are the keys of every side's KINDS, and of references.REFERENCES); a workload is a kind
and its arrays. All arrays are float32.

| kind | arrays | results |
|---|---|---|
| mlp | x [batch, width]; w0 b0, w1 b1, … | h = relu(h @ w + b), layer by layer |
| conv | x [n, c, h, w], weight [k, c, 3, 3], bias [k] | relu of the sum over a border of zeros one wide: [n, k, h, w] |
| grouped | the same, weight [k, c / groups, 3, 3] | the same in groups; depthwise where each has one channel |
| first_layers | the same, weight [k, c, 7, 7] | steps of 2, border of 3; maxima of 3 x 3, steps of 2, border of 1 |
| separable | x, deep [c, 1, 3, 3], wide [k, c, 1, 1] | relu of one convolution behind the other, sizes kept |
| normed | x, gamma, beta [c], weight [c, c, 3, 3], bias [c] | x + conv of silu of the norm of NORM_GROUPS groups |
| upsampled | as conv | conv of each pixel twice along both axes |
| bias_gradient | gradient [n, k, h, w] | its sum over n, h, w |
| lstm | x [steps, batch, width]; wx0 wh0 b0, … with gates i f g o | the last layer's h in every step, from h = c = 0 |
| ensemble | x [members, batch, width]; w0 b0, …, a matrix and a row for each member | mlp, member by member |
| softmax, layer_norm | x [rows, columns]; gamma, beta | along rows; ε is EPSILON |
| chain | x [n] | the sum of CHAIN's ten operations |
| jacobi | a, b [n, n] | a and b after STEPS times a → b → a, means of five neighbours inside the border |
| two_mm | a b c d | BETA d + ALPHA a b c |
| three_mm | a b c d | (a b) (c d) |
| atax | a, x | aᵀ (a x) |
| gemver | a, u1 v1 u2 v2 x y z | x' = x + BETA a'ᵀ y + z and ALPHA a' x', with a' = a + u1 v1ᵀ + u2 v2ᵀ |
| harris, unsharp | image | papers/pipelines (WEIGHT, THRESHOLD), for every pixel whose neighbours are there |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

Arrays = dict[str, Any]

EPSILON = 1e-5
ALPHA, BETA = 1.5, 1.2
STEPS = 100
WEIGHT, THRESHOLD = 3.0, 0.05
NORM_GROUPS = 8


@dataclass(frozen=True)
class Workload:
    """A computation on arrays of its own.

    `bound` is the largest difference to the float64 reference, relative to its largest element, that counts as right;
    a part `flipped` of the elements may differ by more, where a comparison of data decides and rounding flips it.
    """

    name: str
    kind: str
    make: Callable[[], Arrays]
    bound: float = 1e-5
    flipped: float = 0.0


def mlp(layers: int, width: int, batch: int) -> Workload:
    """A dense network, every layer with bias and ReLU."""
    return Workload(f"mlp-{layers}x{width}-b{batch}", "mlp", partial(mlp_arrays, layers, width, batch))


def mlp_arrays(layers: int, width: int, batch: int) -> Arrays:
    draw = Draw(1)
    arrays = {"x": draw(batch, width)}
    for layer in range(layers):
        arrays[f"w{layer}"] = draw(width, width, scale=(2 / width) ** 0.5)
        arrays[f"b{layer}"] = draw(width, scale=0.1)
    return arrays


def conv_arrays(n: int, channels: int, side: int, filters: int, groups: int = 1, window: int = 3) -> Arrays:
    draw, deep = Draw(2), channels // groups
    weight = draw(filters, deep, window, window, scale=(window**2 * deep) ** -0.5)
    return {"x": draw(n, channels, side, side), "weight": weight, "bias": draw(filters)}


def separable_arrays(n: int, channels: int, side: int, filters: int) -> Arrays:
    draw = Draw(8)
    deep, wide = draw(channels, 1, 3, 3, scale=1 / 3), draw(filters, channels, 1, 1, scale=channels**-0.5)
    return {"x": draw(n, channels, side, side), "deep": deep, "wide": wide}


def normed_arrays(n: int, channels: int, side: int) -> Arrays:
    draw = Draw(9)
    return {**conv_arrays(n, channels, side, channels), "gamma": draw(channels), "beta": draw(channels)}


def lstm_arrays(layers: int, width: int, batch: int, steps: int) -> Arrays:
    draw = Draw(3)
    arrays = {"x": draw(steps, batch, width)}
    for layer in range(layers):
        arrays[f"wx{layer}"] = draw(width, 4 * width, scale=width**-0.5)
        arrays[f"wh{layer}"] = draw(width, 4 * width, scale=width**-0.5)
        arrays[f"b{layer}"] = draw(4 * width, scale=0.1)
    return arrays


def ensemble_arrays(members: int, layers: int, width: int, batch: int) -> Arrays:
    draw = Draw(4)
    arrays = {"x": draw(members, batch, width)}
    for layer in range(layers):
        arrays[f"w{layer}"] = draw(members, width, width, scale=(2 / width) ** 0.5)
        arrays[f"b{layer}"] = draw(members, 1, width, scale=0.1)
    return arrays


def normal(**shapes: tuple[int, ...]) -> Arrays:
    draw = Draw(5)
    return {name: draw(*shape) for name, shape in shapes.items()}


def jacobi_arrays(n: int) -> Arrays:
    """PolyBench's."""
    i, j = np.ogrid[:n, :n]
    return {name: ((i * (j + k) + k) / n).astype(np.float32) for name, k in (("a", 2), ("b", 3))}


def gemver_arrays(n: int) -> Arrays:
    draw = Draw(6)
    return {
        "a": draw(n, n),
        **{name: draw(n, scale=0.05) for name in ("u1", "v1", "u2", "v2", "x", "y", "z")},
    }


def image_arrays(*shape: int) -> Arrays:
    return {"image": np.random.default_rng(7).random(shape, np.float32)}


class Draw:
    """Normal float32 numbers, the same in every run."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def __call__(self, *shape: int, scale: float = 1.0) -> Any:
        return self.rng.standard_normal(shape, np.float32) * np.float32(scale)


TABLE: Mapping[str, Workload] = {
    workload.name: workload
    for workload in (
        *(
            mlp(*sides)
            for sides in (
                (8, 64, 1),
                (8, 128, 16),
                (8, 512, 64),
                (8, 1024, 64),
                (4, 1024, 256),
                (1, 2048, 256),
            )
        ),
        Workload("conv-n32-c16-28-k32", "conv", partial(conv_arrays, 32, 16, 28, 32)),
        Workload("conv-n1-c64-56-k64", "conv", partial(conv_arrays, 1, 64, 56, 64)),
        Workload("bias-gradient-n32-k32-28", "bias_gradient", partial(normal, gradient=(32, 32, 28, 28))),
        Workload("lstm-2x128-b50-s50", "lstm", partial(lstm_arrays, 2, 128, 50, 50)),
        Workload("lstm-2x512-b50-s50", "lstm", partial(lstm_arrays, 2, 512, 50, 50)),
        Workload("ensemble-10x4x64-b32", "ensemble", partial(ensemble_arrays, 10, 4, 64, 32)),
        Workload("softmax-4096x1024", "softmax", partial(normal, x=(4096, 1024))),
        Workload(
            "layer-norm-4096x1024", "layer_norm", partial(normal, x=(4096, 1024), gamma=(1024,), beta=(1024,))
        ),
        # A float32 sum of so many numbers: how far off a side is, is in its row.
        Workload("chain-16M", "chain", partial(normal, x=(1 << 24,)), bound=1e-4),
        Workload("jacobi-2d-1300-t100", "jacobi", partial(jacobi_arrays, 1300)),
        Workload(
            "2mm-large",
            "two_mm",
            partial(normal, a=(800, 1100), b=(1100, 900), c=(900, 1200), d=(800, 1200)),
        ),
        Workload(
            "3mm-large",
            "three_mm",
            partial(normal, a=(800, 1000), b=(1000, 900), c=(900, 1200), d=(1200, 1100)),
        ),
        Workload("atax-1900x2100", "atax", partial(normal, a=(1900, 2100), x=(2100,))),
        Workload("gemver-2000", "gemver", partial(gemver_arrays, 2000)),
        Workload("harris-2048", "harris", partial(image_arrays, 2052, 2052)),
        Workload("unsharp-3x2048", "unsharp", partial(image_arrays, 3, 2052, 2052), flipped=1e-5),
    )
}

IMAGES: Mapping[str, Workload] = {
    workload.name: workload
    for workload in (
        Workload("depthwise-n8-c64-28", "grouped", partial(conv_arrays, 8, 64, 28, 64, 64)),
        Workload("depthwise-n4-c32-112", "grouped", partial(conv_arrays, 4, 32, 112, 32, 32)),
        Workload("groups-4-n8-c64-28", "grouped", partial(conv_arrays, 8, 64, 28, 64, 4)),
        Workload("groups-8-n4-c64-28", "grouped", partial(conv_arrays, 4, 64, 28, 64, 8)),
        Workload("groups-32-n4-c128-28", "grouped", partial(conv_arrays, 4, 128, 28, 128, 32)),
        Workload("first-layers-n1-224", "first_layers", partial(conv_arrays, 1, 3, 224, 64, window=7)),
        Workload("separable-n8-c64-28-k128", "separable", partial(separable_arrays, 8, 64, 28, 128)),
        Workload("normed-n4-c64-32", "normed", partial(normed_arrays, 4, 64, 32)),
        Workload("upsampled-n2-c32-32-k32", "upsampled", partial(conv_arrays, 2, 32, 32, 32)),
    )
}
"""Layers of networks for images beside the table's: `--images`."""

EVERY: Mapping[str, Workload] = {**TABLE, **IMAGES}

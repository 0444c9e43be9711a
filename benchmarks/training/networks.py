"""The networks that are trained, each written once: operations are a side's, weights are drawn here.

A network draws its weights when it is made, and is then called with a side's operations `f`, the weights as that side
holds them, and the inputs. What it returns goes to the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol

import numpy as np

Array = np.ndarray[Any, Any]
Loss = Literal["mse", "cross_entropy", "bce"]


class Functions(Protocol):
    """The operations of a side; values and weights are its own."""

    def linear(self, x: Any, weight: Any, bias: Any) -> Any: ...
    def conv(
        self, x: Any, weight: Any, bias: Any | None, stride: int, padding: int, groups: int = 1
    ) -> Any: ...
    def batch_norm(self, x: Any, gamma: Any, beta: Any, mean: Any, var: Any) -> Any: ...
    def layer_norm(self, x: Any, gamma: Any, beta: Any) -> Any: ...
    def max_pool(self, x: Any, window: int, stride: int, padding: int) -> Any: ...
    def mean(self, x: Any, axes: tuple[int, ...]) -> Any: ...
    def sum(self, x: Any, axis: int) -> Any: ...
    def relu(self, x: Any) -> Any: ...
    def relu6(self, x: Any) -> Any: ...
    def gelu(self, x: Any) -> Any: ...
    def sigmoid(self, x: Any) -> Any: ...
    def exp(self, x: Any) -> Any: ...
    def sin(self, x: Any) -> Any: ...
    def cos(self, x: Any) -> Any: ...
    def cumsum(self, x: Any, axis: int) -> Any: ...
    def reshape(self, x: Any, shape: tuple[int, ...]) -> Any: ...
    def concat(self, parts: list[Any], axis: int) -> Any: ...
    def stack(self, parts: list[Any], axis: int) -> Any: ...
    def matmul(self, a: Any, b: Any) -> Any: ...
    def transpose(self, x: Any, a: int, b: int) -> Any: ...
    def rows(self, table: Any, index: Any) -> Any: ...
    def letters(self, index: Any, count: int) -> Any: ...
    def lstm(self, x: Any, w: Any, u: Any, b: Any, bu: Any) -> Any: ...
    def attention(self, q: Any, k: Any, v: Any) -> Any: ...


@dataclass(frozen=True)
class Network:
    """A network, its first weights, and a batch.

    Attributes:
        weights: By name; a side keeps those of `linear` in its own order.
        statistics: Names of weights that are no parameters: running means and variances.
        inputs: What the network is called with.
        target: What the loss compares its output with.
        loss: The loss.
        forward: (operations, weights, inputs) -> output.
    """

    weights: Mapping[str, Array]
    statistics: tuple[str, ...]
    inputs: tuple[Array, ...]
    target: Array
    loss: Loss
    forward: Callable[..., Any]


class Draw:
    """Weights by name, the same in every run."""

    def __init__(self, seed: int = 0) -> None:
        self.rng, self.weights = np.random.default_rng(seed), dict[str, Array]()
        self.statistics: list[str] = []

    def normal(self, *shape: int, scale: float = 1.0) -> Array:
        return self.rng.standard_normal(shape, np.float32) * np.float32(scale)

    def linear(self, name: str, inside: int, outside: int) -> None:
        """Weight (inside, outside) and bias."""
        self.weights[f"{name}.weight"] = self.normal(inside, outside, scale=(2 / inside) ** 0.5)
        self.weights[f"{name}.bias"] = self.normal(outside, scale=0.01)

    def conv(
        self, name: str, channels: int, filters: int, window: int, groups: int = 1, bias: bool = False
    ) -> None:
        own = channels // groups
        scale = (2 / (own * window**2)) ** 0.5
        self.weights[f"{name}.filters"] = self.normal(filters, own, window, window, scale=scale)
        if bias:
            self.weights[f"{name}.bias"] = self.normal(filters, scale=0.01)

    def norm(self, name: str, channels: int, running: bool = True) -> None:
        self.weights[f"{name}.gamma"] = np.ones(channels, np.float32)
        self.weights[f"{name}.beta"] = np.zeros(channels, np.float32)
        if running:
            self.weights[f"{name}.mean"] = np.zeros(channels, np.float32)
            self.weights[f"{name}.var"] = np.ones(channels, np.float32)
            self.statistics += [f"{name}.mean", f"{name}.var"]

    def lstm(self, name: str, features: int, hidden: int) -> None:
        bound = hidden**-0.5
        shapes = {"w": (4 * hidden, features), "u": (4 * hidden, hidden), "b": (4 * hidden,)}
        for kind, shape in {**shapes, "bu": shapes["b"]}.items():
            self.weights[f"{name}.{kind}"] = self.rng.uniform(-bound, bound, shape).astype(np.float32)

    def made(
        self, forward: Callable[..., Any], inputs: tuple[Array, ...], target: Array, loss: Loss
    ) -> Network:
        return Network(self.weights, tuple(self.statistics), inputs, target, loss, forward)


class Named:
    """A side's operations on weights by name."""

    def __init__(self, f: Functions, weights: Mapping[str, Any]) -> None:
        self.f, self.w = f, weights

    def linear(self, name: str, x: Any) -> Any:
        return self.f.linear(x, self.w[f"{name}.weight"], self.w[f"{name}.bias"])

    def conv(self, name: str, x: Any, stride: int = 1, padding: int = 0, groups: int = 1) -> Any:
        bias = self.w.get(f"{name}.bias")
        return self.f.conv(x, self.w[f"{name}.filters"], bias, stride, padding, groups)

    def batch_norm(self, name: str, x: Any) -> Any:
        return self.f.batch_norm(x, *(self.w[f"{name}.{kind}"] for kind in ("gamma", "beta", "mean", "var")))

    def layer_norm(self, name: str, x: Any) -> Any:
        return self.f.layer_norm(x, self.w[f"{name}.gamma"], self.w[f"{name}.beta"])

    def lstm(self, name: str, x: Any) -> Any:
        return self.f.lstm(x, *(self.w[f"{name}.{kind}"] for kind in ("w", "u", "b", "bu")))


def mlp(layers: int, width: int, batch: int) -> Network:
    """`layers` × (Linear(width) + ReLU), squared errors."""
    draw = Draw()
    for n in range(layers):
        draw.linear(f"l{n}", width, width)

    def forward(f: Functions, weights: Mapping[str, Any], x: Any) -> Any:
        a = Named(f, weights)
        for n in range(layers):
            x = f.relu(a.linear(f"l{n}", x))
        return x

    return draw.made(forward, (draw.normal(batch, width),), draw.normal(batch, width), "mse")


def digits(batch: int) -> Network:
    """The network of papers/digits: 2 × (convolution, batch norm, ReLU, pooling), 10 classes."""
    draw = Draw()
    for n, (channels, filters) in enumerate(((1, 16), (16, 32))):
        draw.conv(f"c{n}", channels, filters, 3)
        draw.norm(f"n{n}", filters)
    draw.linear("last", 128, 10)

    def forward(f: Functions, weights: Mapping[str, Any], x: Any) -> Any:
        a = Named(f, weights)
        for n in range(2):
            x = f.max_pool(f.relu(a.batch_norm(f"n{n}", a.conv(f"c{n}", x, padding=1))), 2, 2, 0)
        return a.linear("last", f.reshape(x, (batch, -1)))

    return draw.made(
        forward, (draw.normal(batch, 1, 8, 8),), draw.rng.integers(0, 10, batch), "cross_entropy"
    )


STAGES = ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1))
"""Filters and strides of ResNet-18's blocks."""


def resnet18(batch: int, side: int) -> Network:
    """ResNet-18. He et al. (2016)."""
    draw, channels = Draw(), 64
    draw.conv("first", 3, 64, 7)
    draw.norm("first", 64)
    for n, (filters, stride) in enumerate(STAGES):
        draw.conv(f"b{n}.one", channels, filters, 3)
        draw.norm(f"b{n}.one", filters)
        draw.conv(f"b{n}.two", filters, filters, 3)
        draw.norm(f"b{n}.two", filters)
        if (channels, stride) != (filters, 1):
            draw.conv(f"b{n}.down", channels, filters, 1)
            draw.norm(f"b{n}.down", filters)
        channels = filters
    draw.linear("last", 512, 1000)

    def forward(f: Functions, weights: Mapping[str, Any], x: Any) -> Any:
        a = Named(f, weights)
        x = f.relu(a.batch_norm("first", a.conv("first", x, 2, 3)))
        x = f.max_pool(x, 3, 2, 1)
        for n, (_, stride) in enumerate(STAGES):
            y = f.relu(a.batch_norm(f"b{n}.one", a.conv(f"b{n}.one", x, stride, 1)))
            y = a.batch_norm(f"b{n}.two", a.conv(f"b{n}.two", y, 1, 1))
            down = f"b{n}.down.filters" in weights
            x = f.relu(y + (a.batch_norm(f"b{n}.down", a.conv(f"b{n}.down", x, stride)) if down else x))
        return a.linear("last", f.mean(x, (2, 3)))

    images = draw.normal(batch, 3, side, side)
    return draw.made(forward, (images,), draw.rng.integers(0, 1000, batch), "cross_entropy")


INVERTED = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""MobileNetV2's stages: expansion, filters, blocks, the first one's stride."""


def mobilenet_v2(batch: int, side: int) -> Network:
    """MobileNetV2. Sandler et al. (2018)."""
    draw, channels = Draw(), 32
    blocks: list[tuple[str, int, int, int, int]] = []
    draw.conv("first", 3, 32, 3)
    draw.norm("first", 32)
    for expansion, filters, count, first in INVERTED:
        for n in range(count):
            name, wide = f"b{len(blocks)}", channels * expansion
            blocks.append((name, channels, wide, filters, first if n == 0 else 1))
            if expansion > 1:
                draw.conv(f"{name}.wide", channels, wide, 1)
                draw.norm(f"{name}.wide", wide)
            draw.conv(f"{name}.deep", wide, wide, 3, groups=wide)
            draw.norm(f"{name}.deep", wide)
            draw.conv(f"{name}.thin", wide, filters, 1)
            draw.norm(f"{name}.thin", filters)
            channels = filters
    draw.conv("top", channels, 1280, 1)
    draw.norm("top", 1280)
    draw.linear("last", 1280, 1000)

    def forward(f: Functions, weights: Mapping[str, Any], x: Any) -> Any:
        a = Named(f, weights)
        x = f.relu6(a.batch_norm("first", a.conv("first", x, 2, 1)))
        for name, inside, wide, filters, stride in blocks:
            y = x
            if wide != inside:
                y = f.relu6(a.batch_norm(f"{name}.wide", a.conv(f"{name}.wide", y)))
            y = f.relu6(a.batch_norm(f"{name}.deep", a.conv(f"{name}.deep", y, stride, 1, wide)))
            y = a.batch_norm(f"{name}.thin", a.conv(f"{name}.thin", y))
            x = x + y if (inside, 1) == (filters, stride) else y
        x = f.relu6(a.batch_norm("top", a.conv("top", x)))
        return a.linear("last", f.mean(x, (2, 3)))

    images = draw.normal(batch, 3, side, side)
    return draw.made(forward, (images,), draw.rng.integers(0, 1000, batch), "cross_entropy")


def char_rnn(hidden: int, steps: int = 50, batch: int = 50, letters: int = 65, layers: int = 2) -> Network:
    """Two LSTM layers over letters. Karpathy's char-rnn (2015), its default steps and batch."""
    draw = Draw()
    for n in range(layers):
        draw.lstm(f"l{n}", hidden if n else letters, hidden)
    draw.linear("last", hidden, letters)

    def forward(f: Functions, weights: Mapping[str, Any], x: Any) -> Any:
        a = Named(f, weights)
        h = f.letters(x, letters)
        for n in range(layers):
            h = a.lstm(f"l{n}", h)
        return a.linear("last", f.reshape(h, (steps * batch, hidden)))

    text = draw.rng.integers(0, letters, (steps, batch))
    return draw.made(forward, (text,), draw.rng.integers(0, letters, steps * batch), "cross_entropy")


def encoder(layers: int, batch: int, tokens: int, width: int, heads: int) -> Network:
    """Layers of a transformer's encoder, the norm first. Vaswani et al. (2017)."""
    draw = Draw()
    for n in range(layers):
        for part in ("q", "k", "v", "o"):
            draw.linear(f"{n}.{part}", width, width)
        draw.linear(f"{n}.up", width, 4 * width)
        draw.linear(f"{n}.down", 4 * width, width)
        draw.norm(f"{n}.n0", width, running=False)
        draw.norm(f"{n}.n1", width, running=False)
    rows = batch * tokens

    def forward(f: Functions, weights: Mapping[str, Any], x: Any) -> Any:
        a = Named(f, weights)
        for n in range(layers):
            h = a.layer_norm(f"{n}.n0", x)
            shape = (batch, tokens, heads, width // heads)
            q, k, v = (f.transpose(f.reshape(a.linear(f"{n}.{part}", h), shape), 1, 2) for part in "qkv")
            mixed = f.reshape(f.transpose(f.attention(q, k, v), 1, 2), (rows, width))
            x = x + a.linear(f"{n}.o", mixed)
            x = x + a.linear(f"{n}.down", f.gelu(a.linear(f"{n}.up", a.layer_norm(f"{n}.n1", x))))
        return x

    return draw.made(forward, (draw.normal(rows, width),), draw.normal(rows, width), "mse")


def dlrm(tables: int, rows: int, width: int, batch: int) -> Network:
    """Recommendation: dense features, look-ups, their products in pairs, a dense network. Naumov et al. (2019)."""
    draw, every = Draw(), tables + 1
    draw.linear("d0", 13, 64)
    draw.linear("d1", 64, width)
    for n in range(tables):
        draw.weights[f"table{n}"] = draw.normal(rows, width, scale=0.1)
    draw.linear("t0", width + every**2, 64)
    draw.linear("t1", 64, 1)

    def forward(f: Functions, weights: Mapping[str, Any], x: Any, *index: Any) -> Any:
        a = Named(f, weights)
        dense = f.relu(a.linear("d1", f.relu(a.linear("d0", x))))
        both = f.stack([dense, *(f.rows(weights[f"table{n}"], index[n]) for n in range(tables))], 1)
        pairs = f.reshape(f.matmul(both, f.transpose(both, 1, 2)), (batch, every**2))
        return a.linear("t1", f.relu(a.linear("t0", f.concat([dense, pairs], 1))))

    index = tuple(draw.rng.integers(0, rows, batch) for _ in range(tables))
    clicks = draw.rng.integers(0, 2, (batch, 1)).astype(np.float32)
    return draw.made(forward, (draw.normal(batch, 13), *index), clicks, "bce")


def ensemble(members: int, layers: int, width: int, batch: int) -> Network:
    """Members of `layers` × (Linear(width) + ReLU) on the same batch, each trained by itself."""
    draw = Draw()
    for k in range(members):
        for n in range(layers):
            draw.linear(f"m{k}.{n}", width, width)

    def forward(f: Functions, weights: Mapping[str, Any], x: Any) -> Any:
        a, results = Named(f, weights), []
        for k in range(members):
            h = x
            for n in range(layers):
                h = f.relu(a.linear(f"m{k}.{n}", h))
            results.append(h)
        return f.stack(results, 0)

    target = np.broadcast_to(draw.normal(batch, width), (members, batch, width)).copy()
    return draw.made(forward, (draw.normal(batch, width),), target, "mse")


def nerf(rays: int, samples: int, width: int = 256, layers: int = 8, waves: int = 6) -> Network:
    """A radiance field and the colours of rays. Mildenhall et al. (2020), without directions.

    Points are sines and cosines of their places; the fifth layer reads them again.
    """
    draw, points, encoded = Draw(), rays * samples, 3 + 6 * waves
    for n in range(layers):
        draw.linear(f"l{n}", encoded if n == 0 else width + encoded * (n == layers // 2), width)
    draw.linear("last", width, 4)

    def forward(f: Functions, weights: Mapping[str, Any], x: Any) -> Any:
        a = Named(f, weights)
        phases = [x * float(2**k) for k in range(waves)]
        places = f.concat([x, *(wave for p in phases for wave in (f.sin(p), f.cos(p)))], 1)
        h = places
        for n in range(layers):
            h = f.relu(a.linear(f"l{n}", f.concat([h, places], 1) if n == layers // 2 else h))
        field = f.reshape(a.linear("last", h), (rays, samples, 4))
        thick = f.relu(field[:, :, 3]) * (1.0 / samples)
        clear = f.exp(thick - f.cumsum(thick, 1)) * (1.0 - f.exp(-thick))
        return f.sum(f.sigmoid(field[:, :, :3]) * f.reshape(clear, (rays, samples, 1)), 1)

    colours = draw.rng.random((rays, 3), np.float32)
    return draw.made(forward, (draw.rng.uniform(-1, 1, (points, 3)).astype(np.float32),), colours, "mse")


LAYERS, WIDTHS, BATCHES = (4, 8), (64, 128, 256, 512, 1024), (1, 16, 64, 256)

NETWORKS: Mapping[str, Callable[[], Network]] = {
    **{
        f"{layers} x {width}, batch {batch}": partial(mlp, layers, width, batch)
        for layers in LAYERS
        for width in WIDTHS
        for batch in BATCHES
    },
    "digits CNN, batch 32": partial(digits, 32),
    "ResNet-18, 64 x 64, batch 4": partial(resnet18, 4, 64),
    "MobileNetV2, 64 x 64, batch 4": partial(mobilenet_v2, 4, 64),
    "char-RNN 2 x 128": partial(char_rnn, 128),
    "char-RNN 2 x 512": partial(char_rnn, 512),
    "encoder, 4 layers": partial(encoder, 4, 4, 64, 128, 4),
    "DLRM": partial(dlrm, 8, 1000, 16, 128),
    "ensemble of 10": partial(ensemble, 10, 3, 64, 32),
    "NeRF": partial(nerf, 32, 32),
}
"""Makers by name."""

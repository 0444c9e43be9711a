"""Networks of layers that the model is judged on: forty, of papers and of odd and small sizes.

Weights are random, images 32 to 64 pixels wide: a network is compiled in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

import polyfuse as pf
from polyfuse import nn

Array = np.ndarray[Any, Any]
Block = Callable[[nn.Value], nn.Value]


def drawn(*shape: int) -> Array:
    """Normal float32 numbers, scaled by the root of what is added up."""
    scale = np.float32(1 / np.sqrt(max(1, int(np.prod(shape[1:])))))
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32) * scale


def layers(*modules: nn.Module, batch: int, features: tuple[int, ...] | None = None) -> pf.Nest:
    """Layers one after the other."""
    return pf.lower(nn.Sequential(*modules), batch=batch, features=features)


def mlp(depth: int, width: int, batch: int, *after: nn.Module) -> pf.Nest:
    """A dense network, each layer with the same pointwise layers after it."""
    return layers(*(m for n in range(depth) for m in (nn.Linear(width, width, seed=n), *after)), batch=batch)


def chain(shape: tuple[int, ...], *steps: Block) -> pf.Nest:
    """Functions one after the other."""
    x = nn.input("x", shape)
    for step in steps:
        x = step(x)
    return pf.lower(x)


def convolved(x: nn.Value, filters: int, window: int = 3, stride: int = 1, groups: int = 1) -> nn.Value:
    """A convolution that keeps the picture's size, or divides it by the stride."""
    weight = drawn(filters, x.shape[1] // groups, window, window)
    return nn.conv2d(x, weight, drawn(filters), stride=stride, padding=window // 2, groups=groups)


def normed(x: nn.Value) -> nn.Value:
    """Batch norm with given statistics."""
    c = x.shape[1]
    ones, zeros = np.ones(c, np.float32), np.zeros(c, np.float32)
    return nn.batch_norm(x, zeros, ones, ones, zeros)


def dcgan() -> pf.Nest:
    """A generator. Radford et al. (2016), of half its width."""
    x = nn.input("z", (1, 100, 1, 1))
    x = nn.relu(normed(nn.conv_transpose(x, drawn(100, 256, 4, 4))))
    for before, after in ((256, 128), (128, 64), (64, 32)):
        x = nn.relu(normed(nn.conv_transpose(x, drawn(before, after, 4, 4), stride=2, padding=1)))
    return pf.lower(nn.tanh(nn.conv_transpose(x, drawn(32, 3, 4, 4), stride=2, padding=1)))


def dlrm(tables: int = 8, rows: int = 1000, width: int = 16, batch: int = 128) -> pf.Nest:
    """Recommendation: dense features, look-ups, their products in pairs, a dense network. Naumov et al. (2019)."""
    dense = nn.relu(nn.linear(nn.input("dense", (batch, 13)), drawn(13, 64)))
    dense = nn.relu(nn.linear(dense, drawn(64, width)))
    sparse = [
        nn.embedding(nn.input(f"index{n}", (batch,), "int64"), drawn(rows, width)) for n in range(tables)
    ]
    every = nn.stack([dense, *sparse], 1)
    pairs = nn.matmul(every, nn.transpose(every, 1, 2))
    flat = nn.concat([dense, nn.reshape(pairs, (batch, (tables + 1) ** 2))], 1)
    hidden = nn.relu(nn.linear(flat, drawn(width + (tables + 1) ** 2, 64)))
    return pf.lower(nn.sigmoid(nn.linear(hidden, drawn(64, 1))))


def vgg(batch: int = 1, side: int = 32, norm: bool = True) -> pf.Nest:
    """VGG-11 for small pictures, with batch norm. Simonyan and Zisserman (2015)."""
    x = nn.input("x", (batch, 3, side, side))
    for filters, pooled in ((64, 1), (128, 1), (256, 0), (256, 1), (512, 0), (512, 1)):
        x = convolved(x, filters)
        x = nn.relu(normed(x) if norm else x)
        x = nn.max_pool(x, 2) if pooled else x
    flat = nn.reshape(x, (batch, int(np.prod(x.shape[1:]))))
    return pf.lower(nn.linear(flat, drawn(flat.shape[1], 10)))


def mobilenet(batch: int = 1, side: int = 56) -> pf.Nest:
    """Inverted residuals of MobileNetV2. Sandler et al. (2018)."""
    x = nn.relu6(normed(convolved(nn.input("x", (batch, 3, side, side)), 16, stride=2)))
    for filters, stride in ((24, 2), (24, 1), (32, 2), (32, 1), (64, 2)):
        wide = nn.relu6(normed(convolved(x, 6 * x.shape[1], 1)))
        deep = nn.relu6(normed(convolved(wide, wide.shape[1], 3, stride, groups=wide.shape[1])))
        y = normed(convolved(deep, filters, 1))
        x = x + y if y.shape == x.shape else y
    return pf.lower(nn.mean(x, (2, 3)))


def unet(width: int = 8, side: int = 32) -> pf.Nest:
    """Three levels, with rows and columns repeated on the way up. Ronneberger et al. (2015)."""

    def pair(x: nn.Value, filters: int) -> nn.Value:
        return nn.relu(convolved(nn.relu(convolved(x, filters)), filters))

    def doubled(x: nn.Value) -> nn.Value:
        n, c, h, w = x.shape
        return nn.reshape(
            nn.expand(nn.reshape(x, (n, c, h, 1, w, 1)), (n, c, h, 2, w, 2)), (n, c, 2 * h, 2 * w)
        )

    one = pair(nn.input("x", (1, 3, side, side)), width)
    two = pair(nn.max_pool(one, 2), 2 * width)
    three = pair(nn.max_pool(two, 2), 4 * width)
    two = pair(nn.concat([doubled(three), two], 1), 2 * width)
    return pf.lower(convolved(pair(nn.concat([doubled(two), one], 1), width), 2, 1))


def resnet(batch: int = 1, side: int = 56) -> pf.Nest:
    """The first two stages of ResNet-18. He et al. (2016)."""
    x = nn.relu(normed(convolved(nn.input("x", (batch, 3, side, side)), 64, 7, 2)))
    for filters, stride in ((64, 1), (64, 1), (128, 2), (128, 1)):
        y = normed(convolved(nn.relu(normed(convolved(x, filters, 3, stride))), filters))
        x = nn.relu(y + (x if y.shape == x.shape else normed(convolved(x, filters, 1, stride))))
    return pf.lower(nn.mean(x, (2, 3)))


def encoder(tokens: int = 64, width: int = 128, heads: int = 4, batch: int = 1) -> pf.Nest:
    """One layer of a transformer's encoder. Vaswani et al. (2017), with the norm first."""
    x = nn.input("x", (batch * tokens, width))
    ones, zeros = np.ones(width, np.float32), np.zeros(width, np.float32)
    h = nn.layer_norm(x, width, ones, zeros)
    q, k, v = (
        nn.permute(
            nn.reshape(nn.linear(h, drawn(width, width)), (batch, tokens, heads, width // heads)),
            (0, 2, 1, 3),
        )
        for _ in range(3)
    )
    scores = nn.softmax(nn.matmul(q, nn.transpose(k, 2, 3)) * float((width // heads) ** -0.5), -1)
    mixed = nn.reshape(nn.permute(nn.matmul(scores, v), (0, 2, 1, 3)), (batch * tokens, width))
    x = x + nn.linear(mixed, drawn(width, width))
    h = nn.layer_norm(x, width, ones, zeros)
    return pf.lower(x + nn.linear(nn.gelu(nn.linear(h, drawn(width, 4 * width))), drawn(4 * width, width)))


NETWORKS: Mapping[str, Callable[[], pf.Nest]] = {
    # the smallest
    "4 x Linear(16), batch 2": partial(mlp, 4, 16, 2),
    "2 x Linear(8) + ReLU, batch 1": partial(mlp, 2, 8, 1, nn.ReLU()),
    "ReLU of 7": partial(chain, (7,), nn.relu),
    "softmax of 3 x 5": partial(chain, (3, 5), lambda x: nn.softmax(x, -1)),
    "Linear(3, 1), batch 1": lambda: layers(nn.Linear(3, 1), batch=1),
    # dense
    "4 x Linear(64) + Tanh, batch 8": partial(mlp, 4, 64, 8, nn.Tanh()),
    "3 x Linear(256) + GELU, batch 32": partial(mlp, 3, 256, 32, nn.GELU()),
    "3 x Linear(256) + SiLU + LayerNorm, batch 32": partial(mlp, 3, 256, 32, nn.SiLU(), nn.LayerNorm(256)),
    "3 x Linear(129) + Sigmoid, batch 17": partial(mlp, 3, 129, 17, nn.Sigmoid()),
    "2 x Linear(1000) + ReLU, batch 100": partial(mlp, 2, 1000, 100, nn.ReLU()),
    "autoencoder 784-128-16": lambda: layers(
        nn.Linear(784, 128),
        nn.ReLU(),
        nn.Linear(128, 16),
        nn.ReLU(),
        nn.Linear(16, 128),
        nn.ReLU(),
        nn.Linear(128, 784),
        nn.Sigmoid(),
        batch=64,
    ),
    "classifier with log-softmax": lambda: layers(
        nn.Linear(300, 100), nn.ReLU(), nn.Linear(100, 37), nn.LogSoftmax(), batch=50
    ),
    # pointwise
    "softplus, 1000 x 1000": partial(chain, (1000, 1000), nn.softplus),
    "mish, 1000 x 1000": partial(chain, (1000, 1000), nn.mish),
    "softplus of mish of softplus, 512 x 512": partial(chain, (512, 512), nn.softplus, nn.mish, nn.softplus),
    "mish, 64 x 100": partial(chain, (64, 100), nn.mish),
    "GELU, 1000 x 1000": partial(chain, (1000, 1000), nn.gelu),
    "tanh of sigmoid, 333 x 777": partial(chain, (333, 777), nn.sigmoid, nn.tanh),
    "sin of exp, 512 x 512": partial(chain, (512, 512), lambda x: nn.sin(nn.exp(x))),
    # along rows
    "layer norm, 256 x 1024": partial(chain, (256, 1024), lambda x: nn.layer_norm(x, 1024)),
    "RMS norm, 77 x 333": partial(chain, (77, 333), lambda x: nn.rms_norm(x, 333)),
    "variance, 100 x 5000": partial(chain, (100, 5000), lambda x: nn.var(x, 1)),
    "logsumexp, 512 x 512": partial(chain, (512, 512), lambda x: nn.logsumexp(x, 1)),
    "softmax over rows of 50257": partial(chain, (8, 50257), lambda x: nn.softmax(x, -1)),
    "group norm, 4 x 64 x 28 x 28": partial(chain, (4, 64, 28, 28), lambda x: nn.group_norm(x, 8)),
    "argmax, 256 x 1000": partial(chain, (256, 1000), nn.argmax),
    "cumsum, 256 x 1000": partial(chain, (256, 1000), lambda x: nn.cumsum(x, 1)),
    # pictures
    "LeNet": lambda: layers(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool(2),
        batch=8,
        features=(1, 28, 28),
    ),
    "DCGAN": dcgan,
    "VGG-11 with batch norm": vgg,
    "MobileNetV2": mobilenet,
    "UNet": unet,
    "ResNet": resnet,
    "depthwise, stride 2, 7 x 7": partial(
        chain, (2, 48, 37, 37), lambda x: convolved(x, 48, 7, 2, groups=48)
    ),
    "average pooling, 5 x 5": partial(chain, (4, 16, 61, 61), lambda x: nn.avg_pool(x, 5, 1)),
    "Conv1d of 3 x 1000": lambda: layers(
        nn.Conv1d(3, 32, 9, padding=4), nn.ReLU(), batch=4, features=(3, 1000)
    ),
    # others
    "DLRM": dlrm,
    "encoder layer": encoder,
    "LSTM, 64 of 32": lambda: layers(nn.LSTM(32, 64), batch=16, features=(20, 32)),
    "GRU, 48 of 24": lambda: layers(nn.GRU(24, 48), batch=5, features=(30, 24)),
}
"""Forty networks by name."""

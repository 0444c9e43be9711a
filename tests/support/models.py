"""The networks whose plans the tests are about."""

from __future__ import annotations

from polyfuse import nn
from polyfuse.ir import Nest
from polyfuse.machine import Machine

CPU, CUDA = Machine.preset("zen5"), Machine.preset("h200")


def mlp(layers: int, width: int, batch: int) -> Nest:
    """`layers` × Linear(width) + ReLU."""
    each = [layer for _ in range(layers) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.lower(nn.Sequential(*each), batch=batch)


def softmax() -> Nest:
    return nn.lower(nn.Softmax(), batch=256, features=(512,))


def log_softmax() -> Nest:
    return nn.lower(nn.LogSoftmax(), batch=256, features=(512,))


def layer_norm() -> Nest:
    return nn.lower(nn.LayerNorm(512), batch=256)


def residual() -> Nest:
    inner = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64))
    return nn.lower(nn.Residual(inner), batch=16)


def diamond() -> Nest:
    """b = tanh(a) may join a = relu(x); their product with the sum over a row of a may join neither's element."""
    x = nn.input("x", (64, 128))
    a = nn.relu(x)
    return nn.lower((nn.multiply(nn.tanh(a), nn.sum(a, 1, keepdims=True)),))

"""Steps by JAX: one jitted function of value_and_grad and the update, on the CPU."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.training.networks import Array, Network
from benchmarks.training.steps import MOMENTUM, Step

RATE = 0.1
"""How far running statistics move."""


class Functions:
    """JAX's operations. Running statistics that a step renews are put into `renewed`: old and new values."""

    def __init__(self) -> None:
        self.renewed: list[tuple[Any, Any]] = []

    relu, relu6, sigmoid = map(staticmethod, (jax.nn.relu, jax.nn.relu6, jax.nn.sigmoid))
    exp, sin, cos, matmul = map(staticmethod, (jnp.exp, jnp.sin, jnp.cos, jnp.matmul))
    cumsum, reshape, mean, sum = map(staticmethod, (jnp.cumsum, jnp.reshape, jnp.mean, jnp.sum))
    concat, stack = staticmethod(jnp.concatenate), staticmethod(jnp.stack)
    transpose, letters = staticmethod(jnp.swapaxes), staticmethod(jax.nn.one_hot)

    @staticmethod
    def linear(x: Any, weight: Any, bias: Any) -> Any:
        return x @ weight + bias

    @staticmethod
    def gelu(x: Any) -> Any:
        return jax.nn.gelu(x, approximate=False)

    @staticmethod
    def conv(x: Any, weight: Any, bias: Any, stride: int, padding: int, groups: int = 1) -> Any:
        return jax.lax.conv_general_dilated(
            x, weight, (stride, stride), ((padding, padding),) * 2, feature_group_count=groups
        )

    def batch_norm(self, x: Any, gamma: Any, beta: Any, mean: Any, var: Any) -> Any:
        own, spread = x.mean((0, 2, 3)), x.var((0, 2, 3))
        count = x.size // x.shape[1]
        moved = (mean + RATE * (own - mean), var + RATE * (spread * count / (count - 1) - var))
        self.renewed += zip((mean, var), moved, strict=True)
        scale = (gamma / jnp.sqrt(spread + 1e-5))[:, None, None]
        return (x - own[:, None, None]) * scale + beta[:, None, None]

    @staticmethod
    def layer_norm(x: Any, gamma: Any, beta: Any) -> Any:
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * gamma + beta

    @staticmethod
    def max_pool(x: Any, window: int, stride: int, padding: int) -> Any:
        border = ((0, 0), (0, 0), (padding, padding), (padding, padding))
        sizes = (1, 1, window, window), (1, 1, stride, stride)
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, *sizes, border)

    @staticmethod
    def rows(table: Any, index: Any) -> Any:
        return table[index]

    @staticmethod
    def lstm(x: Any, w: Any, u: Any, b: Any, bu: Any) -> Any:
        def step(state: Any, given: Any) -> Any:
            h, c = state
            i, f, g, o = jnp.split(given + h @ u.T, 4, axis=1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zeros = jnp.zeros((x.shape[1], u.shape[1]), x.dtype)
        return jax.lax.scan(step, (zeros, zeros), x @ w.T + b + bu)[1]

    @staticmethod
    def attention(q: Any, k: Any, v: Any) -> Any:
        scores = q @ jnp.swapaxes(k, 2, 3) * q.shape[3] ** -0.5
        return jax.nn.softmax(scores, -1) @ v


def _mse(x: Any, target: Any) -> Any:
    return ((x - target) ** 2).mean()


def _cross_entropy(x: Any, target: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax(x), target[:, None], 1).mean()


def _bce(x: Any, target: Any) -> Any:
    return (jnp.maximum(x, 0) - x * target + jnp.log1p(jnp.exp(-jnp.abs(x)))).mean()


LOSSES = {"mse": _mse, "cross_entropy": _cross_entropy, "bce": _bce}


class JaxStep(Step):
    """value_and_grad and the update in one jitted function, whose weights are donated."""

    def __init__(self, network: Network, lr: float) -> None:
        trained = {name: array for name, array in network.weights.items() if name not in network.statistics}
        kept = {name: network.weights[name] for name in network.statistics}
        self.held = jax.device_put((trained, jax.tree.map(np.zeros_like, trained), kept))
        self.batch = jax.device_put((*network.inputs, network.target))

        def value(weights: Any, statistics: Any, batch: Any) -> Any:
            f = Functions()
            found = LOSSES[network.loss](network.forward(f, weights | statistics, *batch[:-1]), batch[-1])
            new = {id(old): after for old, after in f.renewed}
            return found, {name: new[id(old)] for name, old in statistics.items()}

        def step(held: Any, batch: Any) -> Any:
            weights, momentum, statistics = held
            (loss, after), slopes = jax.value_and_grad(value, has_aux=True)(weights, statistics, batch)
            momentum = jax.tree.map(lambda m, g: MOMENTUM * m + g, momentum, slopes)
            return loss, (jax.tree.map(lambda p, m: p - lr * m, weights, momentum), momentum, after)

        self.step = jax.jit(step, donate_argnums=0)

    def __call__(self) -> float:
        loss, self.held = self.step(self.held, self.batch)
        jax.block_until_ready(self.held)
        return float(loss)

    def parameters(self) -> dict[str, Array]:
        return {
            name: np.asarray(array) for part in (self.held[0], self.held[2]) for name, array in part.items()
        }

"""The workloads as functions of JAX: jitted by by_jax.py, written as StableHLO for IREE by by_iree.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.peers.workloads import ALPHA, BETA, EPSILON, NORM_GROUPS, STEPS, THRESHOLD, WEIGHT

Arrays = dict[str, Any]


def mlp(a: Arrays) -> Any:
    h = a["x"]
    for n in range(sum(name.startswith("w") for name in a)):
        h = jax.nn.relu(h @ a[f"w{n}"] + a[f"b{n}"])
    return (h,)


def convolved(x: Any, weight: Any, border: int, step: int = 1) -> Any:
    groups = x.shape[1] // weight.shape[1]
    return jax.lax.conv_general_dilated(
        x, weight, (step, step), ((border, border),) * 2, feature_group_count=groups
    )


def conv(a: Arrays) -> Any:
    return (jax.nn.relu(convolved(a["x"], a["weight"], 1) + a["bias"][:, None, None]),)


def first_layers(a: Arrays) -> Any:
    sums = jax.nn.relu(convolved(a["x"], a["weight"], 3, 2) + a["bias"][:, None, None])
    border = ((0, 0), (0, 0), (1, 1), (1, 1))
    return (jax.lax.reduce_window(sums, -jnp.inf, jax.lax.max, (1, 1, 3, 3), (1, 1, 2, 2), border),)


def separable(a: Arrays) -> Any:
    inside = jax.nn.relu(convolved(a["x"], a["deep"], 1))
    return (jax.nn.relu(convolved(inside, a["wide"], 0)),)


def normed(a: Arrays) -> Any:
    x = a["x"]
    apart = x.reshape(x.shape[0], NORM_GROUPS, -1)
    mean, variance = apart.mean(2, keepdims=True), apart.var(2, keepdims=True)
    norm = ((apart - mean) * jax.lax.rsqrt(variance + EPSILON)).reshape(x.shape)
    norm = norm * a["gamma"][:, None, None] + a["beta"][:, None, None]
    return (x + convolved(jax.nn.silu(norm), a["weight"], 1) + a["bias"][:, None, None],)


def upsampled(a: Arrays) -> Any:
    return conv({**a, "x": a["x"].repeat(2, axis=2).repeat(2, axis=3)})


def bias_gradient(a: Arrays) -> Any:
    return (a["gradient"].sum((0, 2, 3)),)


def lstm(a: Arrays) -> Any:
    x = a["x"]
    for n in range(sum(name.startswith("wx") for name in a)):
        inputs = x @ a[f"wx{n}"] + a[f"b{n}"]

        def step(state: Any, given: Any, n: int = n) -> Any:
            h, c = state
            i, f, g, o = jnp.split(given + h @ a[f"wh{n}"], 4, axis=1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zeros = jnp.zeros_like(x[0])
        x = jax.lax.scan(step, (zeros, zeros), inputs)[1]
    return (x,)


def softmax(a: Arrays) -> Any:
    return (jax.nn.softmax(a["x"], axis=1),)


def layer_norm(a: Arrays) -> Any:
    x = a["x"]
    mean, variance = x.mean(1, keepdims=True), x.var(1, keepdims=True)
    return ((x - mean) * jax.lax.rsqrt(variance + EPSILON) * a["gamma"] + a["beta"],)


def chain(a: Arrays) -> Any:
    x = a["x"]
    t = jax.nn.relu(x * 1.1 + 0.3) * x
    return (jnp.sum(jnp.exp(1 / jnp.sqrt(jnp.abs(t) + 1)) - 0.5),)


def jacobi(a: Arrays) -> Any:
    def half(x: Any, y: Any) -> Any:
        mean = x[1:-1, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:] + x[2:, 1:-1] + x[:-2, 1:-1]
        return y.at[1:-1, 1:-1].set(0.2 * mean)

    def step(_: Any, both: Any) -> Any:
        one, two = both
        two = half(one, two)
        return half(two, one), two

    return jax.lax.fori_loop(0, STEPS, step, (a["a"], a["b"]))


def two_mm(a: Arrays) -> Any:
    return (ALPHA * (a["a"] @ a["b"]) @ a["c"] + BETA * a["d"],)


def three_mm(a: Arrays) -> Any:
    return ((a["a"] @ a["b"]) @ (a["c"] @ a["d"]),)


def atax(a: Arrays) -> Any:
    return ((a["a"] @ a["x"]) @ a["a"],)


def gemver(a: Arrays) -> Any:
    matrix = a["a"] + jnp.outer(a["u1"], a["v1"]) + jnp.outer(a["u2"], a["v2"])
    x = a["x"] + BETA * (a["y"] @ matrix) + a["z"]
    return x, ALPHA * (matrix @ x)


def window(image: Any, rows: int, columns: int, up: int, left: int) -> Any:
    return image[..., up : image.shape[-2] - rows + 1 + up, left : image.shape[-1] - columns + 1 + left]


def harris(a: Arrays) -> Any:
    smooth, slope = (1.0, 2.0, 1.0), (-1.0, 0.0, 1.0)
    nine = [(up, left) for up in range(3) for left in range(3)]
    image = a["image"]
    ix = sum(smooth[i] * slope[j] * window(image, 3, 3, i, j) for i, j in nine if slope[j]) / 12
    iy = sum(slope[i] * smooth[j] * window(image, 3, 3, i, j) for i, j in nine if slope[i]) / 12
    xx, xy, yy = (sum(window(p, 3, 3, i, j) for i, j in nine) for p in (ix * ix, ix * iy, iy * iy))
    return (xx * yy - xy * xy - 0.04 * (xx + yy) * (xx + yy),)


def unsharp(a: Arrays) -> Any:
    blur = (1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16)
    image = a["image"]
    along = sum(w * window(image, 5, 1, k, 0) for k, w in enumerate(blur))
    blurred = sum(w * window(along, 1, 5, 0, k) for k, w in enumerate(blur))
    middle = image[..., 2:-2, 2:-2]
    sharp = (1 + WEIGHT) * middle - WEIGHT * blurred
    return (jnp.where(jnp.abs(middle - blurred) < THRESHOLD, middle, sharp),)


FUNCTIONS: dict[str, Callable[[Arrays], Any]] = {
    "ensemble": mlp,
    "grouped": conv,
    **{
        f.__name__: f
        for f in (
            mlp, conv, first_layers, separable, normed, upsampled, bias_gradient, lstm, softmax, layer_norm, chain,
            jacobi, two_mm, three_mm, atax, gemver, harris, unsharp,
        )
    },
}  # fmt: skip

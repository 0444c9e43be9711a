"""Random networks of layers, views and reductions: what a compile makes of them, against NumPy in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

import polyfuse as pf
from polyfuse import nn
from tests.support.examples import examples

Array = np.ndarray[Any, Any]
SIZES = (1, 2, 3, 5, 8, 16, 17, 33)
LARGEST = 20_000
TOLERANCE = {"float32": 2e-3, "float64": 1e-9}
"""Of the largest result: sums of up to a few hundred terms, through up to seven steps."""


@dataclass(frozen=True)
class Known:
    """A value, and what NumPy has for it."""

    value: nn.Value
    array: Array

    @property
    def rank(self) -> int:
        return self.array.ndim


def erf(x: Array) -> Array:
    return np.asarray(np.vectorize(math.erf, otypes=[float])(x))


def softmax_of(x: Array, axis: int) -> Array:
    powers = np.exp(x - x.max(axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis, keepdims=True))


POINTWISE: tuple[tuple[Callable[[nn.Value], nn.Value], Callable[[Array], Array]], ...] = (
    (nn.relu, lambda a: np.maximum(a, 0)),
    (nn.tanh, np.tanh),
    (nn.sigmoid, lambda a: 1 / (1 + np.exp(-a))),
    (nn.gelu, lambda a: 0.5 * a * (1 + erf(a * math.sqrt(0.5)))),
    (lambda x: x * x, lambda a: a * a),
    (lambda x: x / (nn.sum(x * x) + 1.0), lambda a: a / ((a * a).sum() + 1)),
)
REDUCTIONS: Mapping[str, Callable[..., nn.Value]] = {
    "sum": nn.sum, "mean": nn.mean, "max": nn.max, "min": nn.min, "var": nn.var,
}  # fmt: skip


class Network:
    """What has been computed so far; each step adds a value of one of it."""

    def __init__(self, data: st.DataObject, dtype: str) -> None:
        self.draw = data.draw
        self.random = np.random.default_rng(self.draw(st.integers(0, 99)))
        self.dtype = dtype
        shape = self.draw(st.lists(st.sampled_from(SIZES), min_size=1, max_size=4))
        assume(math.prod(shape) <= LARGEST)
        self.x = self.numbers(*shape)
        self.known = [Known(nn.input("x", shape, dtype), self.x.astype(np.float64))]

    def numbers(self, *shape: int) -> Array:
        """Of about the size 1 / sqrt(rows), so that products stay as large as their factors."""
        return (self.random.standard_normal(shape) / math.sqrt(shape[0])).astype(self.dtype)

    def step(self) -> None:
        x = self.draw(st.sampled_from(self.known[-3:]))
        after = self.draw(st.sampled_from(STEPS))(self, x)
        if 0 < after.array.size <= LARGEST and np.abs(after.array).max() < 1e3:
            assert after.value.shape == after.array.shape
            self.known.append(after)

    def axis(self, x: Known) -> int:
        return self.draw(st.integers(0, x.rank - 1)) if x.rank else 0


def pointwise(net: Network, x: Known) -> Known:
    layer, mirror = net.draw(st.sampled_from(POINTWISE))
    return Known(layer(x.value), mirror(x.array))


def combined(net: Network, x: Known) -> Known:
    y = net.draw(st.sampled_from([k for k in net.known if k.array.shape == x.array.shape]))
    return Known(nn.maximum(x.value, y.value) - y.value, np.maximum(x.array, y.array) - y.array)


def linear(net: Network, x: Known) -> Known:
    if not x.rank:
        return x
    columns = net.draw(st.sampled_from(SIZES))
    w, b = net.numbers(x.array.shape[-1], columns), net.numbers(columns)
    return Known(nn.linear(x.value, w, b), x.array @ w + b)


def attention(net: Network, x: Known) -> Known:
    if x.rank < 2:
        return x
    scores = x.array @ x.array.swapaxes(-1, -2)
    value = nn.matmul(nn.softmax(nn.matmul(x.value, nn.transpose(x.value))), x.value)
    return Known(value, softmax_of(scores, -1) @ x.array)


def reduced(net: Network, x: Known) -> Known:
    kind = net.draw(st.sampled_from(sorted(REDUCTIONS)))
    axes = tuple(sorted(net.draw(st.sets(st.integers(0, max(0, x.rank - 1)), min_size=1)))) if x.rank else ()
    keepdims = net.draw(st.booleans())
    value = REDUCTIONS[kind](x.value, axes, keepdims=keepdims)
    return Known(value, np.asarray(getattr(np, kind)(x.array, axis=axes, keepdims=keepdims)))


def normalised(net: Network, x: Known) -> Known:
    axis = net.axis(x)
    return Known(nn.softmax(x.value, axis), softmax_of(x.array, axis)) if x.rank else x


def layer_norm(net: Network, x: Known) -> Known:
    if not x.rank:
        return x
    mean, var = (f(x.array, -1, keepdims=True) for f in (np.mean, np.var))
    return Known(nn.layer_norm(x.value, x.array.shape[-1]), (x.array - mean) / np.sqrt(var + 1e-5))


def convolution(net: Network, x: Known) -> Known:
    """Over a row of vectors, in windows of three with padding."""
    if x.rank != 3:
        return x
    w = net.numbers(net.draw(st.sampled_from(SIZES)), x.array.shape[1], 3)
    padded = np.pad(x.array, ((0, 0), (0, 0), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, 3, -1)
    return Known(nn.conv1d(x.value, w, padding=1), np.einsum("bcps,ocs->bop", windows, w.astype(np.float64)))


def turned(net: Network, x: Known) -> Known:
    order = net.draw(st.permutations(range(x.rank)))
    return Known(nn.permute(x.value, order), x.array.transpose(order))


def flipped(net: Network, x: Known) -> Known:
    axis = net.axis(x)
    return Known(nn.flip(x.value, axis), np.flip(x.array, axis)) if x.rank else x


def narrowed(net: Network, x: Known) -> Known:
    if not x.rank:
        return x
    axis = net.axis(x)
    start = net.draw(st.integers(0, x.array.shape[axis] - 1))
    length = net.draw(st.integers(1, x.array.shape[axis] - start))
    part = np.take(x.array, range(start, start + length), axis)
    return Known(nn.narrow(x.value, axis, start, length), part)


def reshaped(net: Network, x: Known) -> Known:
    shape = net.draw(st.permutations(x.array.shape))
    return Known(nn.reshape(x.value, shape), x.array.reshape(shape))


def padded(net: Network, x: Known) -> Known:
    widths = [(net.draw(st.integers(0, 2)), net.draw(st.integers(0, 2))) for _ in range(x.rank)]
    return Known(nn.pad(x.value, widths, 0.5), np.pad(x.array, widths, constant_values=0.5)) if x.rank else x


def joined(net: Network, x: Known) -> Known:
    if not x.rank:
        return x
    y = net.draw(st.sampled_from([k for k in net.known if k.array.shape == x.array.shape]))
    axis = net.axis(x)
    return Known(nn.concat([x.value, y.value], axis), np.concatenate([x.array, y.array], axis))


STEPS = (
    pointwise, combined, linear, linear, attention, reduced, reduced, normalised, layer_norm, convolution,
    turned, flipped, narrowed, reshaped, padded, joined,
)  # fmt: skip


@settings(
    max_examples=examples(5),
    suppress_health_check=list(HealthCheck),
)
@given(st.data(), st.sampled_from(sorted(TOLERANCE)), st.sampled_from([None, None, None, "auto", "strassen"]))
def test_random_networks(data: st.DataObject, dtype: str, fast: str | None) -> None:
    net = Network(data, dtype)
    for _ in range(data.draw(st.integers(2, 7))):
        net.step()
    also = data.draw(st.lists(st.sampled_from(net.known), max_size=1))
    results = [net.known[-1], *also]
    compiled = pf.compile(nn.lower([known.value for known in results]), fast_matmul=fast)
    event(f"{len(compiled.kernels)} kernels")
    found = compiled(net.x)
    for array, known in zip(found if also else [found], results, strict=True):
        scale = max(1.0, float(np.abs(known.array).max()))
        np.testing.assert_allclose(array, known.array, rtol=0, atol=TOLERANCE[dtype] * scale)

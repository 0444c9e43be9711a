"""The segments: a chain of dense layers, as one nest, and as operators that a framework would run one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import polyfuse as pf
from polyfuse import nn

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Segment:
    """`layers` × (product, bias, ReLU) of `width` at `batch`; `open`: every layer's result is wanted too."""

    layers: int
    batch: int
    width: int
    open: bool

    @property
    def operators(self) -> int:
        return 3 * self.layers

    @property
    def name(self) -> str:
        return "every layer's result is an output" if self.open else "one output"

    def weights(self) -> list[tuple[Array, Array]]:
        rng, shape = np.random.default_rng(1), (self.width, self.width)
        scale = np.float32(self.width**-0.5)
        return [
            (scale * rng.standard_normal(shape, np.float32), rng.standard_normal(self.width, np.float32))
            for _ in range(self.layers)
        ]

    def nest(self) -> pf.Nest:
        x, results = nn.input("x", (self.batch, self.width)), []
        for weight, bias in self.weights():
            x = nn.relu(nn.linear(x, weight, bias))
            results.append(x)
        return pf.lower(results if self.open else results[-1])

    def reference(self, x: Array) -> tuple[Array, ...]:
        results = []
        for weight, bias in self.weights():
            x = np.maximum(x @ weight + bias, 0)
            results.append(x)
        return tuple(results if self.open else results[-1:])


def one_by_one(segment: Segment, options: Mapping[str, Any]) -> Callable[[Array], tuple[Array, ...]]:
    """Every operator an executable, and each call returned to Python; a buffer for each result, made once."""
    shape, wide = (segment.batch, segment.width), (segment.width, segment.width)
    a, b = nn.input("a", shape), nn.input("b", (segment.width,))
    extents = {"i": segment.batch, "j": segment.width, "k": segment.width}
    product = pf.compile(pf.einsum("ik,kj->ij", extents, dtype="float32"), **options)
    add, relu = (pf.compile(pf.lower(value), **options) for value in (a + b, nn.relu(a)))
    steps: list[Callable[[Array], Any]] = []
    buffers = []
    for weight, bias in segment.weights():
        assert weight.shape == wide
        y, z, r = (np.empty(shape, np.float32) for _ in range(3))
        steps += [
            partial(_call, product, y, weight),
            partial(_call, add, z, bias),
            partial(_call, relu, r),
        ]
        buffers.append(r)

    def call(x: Array) -> tuple[Array, ...]:
        for step in steps:
            x = step(x)
        return tuple(buffers if segment.open else buffers[-1:])

    return call


def _call(net: pf.Executable, out: Array, *more: Any) -> Any:
    *others, x = more
    return net(x, *others, out=out)

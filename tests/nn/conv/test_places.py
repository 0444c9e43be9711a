"""The places of maxima and the gradient of max pooling against sums written down directly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.interpret import interpret
from polyfuse.nn.conv.places import max_pool_gradient, max_pool_with_places


def expected(x: Any, g: Any, window: Any, stride: Any, padding: Any, dilation: Any) -> tuple[Any, Any]:
    """The places, and the gradient that is scattered to them."""
    places, found = np.zeros(g.shape, np.int64), np.zeros_like(x)
    for n, c, *p in np.ndindex(*g.shape):
        every = (
            tuple(s * a + d * b - e for s, a, d, b, e in zip(stride, p, dilation, r, padding, strict=True))
            for r in np.ndindex(*window)
        )
        inside = [
            where for where in every if all(0 <= h < size for h, size in zip(where, x.shape[2:], strict=True))
        ]
        best = max(inside, key=lambda where, n=n, c=c: x[(n, c, *where)])
        places[(n, c, *p)] = np.ravel_multi_index(best, x.shape[2:])
        found[(n, c, *best)] += g[(n, c, *p)]
    return places, found


@pytest.mark.parametrize(
    ("shape", "window", "stride", "padding", "dilation"),
    [
        ((2, 2, 6, 5), (2, 2), (2, 2), (0, 0), (1, 1)),
        ((1, 2, 7, 6), (3, 3), (2, 2), (1, 1), (1, 1)),
        ((1, 1, 7, 6), (2, 3), (1, 3), (1, 0), (2, 1)),
        ((2, 1, 9), (3,), (2,), (1,), (1,)),
        ((1, 1, 3, 4, 4), (2, 2, 2), (1, 2, 2), (0, 0, 1), (1, 1, 1)),
    ],
)
def test_places_and_gradient(shape: Any, window: Any, stride: Any, padding: Any, dilation: Any) -> None:
    rng = np.random.default_rng(len(shape))
    x = rng.integers(0, 4, shape).astype(np.float64)  # with ties: the first counts
    pooled, at = max_pool_with_places(nn.input("x", shape, "float64"), window, stride, padding, dilation)
    g = rng.integers(1, 9, pooled.shape).astype(np.float64)
    places, want = expected(x, g, window, stride, padding, dilation)
    found = interpret(pf.lower(at), {"x": x})["out"]
    assert found.dtype == np.int64
    assert np.array_equal(found, places)
    gradient = max_pool_gradient(
        nn.input("g", g.shape, "float64"),
        nn.input("at", g.shape, "int64"),
        shape[2:],
        window,
        stride,
        padding,
        dilation,
    )
    assert np.array_equal(interpret(pf.lower(gradient), {"g": g, "at": places})["out"], want)


def test_they_compile() -> None:
    x = np.random.default_rng(0).standard_normal((1, 2, 6, 6)).astype(np.float32)
    pooled, at = max_pool_with_places(nn.input("x", x.shape), 3, 2, 1)
    g = np.ones(pooled.shape, np.float32)
    maxima, places = pf.compile(pf.lower((pooled, at)))(x)
    nest = pf.lower(
        max_pool_gradient(nn.input("g", g.shape), nn.input("at", g.shape, "int64"), (6, 6), 3, 2, 1)
    )
    want, found = expected(x, g, (3, 3), (2, 2), (1, 1), (1, 1))
    assert np.array_equal(places, want)
    assert np.array_equal(
        maxima.ravel(), np.take_along_axis(x.reshape(2, -1), want.reshape(2, -1), 1).ravel()
    )
    assert np.array_equal(pf.compile(nest)(g, places), found)

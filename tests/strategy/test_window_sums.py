"""Sums over windows without blocks: rows of results in registers, and which kernels get blocks instead."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.ir import Nest
from polyfuse.machine import KiB, MiB, cpu
from tests.strategy.test_convolutions import agrees, convolution

TWO = cpu("two cores", 2, 64, (32 * KiB, 1 * MiB, 32 * MiB), 2.6e9)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    "options",
    [{"padding": 1}, {"padding": 1, "stride": 2}, {"padding": 2, "dilation": 2}, {}],
    ids=str,
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_depthwise_convolutions_run_in_rows(layout: str, options: dict[str, Any], dtype: str) -> None:
    image = (2, 20, 9, 28) if layout == "NCHW" else (2, 9, 13, 20)
    nest = convolution(image, 20, (3, 3), layout, dtype, groups=20, **options)
    assert "row_mac_windows(" in agrees(nest).source


def test_long_rows_run_in_pieces() -> None:
    source = agrees(convolution((1, 3, 5, 300), 3, (3, 3), "NCHW", padding=1, groups=3)).source
    assert "row_mac_windows(112, " in source


def test_symbolic_sizes() -> None:
    @pf.nest
    def smooth(x: "f32[N]", w: "f32[5]", y: "f32[N]"):  # noqa: F821
        for i in range(2, N - 2):  # noqa: F821
            for s in range(5):
                y[i] += w[s] * x[i + s - 2]

    net = pf.compile(smooth, target="cpu")
    rng = np.random.default_rng(0)
    for size in (5, 8, 129, 400):
        x, w = rng.integers(-3, 4, size).astype(np.float32), rng.integers(-3, 4, 5).astype(np.float32)
        y = np.ones(size, np.float32)
        expected = y.copy()
        expected[2:-2] += np.convolve(x, w[::-1], "valid")
        net(x, w, y)
        np.testing.assert_array_equal(y, expected)


def separable(batch: int = 2) -> Nest:
    """A depthwise convolution and one of 1 x 1 windows behind it, with whole weights."""
    rng = np.random.default_rng(1)
    deep, wide = (rng.integers(-3, 4, size).astype(np.float32) for size in ((16, 1, 3, 3), (32, 16, 1, 1)))
    inside = nn.relu(nn.conv2d(nn.input("x", (batch, 16, 14, 14)), deep, padding=1, groups=16))
    return nn.lower(nn.relu(nn.conv2d(inside, wide)))


def test_a_depthwise_convolution_in_the_blocks_of_what_reads_it() -> None:
    source = agrees(separable()).source
    assert "row_mac_windows(14, " in source
    assert "tile_mac" in source


def first_layers(size: int = 30) -> Nest:
    """A convolution and a maximum over windows that overlap."""
    w = np.random.default_rng(1).integers(-3, 4, (32, 3, 7, 7)).astype(np.float32)
    value = nn.relu(nn.conv2d(nn.input("x", (1, 3, size, size)), w, stride=2, padding=3))
    return nn.lower(nn.max_pool(value, 3, 2, padding=1))


def test_pooling_by_overlapping_windows_does_not_keep_a_convolution_from_its_blocks() -> None:
    net = agrees(first_layers(112), machine=TWO)
    assert "tile_mac_windows(" in net.source
    assert "mac0, max0 run apart" in net.explain()


def test_overlapping_windows_are_pooled_along_memory() -> None:
    """What steps a pixel has depends on where the border is: they are outside of the loop along memory."""
    nest = nn.lower(nn.max_pool(nn.input("x", (1, 4, 12, 40)), 3, 2, padding=1))
    net = agrees(nest)
    (*_, row) = net.schedule.loops("max0")
    assert row.date("max0").is_equal(net.schedule.loops("max_init0")[-1].date("max_init0").__class__(
        "{ max0[i, j, k, l, m, n] -> [(l)] }"
    ))

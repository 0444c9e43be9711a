"""Sums over windows without blocks: rows of results in registers, and which kernels get blocks instead."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.ir import Nest
from polyfuse.machine import KiB, Machine, MiB, cpu
from polyfuse.strategy import plan_for
from tests.strategy.cpu.test_convolutions import agrees, convolution
from tests.support.emitted import in_one_line

ONE, TWO = (cpu("cores", n, 64, (32 * KiB, 1 * MiB, 32 * MiB), 2.6e9) for n in (1, 2))


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
    """Of seven vectors, here of 16 lanes."""
    nest = convolution((1, 3, 5, 300), 3, (3, 3), "NCHW", padding=1, groups=3)
    source = agrees(nest, machine=Machine.preset("zen5")).source
    assert "row_mac_windows(TileSpec(rows=1, columns=112)" in in_one_line(source)


def test_symbolic_sizes() -> None:
    @pf.nest
    def smooth(x: f32[N], w: f32[5], y: f32[N]):  # noqa: F821
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
    assert "row_mac_windows(TileSpec(rows=1, columns=14)" in in_one_line(source)
    assert "tile_mac" in source


def first_layers(size: int) -> Nest:
    """A convolution and a maximum over windows that overlap."""
    w = np.random.default_rng(1).integers(-3, 4, (32, 3, 7, 7)).astype(np.float32)
    value = nn.relu(nn.conv2d(nn.input("x", (1, 3, size, size)), w, stride=2, padding=3))
    return nn.lower(nn.max_pool(value, 3, 2, padding=1))


def test_pooling_by_overlapping_windows_does_not_keep_a_convolution_from_its_blocks() -> None:
    agrees(first_layers(30), machine=TWO)
    plan = plan_for(first_layers(224), TWO)
    assert [group.statements[0] for group in plan.groups] == ["pack_w0", "zero0", "max_init0"]
    assert any("mac0, max0 run apart" in line for line in plan.notes)


def test_what_overlapping_windows_have_steps_of_is_outside_of_the_loop_along_memory() -> None:
    net = agrees(nn.lower(nn.max_pool(nn.input("x", (1, 4, 12, 40)), 3, 2, padding=1)))
    names = [loop.name for loop in net.schedule.loops("max0")]
    assert names[-1] == "l"
    assert {"m", "n"} <= {*names}


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(("channels", "groups"), [(64, 4), (64, 2), (24, 3), (96, 2)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_groups_of_whole_vectors_of_filters_run_in_blocks(
    layout: str, channels: int, groups: int, dtype: str
) -> None:
    image = (2, channels, 6, 17) if layout == "NCHW" else (2, 6, 17, channels)
    nest = convolution(image, channels, (3, 3), layout, dtype, groups=groups, padding=1)
    assert "tile_mac_windows(" in agrees(nest, machine=ONE).source


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(("filters", "groups"), [(12, 3), (20, 2), (36, 6)])
def test_groups_of_other_sizes_run_in_rows(layout: str, filters: int, groups: int) -> None:
    image = (2, 2 * groups, 6, 17) if layout == "NCHW" else (2, 6, 17, 2 * groups)
    nest = convolution(image, filters, (3, 3), layout, groups=groups, padding=1, stride=2)
    agrees(nest, machine=ONE)


def test_1_x_1_windows_in_groups() -> None:
    assert "tile_mac" in agrees(convolution((2, 64, 5, 14), 64, (1, 1), "NCHW", groups=2), machine=ONE).source


def test_what_windows_share_is_computed_before_them_image_by_image() -> None:
    """A window's pixels are those of neighbouring tiles too: none of these is where they are computed."""
    layers = nn.Sequential(nn.GroupNorm(2, 16), nn.SiLU(), nn.Conv2d(16, 32, 3, padding=1))
    nest = pf.lower(layers, batch=2, features=(16, 6, 30))
    net = pf.compile(nest, target="cpu", machine=ONE)
    x = np.random.default_rng(0).standard_normal((2, 16, 6, 30), np.float32)
    np.testing.assert_allclose(net(x), pf.interpret(nest, [x])["out"], rtol=1e-4, atol=1e-5)
    assert "tile_mac_windows(" in net.source
    assert net.report().launches == 1
    assert all(loop.date("silu0").n_piece() == 1 for loop in net.schedule.loops("silu0"))


def test_integers_with_a_border_run_along_the_image() -> None:
    """What a pixel lacks of its window is said by the window's loops, which are outside then."""

    @pf.nest
    def conv(x: i64[C, W], w: i64[C, 3], y: i64[C, W]):  # noqa: F821
        for c in range(C):  # noqa: F821
            for j in range(W):  # noqa: F821
                y[c, j] = 0
                for s in range(max(0, 1 - j), min(3, W + 1 - j)):  # noqa: F821
                    y[c, j] += x[c, j + s - 1] * w[c, s]

    net = pf.compile(conv, target="cpu", sizes={"C": 3, "W": 40}, machine=ONE)
    rng = np.random.default_rng(0)
    x, w, y = rng.integers(-9, 9, (3, 40)), rng.integers(-9, 9, (3, 3)), np.zeros((3, 40), np.int64)
    net(x, w, y)
    padded = np.pad(x, ((0, 0), (1, 1)))
    np.testing.assert_array_equal(y, sum(padded[:, s : s + 40] * w[:, s : s + 1] for s in range(3)))
    assert net.schedule.loops("S1")[-1].name == "j"


def test_gradients_of_few_weights_sum_along_the_pixels() -> None:
    """A window's three results fill no vector, and each is a sum of products of neighbours."""
    image, window = nn.input("x", (4, 1, 28, 28)), nn.input("w", (16, 1, 3, 3))
    nest = pf.vjp(nn.lower(nn.conv2d(image, window, padding=1)), "w")
    schedule = plan_for(nest, ONE).schedule
    assert schedule.loops("mac0_to_w")[-1].name == "l"

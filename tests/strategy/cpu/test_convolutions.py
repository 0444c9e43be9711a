"""Convolutions in blocks: they reach the microkernel over windows, and compute what the oracle does."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import polyfuse as pf
from polyfuse import nn
from polyfuse.codegen.looptree.intervals import Interval, interval
from polyfuse.codegen.looptree.joint_values import Facts, cases
from polyfuse.ir import Nest
from polyfuse.machine import KiB, Machine, MiB, cpu
from polyfuse.rewrite.reductions.detach_output import detach
from tests.support.emitted import in_one_line
from tests.support.examples import examples

SMALL = cpu("small caches", 1, 32, (4 * KiB, 16 * KiB, 64 * KiB), 3.0e9)
AVX2 = cpu("avx2", 1, 32, (32 * KiB, 512 * KiB, 32 * MiB), 3.0e9)


def agrees(nest: Nest, **options: Any) -> pf.Executable:
    """The compiled nest, which computes exactly what the oracle does, on whole numbers."""
    rng = np.random.default_rng(0)
    inputs = {t.name: rng.integers(-3, 4, t.shape).astype(t.dtype) for t in nest.inputs}
    net = pf.compile(nest, target="cpu", **options)
    np.testing.assert_array_equal(net(**inputs), pf.interpret(nest, inputs)["out"])
    return net


def convolution(
    image: tuple[int, ...],
    filters: int,
    window: tuple[int, ...],
    layout: str,
    dtype: str = "float32",
    after: bool = True,
    **options: Any,
) -> Nest:
    """A convolution with whole weights, and bias and ReLU after it."""
    rng = np.random.default_rng(1)
    channels = image[-1 if layout.endswith("C") else 1]
    w = rng.integers(-3, 4, (filters, channels // options.get("groups", 1), *window)).astype(dtype)
    b = rng.integers(-3, 4, filters).astype(dtype) if after else None
    function = (nn.conv1d, nn.conv2d, nn.conv3d)[len(window) - 1]
    value = function(nn.input("x", image, dtype), w, b, layout=layout, **options)
    return nn.lower(nn.relu(value) if after else value)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    "options",
    [
        {"padding": 1},
        {"padding": "same", "stride": 2},
        {"padding": ((2, 0), (0, 3)), "dilation": 2},
        {"padding": (2, 3), "dilation": (1, 3), "stride": (2, 1)},
        {},
    ],
    ids=str,
)
def test_a_convolution_reaches_the_microkernel(layout: str, options: dict[str, Any]) -> None:
    image = (2, 6, 11, 17) if layout == "NCHW" else (2, 11, 17, 6)
    net = agrees(convolution(image, 32, (3, 3), layout, **options))
    assert "tile_mac_windows(" in net.source
    assert "microkernel" in str(net.schedule)
    assert "w0 is packed once for all calls" in net.explain()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("window", [(3,), (3, 3), (2, 3, 3)])
def test_any_rank(window: tuple[int, ...], dtype: str) -> None:
    rank = len(window)
    image = (2, 4, *(7, 6, 15)[3 - rank :])
    layout = {1: "NCW", 2: "NCHW", 3: "NCDHW"}[rank]
    assert "tile_mac_windows(" in agrees(convolution(image, 24, window, layout, dtype, padding=1)).source


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(("size", "stride"), [(2, 2), (3, 3), (3, 2)])
def test_pooling_in_the_tiles_of_its_convolution(size: int, stride: int, layout: str) -> None:
    image = (2, 3, 7, 18) if layout == "NCHW" else (2, 7, 18, 3)
    w = np.random.default_rng(1).integers(-3, 4, (16, 3, 3, 3)).astype("float32")
    value = nn.relu(nn.conv2d(nn.input("x", image), w, padding=1, layout=layout))
    net = agrees(nn.lower(nn.max_pool(value, size, stride, layout=layout)))
    assert net.report().launches == 1
    assert "tile_mac_windows(" in net.source


@pytest.mark.parametrize("filters", [2, 8, 10])
def test_fewer_filters_than_a_vector_has_lanes(filters: int) -> None:
    """All 28 results of a row are sums in registers, of which 16 are too few: a machine that has 32."""
    nest = convolution((2, 1, 9, 28), filters, (3, 3), "NCHW", padding=1)
    net = agrees(nest, machine=Machine.preset("zen5"))
    columns = 4 if filters == 2 else 8 if filters == 8 else 16
    assert f"tile_mac_windows(TileSpec(rows=28, columns={columns}, " in in_one_line(net.source)


def test_one_by_one_with_stride() -> None:
    assert "tile_mac" in agrees(convolution((2, 9, 14, 8), 32, (1, 1), "NHWC", stride=2)).source


def test_sums_that_are_the_output_across_memory() -> None:
    net = agrees(convolution((2, 8, 9, 14), 32, (3, 3), "NCHW", after=False, padding=1))
    assert "tile_mac_windows(" in net.source
    assert "mac0 sums in a temporary, which is stored in out: columns lie across that." in net.explain()


def test_only_an_output_is_detached() -> None:
    nest = convolution((1, 2, 5, 5), 3, (3, 3), "NCHW")
    assert "x has role input, not output" in str(detach(nest, "x"))
    done = detach(nest, "out")
    assert isinstance(done, Nest)
    done.check()
    x = np.random.default_rng(0).standard_normal((1, 2, 5, 5)).astype(np.float32)
    np.testing.assert_array_equal(pf.interpret(done, [x])["out"], pf.interpret(nest, [x])["out"])


def test_sums_that_are_the_output() -> None:
    assert (
        "tile_mac_windows("
        in agrees(convolution((2, 9, 14, 8), 32, (3, 3), "NHWC", after=False, padding=1)).source
    )


def test_a_border_in_which_windows_see_nothing() -> None:
    agrees(convolution((1, 3, 4, 20), 16, (3, 3), "NCHW", padding=5))


@settings(max_examples=examples(12), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_convolution(data: Any) -> None:
    """Sizes around those of tiles, and a machine whose caches are small."""

    def number(low: int, high: int) -> int:
        return data.draw(st.integers(low, high))

    layout = data.draw(st.sampled_from(["NCHW", "NHWC"]))
    channels, height, width = number(1, 9), number(5, 9), number(9, 33)
    image = (1, channels, height, width) if layout == "NCHW" else (1, height, width, channels)
    options = {"stride": (number(1, 2), number(1, 3)), "dilation": (1, number(1, 2))}
    options["padding"] = ((number(0, 2), number(0, 2)), (number(0, 4), number(0, 4)))
    nest = convolution(image, number(2, 70), (number(1, 3), number(1, 4)), layout, **options)
    agrees(nest, machine=SMALL)


def test_tiles_that_differ_in_their_rows() -> None:
    """A code for each where there are few, masks where there are many: five of seven tiles."""
    few, many = (
        agrees(
            convolution((1, 2, width), 32, (window,), "NCW", padding=padding, dilation=dilation),
            machine=Machine.preset("zen5"),
        )
        for width, window, padding, dilation in ((37, 3, 1, 1), (92, 5, 32, 16))
    )
    assert "'1:14 0:14 0:14 or 0:9 0:9 0:8'" in few.source
    assert "'at least " in many.source


def test_cases_of_several_expressions() -> None:
    def of(*texts: str) -> tuple[tuple[int, ...], ...] | None:
        return cases([ast.parse(text, mode="eval").body for text in texts], facts)

    border = ast.parse("j >= 1 and j <= 8", mode="eval").body
    facts = Facts().inside("j", Interval(0, 9)).where(border, False).inside("n", Interval(0, None))
    assert of("max(0, 1 - 6*j)", "min(6, 56 - 6*j)") == ((1, 6), (0, 2))
    assert of("3", "4") == ((3, 4),)
    assert of("min(6, n)", "j") is None
    assert of("m + 1") is None


def test_rows_that_are_absent_read_nothing() -> None:
    """A window over the edge: what lies before and after the image is not read, whatever the weights are."""
    x = np.full((1, 2, 3, 16), np.nan, np.float32)
    x[0, :, 1] = 1
    w = np.zeros((16, 2, 3, 3), np.float32)
    w[:, :, 1, 1] = 1
    w[:, :, :, 0] = np.inf
    nest = nn.lower(nn.relu(nn.conv2d(nn.input("x", (1, 2, 1, 16)), w, np.zeros(16, np.float32), padding=1)))
    found = pf.compile(nest, target="cpu")(np.ascontiguousarray(x[:, :, 1:2]))
    assert found[0, :, 0, 0].tolist() == [2.0] * 16
    assert np.isposinf(found[0, :, 0, 1:]).all()


def test_intervals_of_a_tiles_bounds() -> None:
    def of(text: str) -> Interval:
        return interval(ast.parse(text, mode="eval").body, {"j": Interval(0, 1)})

    assert of("max(0, 1 - 14*j)") == Interval(0, 1)
    assert of("min(14, -14*j + 28)") == Interval(14, 14)
    assert of("min(14, n)") == Interval(None, 14)
    assert of("(j + 5) // 2 - n % 3") == Interval(0, 3)
    assert of("-(3 - j)") == Interval(-3, -2)


@pytest.mark.parametrize(("channels", "filters", "side"), [(20, 40, 28), (40, 20, 56), (24, 24, 7)])
def test_pixels_in_one_loop_are_read_and_written_along_memory(channels: int, filters: int, side: int) -> None:
    """No quotients by the length of a row are left, in copies to panels or in stores."""
    nest = convolution((1, channels, side, side), filters, (1, 1), "NCHW")
    net = agrees(nest, machine=Machine.preset("zen4"), force={"coalesce": True})
    assert "out_rows = joined(out, 2)" in net.source
    assert f"// {side}" not in net.source
    assert f"% {side}" not in net.source


def test_a_window_wider_than_its_image_has_tiles_of_the_one_element_inside() -> None:
    nest = convolution((1, 24, 8, 8), 32, (3, 3), "NCHW", padding=36, dilation=36)
    assert "tile_mac(" in agrees(nest, machine=SMALL).source


def test_rows_that_lie_two_apart_are_packed_in_panels_of_whole_tiles() -> None:
    """In panels of as many numbers as a tile has rows, a tile of every second pixel would need two of them."""
    w = np.random.default_rng(1).integers(-3, 4, (16, 16, 1, 1)).astype("float32")
    halved = nn.conv2d(nn.input("x", (1, 16, 20, 20), "float32"), w, None, stride=2)
    nest = nn.lower(nn.relu(halved + nn.input("y", (1, 16, 10, 10), "float32")))
    source = agrees(nest, machine=SMALL).source
    assert "load_x" in source
    assert "no microkernel" not in source


def test_rows_of_pixels_go_by_inside_a_block_of_weights_that_no_cache_holds() -> None:
    """Else all weights come once for each row of pixels."""
    net = agrees(convolution((1, 64, 8, 8), 64, (3, 3), "NCHW", padding=1), machine=SMALL)
    lines = net.source[net.source.index("def zero_mac_bias_relu(") :].splitlines()
    assert [line.split()[1] for line in lines if line.strip().startswith("for ")][:2] == ["j", "k"]


def one_pixel_windows(pixels: int, filters: int = 24, channels: int = 16) -> Nest:
    """A convolution by windows of one pixel, with bias and ReLU."""
    return convolution((1, channels, pixels, pixels), filters, (1, 1), "NCHW")


@pytest.mark.parametrize("pixels", [16, 21, 28])
def test_rows_of_pixels_are_columns_of_a_product(pixels: int) -> None:
    """Filters as columns would have to be turned, as they lie an image apart."""
    net = agrees(one_pixel_windows(pixels), machine=AVX2, force={"coalesce of mac0": False})
    assert "tile_mac" in net.source
    assert "store_transposed" not in net.source


@pytest.mark.parametrize(("channels", "filters", "pixels"), [(16, 96, 112), (24, 144, 56)])
def test_an_image_as_one_row_is_packed_in_pieces_of_a_panels_row(
    channels: int, filters: int, pixels: int
) -> None:
    """Rows of 56 pixels begin inside panels of 16, at multiples of 8."""
    nest = convolution((1, channels, pixels, pixels), filters, (1, 1), "NCHW")
    net = pf.compile(nest, target="cpu", machine=AVX2, force={"coalesce of mac0": True})
    assert "x_rows = on_heap(" in net.source
    assert not [line for line in net.source.splitlines() if line.strip().startswith("x_rows[uint64(")]
    x = np.random.default_rng(0).integers(-3, 4, (1, channels, pixels, pixels)).astype("float32")
    w, b = (nest.constants[name] for name in ("w0", "b0"))
    sums = w.reshape(filters, channels) @ x.reshape(channels, -1) + b[:, None]
    np.testing.assert_array_equal(net(x).reshape(filters, -1), np.maximum(sums, 0))


def test_windows_behind_rows_of_pixels_are_another_kernel() -> None:
    """No tile of a row holds a window of three, so that all windows would run behind all tiles, from memory."""
    w = np.random.default_rng(1).integers(-3, 4, (96, 1, 3, 3)).astype("float32")
    first = nn.relu(nn.conv2d(nn.input("x", (1, 16, 32, 32)), np.ones((96, 16, 1, 1), "float32"), None))
    nest = nn.lower(nn.relu(nn.conv2d(first, w, None, padding=1, groups=96)))
    net = agrees(nest, machine=AVX2, force={"coalesce of mac0": False})
    assert "tile_mac(" in net.source
    assert not any({"mac0", "mac1"} <= {*kernel.statements} for kernel in net.kernels)


@pytest.mark.parametrize("columns", [17, 18, 19, 20, 21, 23, 25, 28, 30, 31])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_of_tiles_that_end_inside_a_vector(columns: int, dtype: str) -> None:
    """They are stored in halves and quarters of a vector, and nothing behind them is."""
    rng = np.random.default_rng(1)
    b = rng.integers(-3, 4, (9, columns)).astype(dtype)
    agrees(nn.lower(nn.input("a", (13, 9), dtype) @ nn.constant(b, "b")), machine=AVX2)

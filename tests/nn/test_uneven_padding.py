"""Convolutions whose padding differs by side, with strides and dilation, on both targets."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn

TARGETS: Mapping[str, Mapping[str, Any]] = {
    "cpu": {"target": "cpu"},
    "cuda": {"target": "cuda", "machine": "h200", "device": "lockstep"},
}

Window = Mapping[str, tuple[Any, ...]]

UNEVEN: list[tuple[tuple[int, ...], tuple[int, ...], Window]] = [
    # a position's pixel has several where the border's conditions are not kept
    ((1, 2, 4, 6), (6, 2, 3, 3), {"padding": ((0, 0), (0, 2)), "dilation": (1, 2)}),
    ((2, 4, 8, 4), (4, 4, 4, 4), {"padding": ((0, 0), (0, 3)), "stride": (2, 1)}),
    ((1, 2, 5, 4, 4), (4, 2, 2, 3, 3), {"padding": ((2, 0), (1, 1), (1, 1)), "dilation": (2, 1, 1)}),
]


def agrees(image: tuple[int, ...], filters: tuple[int, ...], window: Window, target: str) -> None:
    """Whole numbers, so that sums are the same in any order."""
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-3, 4, shape).astype(np.float32) for shape in (image, filters))
    convolve = {3: nn.conv1d, 4: nn.conv2d, 5: nn.conv3d}[len(image)]
    nest = nn.lower(convolve(nn.input("x", image), w, **window))
    found = pf.compile(nest, **TARGETS[target])(x)
    np.testing.assert_array_equal(
        found, pf.interpret(nest, [x])["out"], err_msg=f"{image} {filters} {window}"
    )


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("image", "filters", "window"), UNEVEN)
def test_padding_that_differs_by_side(
    image: tuple[int, ...], filters: tuple[int, ...], window: Window, target: str
) -> None:
    agrees(image, filters, window, target)


@pytest.mark.parametrize("seed", range(8))
def test_random_windows_on_a_gpu(seed: int) -> None:
    draw = random.Random(seed)
    rank = draw.choice((1, 2, 2))
    sizes = tuple(draw.randint(3, 8) for _ in range(rank))
    window = {
        "padding": tuple((draw.randint(0, 3), draw.randint(0, 3)) for _ in sizes),
        "stride": tuple(draw.choice((1, 1, 2)) for _ in sizes),
        "dilation": tuple(draw.choice((1, 1, 2)) for _ in sizes),
    }
    channels = draw.choice((1, 2, 4))
    filters = (draw.choice((4, 6)), channels, *(draw.randint(1, 2) for _ in sizes))
    agrees((draw.choice((1, 2)), channels, *sizes), filters, window, "cuda")

"""Short rows that a few steps reduce: which loops become one, and that the values are the loops'."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.codegen.cpu.intrinsics.reduced_row import reduced_row
from polyfuse.codegen.cpu.intrinsics.row_operation import address
from polyfuse.codegen.cpu.intrinsics.vector_row import VectorRow
from tests.support.execution import memory, run_plain

LAYERS: dict[str, tuple[Callable[[nn.Value], nn.Value], tuple[int, ...]]] = {
    "every second": (lambda x: nn.max_pool(x, 3, stride=2), (1, 2, 31, 31)),
    "with a border": (lambda x: nn.max_pool(x, 3, stride=2, padding=1), (1, 2, 32, 32)),
    "no window overlaps": (lambda x: nn.max_pool(x, 2), (1, 2, 8, 32)),
    "means": (lambda x: nn.avg_pool(x, 2), (1, 2, 8, 64)),
    "side by side, with a border": (lambda x: nn.max_pool(x, 3, stride=1, padding=1), (1, 2, 5, 37)),
    "every third": (lambda x: nn.max_pool(x, 3, stride=3), (1, 2, 9, 64)),
    "every fourth": (lambda x: nn.max_pool(x, 2, stride=4), (2, 2, 9, 70)),
}


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("layer", LAYERS)
def test_pooling_is_one_operation_with_the_same_values(layer: str, dtype: str) -> None:
    build, shape = LAYERS[layer]
    nest = pf.lower(build(nn.input("x", shape, dtype=dtype)))
    net = pf.compile(nest, target="cpu", machine="zen5")
    assert "reduced_row(" in net.source
    x = numbers(shape, dtype)
    if "means" not in layer:
        x[..., ::7] = np.nan
    expected = pf.interpret(nest, [x])["out"]
    np.testing.assert_array_equal(net(x), expected)
    planned = net.schedule
    arrays = memory(nest, planned.nest, planned.tree, {"x": x}, {})
    run_plain(planned.nest, planned.tree, arrays, {}, seed=1)
    np.testing.assert_array_equal(arrays["out"], expected)


def test_a_part_of_a_vector_that_comes_again_stays_in_loops() -> None:
    nest = pf.lower(nn.avg_pool(nn.input("x", (1, 2, 14, 14)), 3, stride=1, padding=1))
    assert "reduced_row(" not in pf.compile(nest, target="cpu", machine="zen5").source


@VectorRow
def maximum_of_twice(y, x):  # type: ignore[no-untyped-def]  # emitted source has no types
    y[:] = larger(y, x + x)  # noqa: F821  # a name of vector rows


def test_nothing_beside_the_results_of_a_step_is_written_and_nothing_behind_an_end_is_read() -> None:
    """Two steps of every second element: the first changes all but one result, the second the last five."""

    @numba.njit
    def run(y: Any, x: Any) -> None:
        reduced_row(
            maximum_of_twice,
            numba.float32,
            count=21,
            target=address(y, (0, 2)),
            strides=(2,),
            lows=(1, 16),
            highs=(21, 21),
            places=((address(x, (0, 0)),), (address(x, (1, 0)),)),
        )

    y, x = numbers((1, 40), "float32"), numbers((2, 41), "float32")
    expected = y.copy()
    row = expected[0, 2:23]
    row[1:] = np.maximum(row[1:], x[0, 2:41:2] * np.float32(2))
    row[16:] = np.maximum(row[16:], x[1, 32:41:2] * np.float32(2))
    run(y, x)
    np.testing.assert_array_equal(y, expected)

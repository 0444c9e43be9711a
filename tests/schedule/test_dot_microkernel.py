"""The microkernel of dot products: factors that both lie along the sum, whole tiles and the rest, and its refusals."""

from __future__ import annotations

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.errors import InvalidSchedule
from polyfuse.ir import Nest, Tensor, statement
from tests.support.emitted import in_one_line
from tests.support.execution import run_plain


def dots(rows: int, columns: int, steps: int, dtype: str = "float32", left: str = "x[i, k]") -> Nest:
    """y = x wᵀ, as torch's linear layers have their weights, then out = 2 y."""
    box = f"0 <= i < {rows} and 0 <= j < {columns}"
    return Nest.of(
        [
            Tensor("x", (rows, steps) if left == "x[i, k]" else (steps, rows), dtype, "input"),
            Tensor("w", (columns, steps), dtype, "input"),
            Tensor("y", (rows, columns), dtype, "temporary"),
            Tensor("out", (rows, columns), dtype, "output"),
        ],
        [
            statement(f"{{ zero[i, j] : {box} }}", "y[i, j] = 0.0"),
            statement(f"{{ mac[i, j, k] : {box} and 0 <= k < {steps} }}", f"y[i, j] += {left} * w[j, k]"),
            statement(f"{{ twice[i, j] : {box} }}", "out[i, j] = 2.0 * y[i, j]"),
        ],
    )


def tiled(nest: Nest, rows: int, columns: int, lanes: int, block: int | None = None) -> pf.Schedule:
    """The loops of tiles of dot products, up to the verb itself; steps in blocks, if asked for."""
    s, outer = pf.Schedule(nest), ["i", "j"]
    if block is not None:
        s, outer = s.split("mac", "k", block), ["k", "i", "j"]
    k = "k" if block is None else "k_in"
    s = s.split("mac", "i", rows).split("mac", "j", columns).split("mac", k, lanes)
    return s.reorder("mac", *outer, k, "i_in", "j_in", f"{k}_in")


def draw(nest: Nest) -> dict[str, np.ndarray]:
    """Small integers, whose sums of products are exact in any order."""
    rng = np.random.default_rng(3)
    return {t.name: rng.integers(-4, 5, t.shape).astype(t.dtype) for t in nest.inputs}


@pytest.mark.parametrize(
    ("shape", "dtype", "tile", "block"),
    [
        ((6, 8, 32), "float32", (3, 4, 8), None),
        ((7, 9, 37), "float32", (3, 4, 8), None),
        ((5, 6, 13), "float32", (4, 2, 8), None),
        ((8, 16, 70), "float32", (6, 4, 16), 32),
        ((4, 7, 21), "float64", (3, 4, 4), 8),
    ],
)
def test_whole_tiles_and_the_rest_equal_the_oracle(
    shape: tuple[int, int, int], dtype: str, tile: tuple[int, int, int], block: int | None
) -> None:
    nest = dots(*shape, dtype)
    k = "k" if block is None else "k_in"
    s = tiled(nest, *tile, block).microkernel("mac", k)
    net = pf.compile(nest, target="cpu", schedule=s)
    inputs = draw(nest)
    rows, columns, lanes = tile
    assert f"tile_dot(TileSpec(rows={rows}, columns={columns}, lanes={lanes})" in in_one_line(net.source)
    expected = pf.interpret(nest, inputs)["out"]
    np.testing.assert_array_equal(net(**inputs), expected)
    plain = {**inputs, "y": np.full(shape[:2], np.nan, dtype), "out": np.full(shape[:2], np.nan, dtype)}
    run_plain(s.nest, s.tree, plain, {}, seed=1)
    np.testing.assert_array_equal(plain["out"], expected)


@pytest.mark.parametrize(
    ("nest", "tile", "said"),
    [
        (dots(6, 8, 32), (3, 4, 6), "a vector's steps"),
        (dots(6, 8, 32), (3, 3, 8), "a power of two of columns"),
        (dots(32, 32, 32), (16, 8, 8), "at most 512 partial sums"),
        (dots(6, 8, 32, left="x[k, i]"), (3, 4, 8), "steps along last axes"),
    ],
)
def test_other_loops_are_refused(nest: Nest, tile: tuple[int, int, int], said: str) -> None:
    schedule = tiled(nest, *tile)
    with pytest.raises(InvalidSchedule, match=said):
        schedule.microkernel("mac", "k")


def test_a_tile_of_dot_products_prefetches_no_panel() -> None:
    schedule = tiled(dots(6, 8, 32), 3, 4, 8).microkernel("mac", "k")
    with pytest.raises(InvalidSchedule, match="only a tile of several rows with one loop of steps"):
        schedule.prefetch("mac", "w", "j")


def test_a_gpu_runs_the_loops_of_dot_products_as_they_are() -> None:
    nest = dots(6, 8, 32)
    s = tiled(nest, 3, 4, 8).microkernel("mac", "k").bind("mac", i="block.x", j="block.y")
    inputs = draw(nest)
    net = pf.compile(nest, target="cuda", schedule=s, device="lockstep")
    np.testing.assert_array_equal(net(**inputs), pf.interpret(nest, inputs)["out"])

"""Statements behind the phases of a transposed convolution run through whole rows, not by two pixels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.schedule import Schedule
from polyfuse.strategy.transforms.packing import without_coarse_loops


@pf.nest
def halves(x: f32[8], y: f32[8], z: f32[16]):  # noqa: F821
    for k in range(8):
        y[k] = 2 * x[k]
    for k in range(16):
        z[k] = y[k // 2]


def test_a_loop_over_blocks_of_another_loop_is_dropped() -> None:
    first, second = (s.name for s in halves.statements)
    fused = Schedule(halves).fuse(first, second, at="k")
    assert len(fused.loops(second)) == 2
    alone = fused.distribute(second, "k")
    assert len(alone.loops(second)) == 2
    (loop,) = without_coarse_loops(alone, (second,)).loops(second)
    assert str(loop.date(second)) == f"{{ {second}[k] -> [(k)] }}"
    assert without_coarse_loops(fused, (first, second)).loops(second) == fused.loops(second)


def test_a_transposed_convolution_ends_in_whole_rows() -> None:
    """Its last phase has every second pixel of every second row, the bias and the function behind it all pixels."""
    rng = np.random.default_rng(4)
    w, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((16, 3, 4, 4), (3,)))
    x = nn.input("x", (2, 16, 32, 32))
    nest = pf.lower(nn.sigmoid(nn.conv_transpose(x, w, b, stride=2, padding=1)))
    run = pf.compile(nest, target="cpu", machine=replace(pf.Machine.preset("xeon"), units=1))
    assert [loop.name for loop in run.schedule.loops("sigmoid0")] == ["i", "j", "k", "l"]
    given = rng.standard_normal((2, 16, 32, 32)).astype(np.float32)
    np.testing.assert_allclose(run(given), pf.interpret(nest, [given])["out"], rtol=1e-4, atol=1e-5)


def test_a_bias_behind_phases_in_tiles_goes_along_rows_of_memory() -> None:
    """It reads all four phases from there, and nothing of the last phase's tile, whose columns are channels."""
    rng = np.random.default_rng(5)
    w, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((32, 16, 4, 4), (16,)))
    x = nn.input("x", (2, 32, 16, 16))
    nest = pf.lower(nn.relu(nn.conv_transpose(x, w, b, stride=2, padding=1)))
    run = pf.compile(nest, target="cpu", machine=replace(pf.Machine.preset("zen5"), units=1))
    assert "load_transposed(" not in run.source
    given = rng.standard_normal((2, 32, 16, 16)).astype(np.float32)
    np.testing.assert_allclose(run(given), pf.interpret(nest, [given])["out"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("filters", "rows"), [(3, 3), (8, 0)])
def test_phases_of_few_filters_run_along_rows_of_pixels(filters: int, rows: int) -> None:
    """The last of four phases, in a kernel with the bias and the function behind it, stays in tiles of filters."""
    rng = np.random.default_rng(6)
    w, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((16, filters, 4, 4), (filters,)))
    x = nn.input("x", (2, 16, 32, 32))
    nest = pf.lower(nn.sigmoid(nn.conv_transpose(x, w, b, stride=2, padding=1)))
    run = pf.compile(nest, target="cpu", machine=replace(pf.Machine.preset("zen5"), units=1))
    assert run.source.count("row_mac_windows(\n") == rows
    assert str(run.explain()).count("sums along rows: ") == rows
    given = rng.standard_normal((2, 16, 32, 32)).astype(np.float32)
    np.testing.assert_allclose(run(given), pf.interpret(nest, [given])["out"], rtol=1e-4, atol=1e-5)

"""Lanes in pairs: every thread is still there, in its warp; where they are, and what shared memory delivers then."""

from __future__ import annotations

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.analysis.banks import WARP
from polyfuse.analysis.paired_lanes import can_pair, paired
from polyfuse.checks import cuda_cases as cases
from polyfuse.strategy.cuda.tiles.mma import Fma, Mma
from polyfuse.strategy.cuda.tiles.tile import ThreadblockTile
from polyfuse.strategy.cuda.tiles.tile_candidates import every_fma
from polyfuse.strategy.cuda.tiles.tile_shape import threads_of

IN_PAIRS = "tx = (cuda.threadIdx.x >> 1 & "


@pytest.mark.parametrize(("x", "y"), [(4, 2), (8, 4), (16, 2), (16, 4), (16, 6), (8, 10)])
def test_every_thread_is_there_once_and_in_its_warp(x: int, y: int) -> None:
    assert can_pair(x, y)
    rows, columns = (each.ravel() for each in np.indices((y, x)))
    numbers = [b * x + a for a, b in zip(*paired(columns, rows, x), strict=True)]
    assert sorted(numbers) == list(range(x * y))
    assert [number // WARP for number in numbers] == [lane // WARP for lane in range(x * y)]


@pytest.mark.parametrize(("x", "y"), [(2, 4), (6, 4), (16, 3), (32, 2), (12, 8)])
def test_blocks_whose_warps_have_no_whole_pairs_of_rows_are_left(x: int, y: int) -> None:
    assert not can_pair(x, y)


def test_lanes_are_in_pairs_where_threads_multiply_tiles() -> None:
    def source(nest: pf.Nest, **options: str) -> str:
        return pf.compile(nest, target="cuda", machine="h200", device="none", **options).source

    assert IN_PAIRS in source(cases.dense(256, 256, batch=256))
    assert IN_PAIRS not in source(cases.dense(256, 256, batch=256), math="tf32"), "fragments say who has what"
    q, k, v = (nn.input(name, (8, 1024, 64)) for name in "qkv")  # one kernel
    attention = source(pf.lower(nn.softmax(q @ nn.transpose(k)) @ v))
    assert "tile_fma(" in attention
    assert "shfl" in attention
    assert IN_PAIRS not in attention, "a row's lanes exchange values"
    assert IN_PAIRS not in source(pf.lower(nn.relu(nn.input("x", (512, 512))))), "nothing is multiplied"


def test_both_factors_come_at_twice_the_rate_of_lanes_that_read_for_themselves() -> None:
    """4 bytes a lane in a cycle, or 8: of 8 numbers each 8 cycles, or 4."""
    tile = next(t for t in every_fma(4) if (t.shape.rows, t.shape.columns) == (8, 8))
    sides = tile.left, tile.right
    assert [Fma().delivered(tile.shape, side) for side in sides] == [4, 4]
    assert [Fma(paired=False).delivered(tile.shape, side) for side in sides] == [4, 8]
    assert not Mma("tf32").in_pairs(tile.shape)


@pytest.mark.parametrize("tile", [t for t in every_fma(4) if t.stages == 2], ids=lambda t: str(t.shape))
def test_steps_that_are_copied_ahead_are_whole_sectors_of_memory(tile: ThreadblockTile) -> None:
    """One by one, but a warp's 32 are 8 neighbours of each of 4 rows: 4 sectors of 32 bytes, not 16 of them in part."""
    shape, threads = tile.shape, threads_of(tile.shape, tile.mma.in_pairs(tile.shape))
    steps, elements = tile.thread_values(tile.left, by_steps=True, wide=True).starts(shape, threads)
    for warp in range(shape.threads // WARP):
        lanes = slice(warp * WARP, (warp + 1) * WARP)
        sectors = {(row, step // 8) for row, step in zip(elements[lanes], steps[lanes], strict=True)}
        assert len(sectors) == 4
    assert len(set(zip(steps, elements, strict=True))) == shape.threads == len(threads[0])

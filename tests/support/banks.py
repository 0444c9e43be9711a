"""Accesses to shared memory of a whole launch, enumerated as it runs."""

from __future__ import annotations

import numpy as np

import polyfuse as pf
from polyfuse.codegen.program import Launch
from polyfuse.layouts.smem import SmemLayout
from polyfuse.simulator import lockstep
from polyfuse.strategy.cuda.tiles.mma import Wgmma, accesses_of
from polyfuse.strategy.cuda.tiles.tile import ThreadblockTile
from polyfuse.strategy.cuda.tiles.tile_shape import OperandTile


def waits_in(spread: SmemLayout, tile: ThreadblockTile, side: OperandTile, by_steps: bool, wide: bool) -> int:
    """The turns that a read of a step and the copy's store of it wait for banks, in a layout."""
    assert not isinstance(tile.mma, Wgmma), "no thread reads its operands"
    values = tile.thread_values(side, by_steps, wide)
    panel, accesses = accesses_of(tile.mma, tile.shape, side, values)
    return sum(int(panel.waits([spread], access)[0]) for access in accesses)


def assert_no_waits(nest: pf.Nest, launch: Launch) -> None:
    """Every address of every warp: none waits for a bank."""
    assert waits_of_launch(nest, launch) == 0


def waits_of_launch(nest: pf.Nest, launch: Launch) -> int:
    """The turns that warps wait for banks in a launch; there are barriers in it, so that memory was shared."""
    generator = np.random.default_rng(1)
    tensors = [nest.tensor(name) for name in launch.tensors]
    sizes = [int(np.prod(np.array(tensor.shape, dtype=int))) for tensor in tensors]
    arrays = [
        generator.standard_normal(size).astype(tensor.dtype)
        for size, tensor in zip(sizes, tensors, strict=True)
    ]
    arrays = [
        array.view(np.uint16) if tensor.is_half else array
        for array, tensor in zip(arrays, tensors, strict=True)
    ]
    report = lockstep.run(launch.source, launch.name, *launch.extents({}), arrays, counts_waits=True)
    assert report.barriers > 0
    return report.waits

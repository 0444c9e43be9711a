"""Renumber threads that multiply register tiles: lanes in pairs (analysis/paired_lanes.py).

    tx = cuda.threadIdx.x & 15         tx = (cuda.threadIdx.x >> 1 & 7) + (cuda.threadIdx.y & 1) * 8
    ty = cuda.threadIdx.y & 3     ->   ty = cuda.threadIdx.y & 2 | cuda.threadIdx.x & 1

Each thread of a block is still one of the block's, and each warp has the threads that it had. Not where tensor cores
multiply, whose fragments say which lane has what, nor where lanes of a row exchange values.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from polyfuse.analysis.paired_lanes import can_pair
from polyfuse.codegen.looptree.nodes import Kernel, Lanes, nodes_in, stores_in
from polyfuse.codegen.looptree.operations import TileProduct


def in_pairs(kernel: Kernel) -> Mapping[str, str]:
    """The expressions for thread.x and thread.y of a kernel whose lanes are paired; of another one none."""
    operations = [store.operation for store in stores_in(kernel.body)]
    tiles = [each for each in operations if isinstance(each, TileProduct)]
    extents = {axis.name: axis.extent for axis in kernel.axes}
    x, y = (_known(extents.get(f"thread.{d}")) for d in "xy")
    multiplied = bool(tiles) and all(tile.math == "ieee" for tile in tiles)
    if not multiplied or not can_pair(x, y) or any(isinstance(node, Lanes) for node in nodes_in(kernel.body)):
        return {}
    # of a sum and bits for each, this pair has most multiply-adds in the loops and no spills (LLVM, ptxas of CUDA 13)
    rows = 2 ** (y - 1).bit_length() - 2
    return {
        "thread.x": f"(cuda.threadIdx.x >> 1 & {x // 2 - 1}) + (cuda.threadIdx.y & 1) * {x // 2}",
        "thread.y": f"cuda.threadIdx.y & {rows} | cuda.threadIdx.x & 1",
    }


def _known(extent: ast.expr | None) -> int:
    return extent.value if isinstance(extent, ast.Constant) and isinstance(extent.value, int) else 1

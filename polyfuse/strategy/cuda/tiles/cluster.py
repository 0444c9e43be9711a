"""Shapes of tiles for warpgroups in blocks of a cluster, which copy the boxes that all of them read for each other.

    2 blocks down, a cluster     both read the factor of the same columns: each asks for half of it, and both get all

Of 64 × 128 results and 64 steps a block reads 64 + 64 lines of 128 bytes from L2 then, and alone 64 + 128. That decides
most products' time in boxes. But a slot is free once the warps of all blocks have used it, so that blocks wait for the
slowest. Which blocks share what isl proves (multicast_boxes.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product as pairs
from math import ceil

from polyfuse.ir.precision import Math
from polyfuse.machine import Gpu, Machine
from polyfuse.strategy.cuda.tiles.fma import Side
from polyfuse.strategy.cuda.tiles.tile_cost import costed
from polyfuse.strategy.cuda.tiles.warp_specialized import OwnWarpShape
from polyfuse.strategy.cuda.tiles.wgmma import fits, has_warpgroups
from polyfuse.strategy.cuda.tiles.wgmma_tma import every_bulk
from polyfuse.strategy.match.gemm_problem import Extents

SIZES = (2, 4)
"""Blocks of a cluster that the model chooses from. Larger ones leave SMs of a processing cluster without a block."""

WAITING = 180
"""Cycles of a tile for each block of a cluster in which tensor cores have nothing to do: arrivals at other SMs, and the
slowest of the blocks. About a way to another SM (Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU
Architecture via Microbenchmarking", 2024, section on distributed shared memory). By it a product of 4096 takes 297 µs
in two blocks' clusters, tiles of 128 × 128 and four stages, and took 282 (H200)."""


@dataclass(frozen=True)
class ClusterShape(OwnWarpShape):
    """A shape whose blocks are in clusters of so many, one below the other (`down`) or side by side."""

    cluster: int = 2
    down: bool = True

    @property
    def how(self) -> str:
        """What multiplies, for a report."""
        return f"{super().how}, in clusters of {self.cluster} blocks {'down' if self.down else 'across'}"

    @property
    def shared(self) -> Side:
        """The factor that all blocks of a cluster read."""
        return self.right if self.down else self.left

    @property
    def read_bytes(self) -> int:
        """A part of the factor that is shared, and all of the other."""
        alone = self.left if self.down else self.right
        return ceil((self.shared.width / self.cluster + alone.width) * self.steps * self.held)

    @property
    def innermost(self) -> bool:
        """Whether the loop over a cluster's blocks is the last one over blocks: rows of a group, or columns."""
        return self.down != (self.group == 1)

    def pause(self, gpu: Gpu) -> tuple[str, int]:
        """A cluster's blocks wait for each other."""
        return "that a cluster's blocks wait for each other", WAITING * self.cluster

    def sentences(self, statement: str) -> tuple[str, ...]:
        """What was chosen and why, for a report."""
        factor = "columns" if self.down else "rows"
        gain = (
            f"{statement} has clusters of {self.cluster} blocks that share the factor of their {factor}: each copies "
            f"1/{self.cluster} of it for all, {self.read_bytes} bytes of a tile from L2 where a block alone reads "
            f"{self.staged_bytes}, and waits for the others, {WAITING * self.cluster} cycles of a tile"
        )
        return (*super().sentences(statement), gain)

    def whole(self, extents: Extents) -> bool:
        """Whether every cluster has all of its blocks, in groups of rows too."""
        rows, columns = ceil(extents.rows / self.block_rows), ceil(extents.columns / self.block_columns)
        if not self.down:
            return columns % self.cluster == 0
        last = rows % self.group if self.group > 1 else 0
        return rows % self.cluster == last % self.cluster == 0 and (
            self.group == 1 or self.group % self.cluster == 0
        )


def cluster_shapes(extents: Extents, format: Math, machine: Machine, gpu: Gpu) -> list[ClusterShape]:
    """The shapes that fit a product and a machine, unsorted; none where a warp that only copies has none."""
    if extents.kept is None or not extents.once or not has_warpgroups(gpu, format):
        return []
    every = (
        s
        for s in _every(format, extents.kept == "columns")
        if s.cluster <= gpu.cluster and fits(s, extents, gpu)
    )
    found = (costed(s, extents, machine, gpu) for s in every)
    return [s for s in found if s.whole(extents)]


def _every(format: Math, turned: bool) -> Iterator[ClusterShape]:
    for shape, cluster, down in pairs(every_bulk(ClusterShape, format, turned), SIZES, (True, False)):
        yield replace(shape, cluster=cluster, down=down)

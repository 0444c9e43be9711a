"""Shapes of tiles for warpgroups whose factors a warp that only copies asks for, a box at a time.

    a warp           for each tile: wait for a free slot, ask for its boxes
    warpgroups       for each tile: wait for a full slot, begin its products, give the one before back

No thread has copies to ask for between products, and none meets others at a barrier: while a warpgroup waits for a tile
the products of the one before go on, and warpgroups need not be at the same tile (producer_consumer.py,
overlap_wgmma.py). What it costs is a warp, with the registers of any other.
"""

from __future__ import annotations

from dataclasses import dataclass

from polyfuse.analysis.banks import WARP
from polyfuse.ir.precision import Math
from polyfuse.ir.tree import OWN_WARP
from polyfuse.layouts.swizzle import BARRIER_BYTES
from polyfuse.machine import Gpu, Machine
from polyfuse.strategy.cost.occupancy import occupancy
from polyfuse.strategy.cuda.tiles.tile_cost import costed
from polyfuse.strategy.cuda.tiles.wgmma import fits, has_warpgroups
from polyfuse.strategy.cuda.tiles.wgmma_tma import BulkShape, every_bulk
from polyfuse.strategy.match.gemm_problem import Extents

MOST = 168
"""Registers of a thread where nine warps are to fit into an SM: in pieces of 8, three warps in 16384 of a quarter."""


@dataclass(frozen=True)
class OwnWarpShape(BulkShape):
    """A bulk shape with a warp that only copies."""

    @property
    def how(self) -> str:
        """What multiplies, for a report."""
        return f"{super().how} of a warp that only copies"

    @property
    def place(self) -> str:
        """What runs a box's loop."""
        return OWN_WARP

    def pause(self, gpu: Gpu) -> tuple[str, int]:
        """Tensor cores have the next tile's products before the last one's have ended."""
        return "", 0

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block: all stages of both factors, and two barriers for each."""
        return super().shared_bytes + self.stages * BARRIER_BYTES

    def sentences(self, statement: str) -> tuple[str, ...]:
        """What was chosen and why, for a report."""
        gain = (
            f"{statement} has a warp that only copies: tensor cores do not pause while all of a block's warps wait for "
            "their sums and meet, in each tile, for one warp's registers more"
        )
        return (*super().sentences(statement), gain)

    @property
    def registers(self) -> int:
        """Registers a thread needs at most: three warps share a quarter of an SM with the one that copies. Tiles of
        128 × 256 took 154 to 166 (CUDA 13, sm_90a).
        """
        return min(super().registers, MOST)

    def resident(self, gpu: Gpu) -> int:
        """Blocks that an SM holds at once, of one more warp than multiply."""
        return occupancy(gpu, self.threads + WARP, self.registers, self.shared_bytes).blocks


def own_warp_shapes(extents: Extents, format: Math, machine: Machine, gpu: Gpu) -> list[OwnWarpShape]:
    """The shapes that fit a product and a machine, unsorted; none where factors are rounded on their way, or a block
    runs through its tiles of steps several times.
    """
    if extents.kept is None or not extents.once or not has_warpgroups(gpu, format):
        return []
    every = every_bulk(OwnWarpShape, format, extents.kept == "columns")
    return [costed(s, extents, machine, gpu) for s in every if fits(s, extents, gpu)]

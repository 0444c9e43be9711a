"""Shapes of tiles for tensor cores of float64 numbers: nothing is rounded, every step is an IEEE multiply-add.

The threads are those of other tiles for tensor cores; factors lie in lines of steps as without tensor cores, so that
tiles of later steps can be on their way meanwhile, and lanes read their own line of four.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product as pairs

from polyfuse.analysis.banks import WARP
from polyfuse.analysis.vector_access import ACCESS_BYTES
from polyfuse.ir.precision import STEPS
from polyfuse.machine import Gpu, Machine
from polyfuse.strategy.cuda.tiles.fma import SCHEDULERS, SHARED_BYTES
from polyfuse.strategy.cuda.tiles.mma import WarpShape, fits
from polyfuse.strategy.cuda.tiles.tile_cost import costed
from polyfuse.strategy.match.gemm_problem import Extents

FLOAT64 = 8
"""Bytes of an element, in memory as in shared memory."""

DEEP = (8, 16)
"""How many steps may be staged at a time."""

TILES = ((4, 4), (4, 8), (8, 4), (8, 8))
"""Rows and columns of a thread."""

STAGES = (1, 2, 4)
"""How many tiles of steps are in shared memory."""


@dataclass(frozen=True)
class DoubleShape(WarpShape):
    """A shape whose products of float64 numbers run on tensor cores."""

    @property
    def how(self) -> str:
        """What multiplies, for a report."""
        return " by tensor cores on float64 numbers as they are"

    def demands(self, machine: Machine) -> tuple[float, float]:
        """Cycles of an SM for a tile's products: the tensor cores' or, if they wait for these, all instructions'."""
        warps, groups = self.threads // WARP, self.steps // STEPS[self.format]
        products = self.rows * (self.columns // 2) * groups
        loads = (self.rows + self.columns // 2) // self.vector * groups
        issue = ((products + loads + 20) * warps + self.copies) / SCHEDULERS
        flops = 2 * self.threads * self.rows * self.columns * self.steps
        rate = dict(machine.tensor)[self.format] / (machine.flops32 / (2 * 128))
        return max(issue, flops / rate), loads * warps * WARP * ACCESS_BYTES / SHARED_BYTES


def double_shapes(extents: Extents, itemsize: int, machine: Machine, gpu: Gpu) -> list[DoubleShape]:
    """The shapes that fit a product of float64 numbers whose results all take the same steps, the cheapest first."""
    if itemsize != FLOAT64 or "f64" not in dict(machine.tensor) or not extents.whole_steps:
        return []
    every = (s for s in _every() if s.stages == 1 or extents.wide)
    fitting = (s for s in every if fits(s, extents, gpu))
    return sorted((costed(s, extents, machine, gpu) for s in fitting), key=lambda s: s.seconds)


def _every() -> Iterator[DoubleShape]:
    for (down, across), (rows, columns), steps, stages in pairs(
        ((1, 1), (1, 2), (2, 2), (2, 4), (4, 2)), TILES, DEEP, STAGES
    ):
        yield DoubleShape(across, 8 * down, 4, rows, columns, steps, FLOAT64, stages, format="f64")

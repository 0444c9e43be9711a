"""Shapes of tiles for warpgroups whose factors are copied to shared memory as they are in memory, of the format.

    by steps     16 bytes of a row's steps are a row of a core matrix           cp.async, 16 bytes a thread
    by columns   two columns are neighbours of a turned core matrix' row        cp.async, 4 bytes a thread; halves alone

No thread has a factor in its registers, so tiles of later steps are on their way while one is multiplied, in up to four
stages, and a tile of results may be larger than where threads round (wgmma.py). Sixteen bytes of
columns would be four threads' of an instruction, and each thread's columns are neighbours here (core_matrix.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product as pairs
from math import ceil

from polyfuse.analysis.banks import WARP
from polyfuse.ir.precision import STORED, Math
from polyfuse.ir.tensor import ITEMSIZE
from polyfuse.machine import Gpu, Machine
from polyfuse.schedule.microkernel_verb import warpgroup_registers
from polyfuse.strategy.cuda.tiles.fma import Integers, Side, threads_of
from polyfuse.strategy.cuda.tiles.mma import FLOAT32
from polyfuse.strategy.cuda.tiles.tile_cost import costed
from polyfuse.strategy.cuda.tiles.wgmma import WarpgroupShape, fits, has_warpgroups, layout_for
from polyfuse.strategy.match.gemm_problem import Extents

PAIR = 2
"""Columns of a thread that are neighbours in a core matrix' row."""

LINE = 8
"""Neighbours on thread.y that copy neighbours in memory: 32 bytes of columns."""

STEPS = (32, 64)
"""How many steps may be staged at a time."""

COPYING = 11
"""Cycles of a warp's cp.async: with 288 of them, mostly of 4 bytes, a tile took 3600 to 4700 in four and in two stages
(4096 × 4096 by 4096, tiles of 128 × 256 by 64 steps, H200)."""

STAGES = (2, 4)
"""Tiles of steps in shared memory, all but one on their way."""


@dataclass(frozen=True)
class KeptShape(WarpgroupShape):
    """A shape with factors that lie in memory in its format; `turned`: the right one's neighbours are columns."""

    turned: bool = False

    @property
    def how(self) -> str:
        """What multiplies, for a report."""
        return f"{super().how}, which are copied as they are"

    @property
    def result_bytes(self) -> int:
        """Results may be float32 numbers."""
        return FLOAT32

    def at_once(self, by_steps: bool) -> int:
        """Sixteen bytes of steps, or what a thread has of columns."""
        return self.vector if by_steps else PAIR

    def copying(self, by_steps: bool) -> tuple[str, str]:
        """Steps are on thread.x, columns on thread.y (`folding`) and then on thread.x."""
        return ("x", "yz") if by_steps else ("z", "yx")

    def folding(self, side: Side, by_steps: bool, vector: int) -> tuple[str, int]:
        """Eight pairs of columns follow each other, in other banks; what else is on thread.y are steps."""
        return "y", 1 if by_steps else LINE

    def apart(self, side: Side, by_steps: bool, axis: str) -> int:
        """Four threads on thread.x copy what the four of an instruction have: words of 16 bytes, in four banks."""
        return side.tile // (PAIR * LINE) if axis == "x" and not by_steps else 1

    def turns(self, by_steps: bool) -> bool:
        """Columns that are neighbours in memory are so in core matrices."""
        return not by_steps

    def copied_by(self, side: Side, by_steps: bool, vector: int) -> tuple[Integers, Integers]:
        """The first step of each thread's copies, and the first of the other elements, both in accesses."""
        if by_steps:
            return super().copied_by(side, by_steps, vector)
        z, y, x = threads_of(self)
        return z * (self.threads_y // LINE) + y // LINE, x * (self.columns // PAIR) + y % LINE

    @property
    def sides(self) -> tuple[tuple[Side, bool], ...]:
        """Both factors, and whether their neighbours are steps."""
        return (self.left, True), (self.right, not self.turned)

    @property
    def registers(self) -> int:
        """Registers a thread needs at most."""
        return warpgroup_registers(self.rows, self.columns, 0)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block, all stages of both factors."""
        layouts = (
            layout_for(self, side, by_steps, True).size(self.steps, side.width)
            for side, by_steps in self.sides
        )
        return self.stages * self.held * sum(layouts)

    @property
    def copies(self) -> int:
        """Instructions of all warps that ask for a tile of steps: one an access, and its address."""
        return sum(
            2 * ceil(side.width * self.steps / self.at_once(by_steps) / WARP) for side, by_steps in self.sides
        )

    @property
    def storing(self) -> float:
        """Cycles in which an SM takes what was asked for: an instruction of a warp at a time."""
        return COPYING * self.copies / 2


def kept_shapes(extents: Extents, format: Math, machine: Machine, gpu: Gpu) -> list[KeptShape]:
    """The shapes that fit a product and a machine, unsorted; none where factors are rounded on their way."""
    if extents.kept is None or not has_warpgroups(gpu, format):
        return []
    every = _every(format, extents.kept == "columns")
    return [costed(s, extents, machine, gpu) for s in every if fits(s, extents, gpu)]


def _every(format: Math, turned: bool) -> Iterator[KeptShape]:
    groups, tiles = ((1, 1), (1, 2), (2, 1)), ((2, 16), (2, 32), (2, 64), (4, 16), (4, 32))
    for (down, across), (rows, columns), steps, stages in pairs(groups, tiles, STEPS, STAGES):
        size = ITEMSIZE[STORED[format]]
        yield KeptShape(
            across, 32 * down, 4, rows, columns, steps, size, stages, format=format, turned=turned
        )

"""Shapes of tiles for Hopper's warpgroups: 128 threads' results, factors read from shared memory by the instructions.

    thread.x     4 lanes along the columns          thread.y     8 lanes along the rows of each of 4 warps, then of the
    thread.z     further warpgroups along columns                next warpgroup

The factors are rounded when they are copied, into core matrices (core_matrix.py), and no thread loads them again
(wgmma_tile.py); the rest is that of other tiles for tensor cores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, replace
from functools import cache
from itertools import product as pairs
from math import ceil
from typing import Any

import numpy as np

from polyfuse.analysis.banks import WARP, least_waiting, waits
from polyfuse.analysis.vector_access import ACCESS_BYTES
from polyfuse.ir.precision import STEPS, Math
from polyfuse.layouts.core_matrix import FORMATS, INSTRUCTION_ROWS, Cores, Digit
from polyfuse.machine import Gpu, Machine
from polyfuse.schedule.microkernel_verb import MOST_REGISTERS, warpgroup_registers
from polyfuse.strategy.cuda.tiles.fma import SCHEDULERS, SHARED_BYTES, WAYS, Integers, Side
from polyfuse.strategy.cuda.tiles.mma import TensorShape
from polyfuse.strategy.cuda.tiles.tile_cost import costed
from polyfuse.strategy.match.gemm_problem import Extents

CAPABILITY = (9, 0)
"""The GPUs that have such instructions: their code, sm_90a, runs on no others."""

THROUGH_REGISTERS = 9
"""Cycles of an SM in which 32 numbers are loaded, rounded and stored: 6 to 17 in ten shapes of products of 4096, tf32
and bf16 (H200). They are 18 instructions, and what a thread waits for between them."""

STAGES = (1, 2)
"""Tiles of steps in shared memory. With two, a tile is copied through registers while the one before is multiplied."""


@dataclass(frozen=True)
class WarpgroupShape(TensorShape):
    """A shape whose products a warpgroup's instructions compute, with factors rounded when they are staged."""

    @property
    def how(self) -> str:
        """What multiplies, for a report."""
        return f"{super().how}, a warpgroup together"

    def copying(self, by_steps: bool) -> tuple[str, str]:
        """A quarter of a warp's row copies neighbours; steps that are none lie along the others of the warpgroup."""
        return ("x", "yz") if by_steps else ("y", "xz")

    def folding(self, side: Side, by_steps: bool, vector: int) -> tuple[str, int]:
        """Threads on thread.y copy one line each."""
        return "y", 1

    def panels(self, side: Side, by_steps: bool) -> tuple[bool, int]:
        """Panels of rows, or of columns."""
        return False, side.width

    @property
    def right(self) -> Side:
        """The factor with the columns."""
        return Side(self.block_columns, self.columns, True)

    @property
    def registers(self) -> int:
        """Registers a thread needs at most."""
        return warpgroup_registers(self.rows, self.columns, self.staged // self.threads)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block, all stages of both factors, as widely apart as any choice has them."""
        sides = (self.left, self.right)
        sizes = (
            max(layout_for(self, side, *way).size(self.steps, side.width) for way in WAYS) for side in sides
        )
        return self.stages * self.held * sum(sizes)

    @property
    def copies(self) -> int:
        """Instructions of all warps that copy a tile of steps: loads, roundings, and stores of 8 bytes or of 2."""
        return ceil(self.staged / self.vector / WARP) * (2 + 2 * self.vector)

    def pause(self, gpu: Gpu) -> tuple[str, int]:
        """All warps of a block wait for their sums, and meet, before the next tile's products."""
        return "that its warps meet", gpu.meeting_cycles

    @property
    def storing(self) -> float:
        """Cycles in which an SM brings a tile of steps through registers, 32 numbers at a time."""
        return THROUGH_REGISTERS * self.staged / WARP

    def laid_out(self, side: Side, by_steps: bool, wide: bool) -> Mapping[str, Any]:
        """In core matrices, rounded on the way."""
        return {"cores": astuple(layout_for(self, side, by_steps, wide)), "rounded": self.format}

    def layouts(self, side: Side, by_steps: bool) -> Iterator[Cores]:
        """The core matrices to choose from: how far they lie apart."""
        lanes, beside = (4, self.columns // 2) if side.along_x else (8, 2)
        depth = ACCESS_BYTES // self.held
        gaps = [depth * n for n in (0, 1, 2, 4)]
        for gap, apart, skip in pairs(gaps[:3], gaps if side.tile > 2 and not side.along_x else (0,), gaps):
            yield Cores(side.tile, lanes, beside, depth, gap, apart, skip, self.turns(by_steps))

    def turns(self, by_steps: bool) -> bool:
        """Whether the rows of a factor's core matrices are steps."""
        return False

    def demands(self, machine: Machine) -> tuple[float, float]:
        """Cycles of an SM for a tile's products, or for issuing all instructions if that takes longer; and of its
        shared memory, which every instruction's factors are read from.
        """
        groups = self.threads // (4 * WARP)
        depth = STEPS[self.format]
        instructions = self.rows // 2 * (self.steps // depth) * groups
        issue = ((instructions + 20) * 4 + self.copies) / SCHEDULERS
        flops = 2 * self.block_rows * self.block_columns * self.steps
        rate = dict(machine.tensor)[self.format] / (machine.flops32 / (2 * 128))
        read = instructions * (INSTRUCTION_ROWS + 4 * self.columns) * depth * self.held
        return max(issue, flops / rate), read / SHARED_BYTES


def warpgroup_shapes(extents: Extents, format: Math, machine: Machine, gpu: Gpu) -> list[WarpgroupShape]:
    """The shapes that fit a product and a machine, unsorted; none for a GPU without such instructions."""
    every = _every(format) if has_warpgroups(gpu, format) else ()
    return [costed(s, extents, machine, gpu) for s in every if fits(s, extents, gpu)]


def has_warpgroups(gpu: Gpu, format: Math) -> bool:
    """Whether a GPU has such instructions, and these take a format."""
    return gpu.compute_capability == CAPABILITY and format in FORMATS


def _every(format: Math) -> Iterator[WarpgroupShape]:
    groups, tiles = ((1, 1), (1, 2), (2, 1)), ((2, 16), (2, 32), (4, 16), (4, 32))
    for (down, across), (rows, columns), stages in pairs(groups, tiles, STAGES):
        threads_y = 32 * down  # a step for each of them where a copy's neighbours are not steps
        yield WarpgroupShape(across, threads_y, 4, rows, columns, threads_y, 4, stages, format=format)


def fits(s: WarpgroupShape, extents: Extents, gpu: Gpu) -> bool:
    """Whether every tile has all of its steps, every thread of a block has results, and a block fits into an SM."""
    whole = extents.whole_steps > 0 and extents.whole_steps % s.steps == 0
    enough = whole and extents.rows >= s.block_rows and extents.columns >= s.block_columns
    enough = enough and s.registers <= MOST_REGISTERS
    return enough and s.shared_bytes <= gpu.shared_per_block and s.resident(gpu) >= 1


# -- shared memory -----------------------------------------------------------------------------------------------------


def layout_for(s: WarpgroupShape, side: Side, by_steps: bool, wide: bool) -> Cores:
    """The core matrices into which a copy's stores wait least for banks, by enumeration; of equals the smallest.

    Reads need no choice: a core matrix of 128 bytes in a row has every bank once.
    """
    return _layout_of(replace(s, stages=1), side, by_steps, wide)  # stages are laid out alike


@cache
def _layout_of(s: WarpgroupShape, side: Side, by_steps: bool, wide: bool) -> Cores:
    options = sorted(s.layouts(side, by_steps), key=lambda o: o.size(s.steps, side.width))
    return least_waiting(options, lambda o: copy_waits(s, side, by_steps, wide, o))


def copy_waits(s: WarpgroupShape, side: Side, by_steps: bool, wide: bool, cores: Cores) -> int:
    """The turns that a copy's stores wait for banks, the first tile of each loop."""
    lanes = s.at_once(by_steps) if wide else 1
    steps, elements = s.copied_by(side, by_steps, lanes)
    if by_steps:
        return _turns(s, side, cores, steps * lanes, elements, lanes * s.held)
    if cores.turned:
        return _turns(s, side, cores, steps, elements * lanes, lanes * s.held)
    return sum(_turns(s, side, cores, steps, elements * lanes + lane, s.held) for lane in range(lanes))


def _turns(s: WarpgroupShape, side: Side, cores: Cores, steps: Integers, along: Integers, nbytes: int) -> int:
    found = _digits(steps, cores.along_steps(side.width)) + _digits(along, cores.along_results(side.width))
    found = np.where((along >= side.width) | (steps >= s.steps), -1, found * s.held)
    return waits(found.reshape(-1, WARP), nbytes) if (found >= 0).any() else 0


def _digits(values: Integers, digits: tuple[Digit, ...]) -> Integers:
    """The sum of value // divisor % modulus * weight."""
    total = 0 * values
    for digit in digits:
        part = values // digit.divisor
        total += (part if digit.modulus is None else part % digit.modulus) * digit.weight
    return total

"""The copies of a tile of steps to shared memory: through threads' registers, by threads' cp.async, or by TMA boxes.

    ThreadCopy     a thread loads, perhaps rounds, and stores                      one stage, with wgmma up to two
    CpAsync        a thread asks for what goes to shared memory by itself          tiles of later steps are on their way
    Tma            one thread asks for a box of lines; a barrier says it is there

Of boxes no thread has an address or a guard (tma_boxes.py); they lie swizzled (swizzle.py):

    by steps     64 steps of up to 256 rows are a box          lines of 128 bytes are rows, 64 steps each
    by columns   64 columns of 64 steps are a box              lines are steps, 64 columns each, in panels

of halves; numbers of tf32 come by steps alone, 32 of them a line. What is in a line is in the order of memory, so a
block's rows and columns are dealt out as an instruction has them, not in tiles of neighbours: of 64 rows a thread has
two that are 8 apart, of 8 columns it has two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import ClassVar

from polyfuse.layouts.core_matrix import CORE_ROWS, INSTRUCTION_ROWS, CoreMatrixLayout
from polyfuse.layouts.smem import SmemLayout
from polyfuse.layouts.swizzle import BARRIER_BYTES, LINE_BYTES, MOST_ALONG, SwizzledLayout
from polyfuse.schedule.microkernel_verb import DEALT_OTHERS
from polyfuse.strategy.cuda.tiles.mma import CopyCost, Instruction
from polyfuse.strategy.cuda.tiles.tile_shape import (
    EXPOSED,
    OWN,
    SHARED_BYTES,
    Digits,
    OperandTile,
    ThreadValues,
    TileShape,
)

BOX_LATENCY = 1500
"""Cycles in which a box comes where all SMs ask for some, beside what L2 takes: with two stages tiles of 128 × 128 and
of 128 × 256 by 64 steps took 1200 and 2700 cycles (products of 4096, H200), 1550 and 2020 by it."""

ASKING = 12
"""Instructions of the warp that asks for a box: coordinates, the bytes to expect, the copy."""

AWAITING = 16
"""Instructions of a warp that waits for a group of boxes."""

Sides = Sequence[tuple[OperandTile, bool]]
"""Both operands' tiles, and whether their neighbours in memory are steps."""


@dataclass(frozen=True)
class _ByThreads:
    """Copies that all threads of a block share: how they lie and what they take is the instruction's to say."""

    asynchronous: ClassVar[bool]
    boxes: ClassVar[bool] = False
    exposed: ClassVar[float] = EXPOSED
    barrier_bytes: ClassVar[int] = 0

    def panels(
        self, mma: Instruction, shape: TileShape, side: OperandTile, by_steps: bool
    ) -> tuple[bool, int]:
        """Return (True if an operand's panels in shared memory run along steps, their width)."""
        return mma.panels(shape, side, by_steps)

    def layout(
        self, mma: Instruction, shape: TileShape, side: OperandTile, values: ThreadValues, uniform: bool
    ) -> SmemLayout | CoreMatrixLayout:
        """The layout of an operand's elements in shared memory."""
        return mma.layout(shape, side, values, self.asynchronous, uniform)

    def digits(self, shape: TileShape) -> tuple[Digits, Digits]:
        """The digits by which a block's rows, and its columns, are distributed: each thread's own are contiguous."""
        return shape.digits()

    def cost(self, mma: Instruction, shape: TileShape, sides: Sides, staged: int) -> CopyCost:
        """The cost of copying so many elements of a tile of steps."""
        return mma.copying(shape, sides, staged, self.asynchronous)

    def ahead(self, stages: int, begun: float, latency: float, copied: float, multiplied: float) -> float:
        """Cycles after which a tile is there that is asked for while others are used, the last one of them behind
        the part `begun` of its products.
        """
        return latency / (stages - 1 - begun)


@dataclass(frozen=True)
class ThreadCopy(_ByThreads):
    """Loads and stores of threads, which may round on the way."""

    asynchronous: ClassVar[bool] = False

    def registers(self, staged: int, threads: int) -> int:
        """Registers of a thread for what it copies."""
        return staged // threads


@dataclass(frozen=True)
class CpAsync(_ByThreads):
    """cp.async of threads: what they ask for is copied as it is, and no thread has it in its registers."""

    asynchronous: ClassVar[bool] = True

    def registers(self, staged: int, threads: int) -> int:
        """Registers of a thread for what it copies."""
        return 0


@dataclass(frozen=True)
class Tma:
    """Boxes of the tensor memory accelerator, which one thread asks for."""

    asynchronous: ClassVar[bool] = True
    boxes: ClassVar[bool] = True
    exposed: ClassVar[float] = 0.0
    """Nothing: no thread copies, and products go on meanwhile (4096 × 4096 by 4096 in tiles of 128 × 128 and four
    stages took 258 µs on an H200, 249 by what L2 delivers)."""
    barrier_bytes: ClassVar[int] = BARRIER_BYTES

    def panels(
        self, mma: Instruction, shape: TileShape, side: OperandTile, by_steps: bool
    ) -> tuple[bool, int]:
        """Panels of lines, of steps or of what are neighbours along the results."""
        return by_steps, line_of(mma.held(shape.itemsize))

    def layout(
        self, mma: Instruction, shape: TileShape, side: OperandTile, values: ThreadValues, uniform: bool
    ) -> SwizzledLayout:
        """In lines, as they are."""
        return SwizzledLayout()

    def digits(self, shape: TileShape) -> tuple[Digits, Digits]:
        """As instructions have them (PTX ISA, "Matrix Fragments for wgmma"): 16 rows a warp, two of them a thread."""
        rows = (("y", INSTRUCTION_ROWS // 4), (OWN, CORE_ROWS), ("y", 1))
        return rows, (("z", 4 * shape.columns), (OWN, CORE_ROWS), ("x", 2), (OWN, 1))

    def cost(self, mma: Instruction, shape: TileShape, sides: Sides, staged: int) -> CopyCost:
        """Instructions that ask for a tile of steps and wait for it; cycles of shared memory in which it arrives."""
        held = mma.held(shape.itemsize)
        boxes = (ceil(side.width / (MOST_ALONG if by_steps else line_of(held))) for side, by_steps in sides)
        return CopyCost(ASKING * sum(boxes) + AWAITING * shape.warps, staged * held / SHARED_BYTES)

    def ahead(self, stages: int, begun: float, latency: float, copied: float, multiplied: float) -> float:
        """A slot's round trip: asked for, filled, multiplied; with two stages one tile's boxes are on their way."""
        return (BOX_LATENCY + copied + multiplied) / stages

    def registers(self, staged: int, threads: int) -> int:
        """Registers of a thread for where boxes lie."""
        return DEALT_OTHERS


Copy = ThreadCopy | CpAsync | Tma


def line_of(held: int) -> int:
    """Elements of a swizzled line, of so many bytes each."""
    return LINE_BYTES // held

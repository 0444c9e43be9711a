"""The instruction of a tile: multiply-adds of threads, mma.sync of a warp, or wgmma of a warpgroup.

    Fma         a thread reads its rows and columns and multiplies them                        nothing is rounded
    MmaF64      a warp's mma.sync of float64 numbers; lanes read their own line of four        nothing is rounded
    Mma         a warp's mma.sync of operands rounded to a format, read by ldmatrix
    Wgmma       128 threads' instruction, which reads both operands from shared memory         Hopper

Each answers for a tile of any sizes (tile_shape.py): which thread has which results and reads what, how operands have
to lie in shared memory and which thread copies what of them, the cycles of its products and copies, and registers.

    Fma             rows on thread.z and thread.y                               columns on thread.x
    Mma, MmaF64     8 lanes of a warp on thread.y, then further warps           4 lanes on thread.x; warps on thread.z
    Wgmma           8 lanes of each of 4 warps on thread.y, then warpgroups     4 lanes on thread.x; groups on thread.z
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import ceil
from typing import ClassVar

import numpy as np

from polyfuse.analysis.banks import WARP
from polyfuse.analysis.paired_lanes import can_pair
from polyfuse.analysis.vector_access import ACCESS_BYTES
from polyfuse.ir.number_types import ITEMSIZE
from polyfuse.ir.precision import STEPS, STORED, Math
from polyfuse.layouts.core_matrix import INSTRUCTION_ROWS, CoreMatrixLayout
from polyfuse.layouts.smem import SmemLayout
from polyfuse.machine import Gpu, GpuMachine
from polyfuse.schedule.microkernel_verb import BEGUN_IN, registers_for, warpgroup_registers
from polyfuse.strategy.cuda.tiles.smem_layouts import (
    Access,
    FragmentTile,
    Panel,
    Spreads,
    core_matrices,
    ldmatrix_layout,
)
from polyfuse.strategy.cuda.tiles.tile_shape import (
    SCHEDULERS,
    SHARED_BYTES,
    Integers,
    OperandTile,
    ThreadValues,
    TileShape,
    threads_of,
)

FLOAT32 = 4
"""Bytes of a float32 number."""

LINES = SHARED_BYTES // ACCESS_BYTES
"""Accesses of 16 bytes that shared memory takes in a cycle."""

OVERHEAD = 20
"""Instructions of a warp in each tile of steps beside its products, loads and copies."""

SYNCHRONOUS = 0.63
"""The part of Hopper's peak that mma.sync reaches: 62.9 % on average (Luo et al., "Benchmarking and Dissecting the
Nvidia Hopper GPU Architecture via Microbenchmarking", 2024, section on tensor cores); older ones reach all of it."""

LANE_LINES = 4
"""Lines of steps that the lanes of one row of a warp's results read at once."""

LDMATRIX_STEPS = 16
"""Steps in the tiles of which lines of tf32 numbers are laid out; those of longer tiles lie alike."""

PAIR = 2
"""Columns of a thread that are neighbours in a core matrix' row."""

FOLDED_PAIRS = 8
"""Neighbours on thread.y that copy neighbours in memory: 32 bytes of columns."""

THROUGH_REGISTERS = 9
"""Cycles of an SM in which 32 numbers are loaded, rounded and stored: 6 to 17 in ten shapes of products of 4096, tf32
and bf16 (H200). They are 18 instructions, and what a thread waits for between them."""

COPYING = 11
"""Cycles of a warp's cp.async: with 288 of them, mostly of 4 bytes, a tile took 3600 to 4700 in four and in two stages
(4096 × 4096 by 4096, tiles of 128 × 256 by 64 steps, H200)."""


@dataclass(frozen=True)
class CopyCost:
    """The cost of copying a tile of steps: instructions of all warps, and cycles of shared memory or of the SM."""

    instructions: int
    storing: float


@dataclass(frozen=True)
class Fma:
    """Multiply-adds of threads; lanes may not be `paired` where a row's lanes exchange values."""

    paired: bool = True
    math: ClassVar[Math] = "ieee"
    axes: ClassVar[tuple[str, str]] = ("zy", "x")
    how: ClassVar[str] = ""
    rounds: ClassVar[bool] = False
    keeps_halves: ClassVar[bool] = False
    pauses: ClassVar[bool] = False

    def held(self, itemsize: int) -> int:
        """Bytes of an operand's element in shared memory."""
        return itemsize

    def result_bytes(self, itemsize: int) -> int:
        """Bytes of a result in memory, at most."""
        return itemsize

    def in_pairs(self, shape: TileShape) -> bool:
        """True if lanes are in pairs (analysis/paired_lanes.py)."""
        return self.paired and can_pair(shape.threads_x, shape.threads_y)

    def read_columns(self, columns: int) -> int:
        """The number of its columns that a thread reads at a time."""
        return columns

    def reads(self, shape: TileShape, side: OperandTile) -> tuple[Integers, Integers]:
        """The step and the first element that each thread reads of an operand, in one access."""
        first = self._starts(shape, side) * side.tile
        return 0 * first, first

    def _starts(self, shape: TileShape, side: OperandTile) -> Integers:
        """The tile along an operand's results that each thread reads."""
        numbers = dict(zip("zyx", threads_of(shape, self.in_pairs(shape)), strict=True))
        found = 0 * numbers["x"]
        for axis in shape.axes[side.along_x]:
            found = found * shape.on(axis) + numbers[axis]
        return found

    def delivered(self, shape: TileShape, side: OperandTile) -> float:
        """Cycles of shared memory in which a warp's elements of one step are delivered (analysis/paired_lanes.py)."""
        lanes, starts = np.arange(WARP), self._starts(shape, side)[:WARP]
        twice = any((starts == starts[lanes ^ other]).all() for other in (1, 2))
        return WARP * shape.itemsize * side.tile / SHARED_BYTES / (2 if twice else 1)

    # -- shared memory

    def spreads(self, shape: TileShape, side: OperandTile, uniform: bool) -> Spreads:
        """The layouts to choose from; in `uniform` ones lines are equally far apart."""
        v = shape.vector
        gaps = (0,) if side.tile == v else tuple(range(0, WARP, v))
        skips = ((1, 0), *((every, n) for every in (1, v) for n in range(v, WARP + 1, v)))
        return Spreads(side.tile, v, gaps, tuple(skip for skip in skips if skip[0] == 1 or not uniform))

    def panels(self, shape: TileShape, side: OperandTile, by_steps: bool) -> tuple[bool, int]:
        """Return (True if an operand's panels run along steps, their width)."""
        return False, side.width

    def layout(
        self, shape: TileShape, side: OperandTile, values: ThreadValues, ahead: bool, uniform: bool
    ) -> SmemLayout:
        """The layout of an operand's elements in shared memory."""
        return spread_lines(self, shape, side, values, uniform)

    # -- copies

    def vector(self, shape: TileShape, by_steps: bool, ahead: bool) -> int:
        """Elements that a thread copies in one access, where an operand can be copied 16 bytes at a time.

        What is asked for ahead is stored as it comes: neighbours that are to lie in several lines one by one.
        """
        return 1 if by_steps and ahead else shape.vector

    def copy_axes(self, by_steps: bool, ahead: bool) -> tuple[str, str]:
        """The axes on which a copy has its steps, and those of its other elements, the inner ones first.

        Steps that are neighbours in memory are those of one row of threads, one line of memory; or those of one access
        of a warp, where each thread copies one.
        """
        return (("x", "yz") if ahead else ("y", "xz")) if by_steps else ("yz", "x")

    def folding(
        self, shape: TileShape, side: OperandTile, by_steps: bool, vector: int, ahead: bool
    ) -> tuple[str, int]:
        """An axis, and how many neighbours on it copy neighbours in memory that lie beside each other in turn.

        Steps that are copied one by one are stored into lines whose banks are multiples of 4 (so that 16 bytes can be
        read from them): of more than 8 at a time two would share a bank.
        """
        return "x", LINES if by_steps and ahead and shape.threads_x > LINES else 1

    def apart(self, side: OperandTile, by_steps: bool, ahead: bool) -> int:
        """Accesses that a thread copies before its neighbour on thread.x goes on."""
        return 1

    def stores(self, vector: int) -> int:
        """Instructions that store a copied vector."""
        return vector

    def copying(
        self, shape: TileShape, sides: Sequence[tuple[OperandTile, bool]], staged: int, ahead: bool
    ) -> CopyCost:
        """The cost of copying so many elements: a load, its address, and stores for each vector."""
        return _copied_in_vectors(self, shape, staged)

    # -- cost

    def demands(self, shape: TileShape, copies: int, machine: GpuMachine) -> tuple[float, float]:
        """Cycles of an SM in which one tile's products are issued, with all that belongs to them; and in which its
        shared memory delivers their operands.
        """
        warps, sides = shape.warps, operand_tiles(self, shape)
        rate = machine.flops32 / (machine.flops64 if shape.itemsize > FLOAT32 else machine.flops32)
        fma = shape.rows * shape.columns * shape.steps * warps
        loads = (shape.rows + shape.columns) // shape.vector * shape.steps * warps
        issue = (fma * rate + loads + copies + OVERHEAD * warps) / SCHEDULERS
        left, right = (self.delivered(shape, side) for side in sides)
        return issue, shape.steps * warps * (left + right)

    def begun(self, itemsize: int) -> float:
        """The part of a tile's multiply-adds that its last copy is begun behind (interleave_copies.py)."""
        return 1 / BEGUN_IN if itemsize == FLOAT32 else 0.0

    def registers(self, shape: TileShape, ahead: bool, converting: bool, copied: int) -> int:
        """Registers a thread needs at most: the plan that machine code is held to."""
        return registers_for(shape.rows, shape.columns, shape.itemsize, self.math, ahead, converting)


@dataclass(frozen=True)
class _WarpMma(ABC):
    """A warp's mma.sync instructions on numbers of a format: where its results are, and which lane reads what."""

    math: Math
    axes: ClassVar[tuple[str, str]] = ("y", "zx")
    pauses: ClassVar[bool] = False

    def in_pairs(self, shape: TileShape) -> bool:
        """Instructions say which lane has what."""
        return False

    def read_columns(self, columns: int) -> int:
        """Half of a thread's columns are a lane's of the operand."""
        return columns // 2

    def reads(self, shape: TileShape, side: OperandTile) -> tuple[Integers, Integers]:
        """Lane 4 * g + t reads of step t its own rows, or the g-th tile of columns of its warp."""
        z, y, x = threads_of(shape, in_pairs=False)
        warp = z * 8 if "z" in shape.axes[1] else 0
        return x, (warp + y % 8 if side.along_x else y) * side.tile

    def spreads(self, shape: TileShape, side: OperandTile, uniform: bool) -> Spreads:
        """The layouts to choose from: the four lines of a row's lanes may be skipped apart."""
        v = shape.vector
        skips = ((1, 0), *((every, n) for every in (1, 2, LANE_LINES) for n in range(v, WARP + 1, v)))
        return Spreads(side.tile, v, tuple(range(0, WARP, v)), skips)

    def vector(self, shape: TileShape, by_steps: bool, ahead: bool) -> int:
        """Elements that a thread copies in one access, where an operand can be copied 16 bytes at a time."""
        return shape.vector

    def copy_axes(self, by_steps: bool, ahead: bool) -> tuple[str, str]:
        """A quarter of a warp's row copies neighbours."""
        return ("x", "yz") if by_steps else ("yz", "x")

    def apart(self, side: OperandTile, by_steps: bool, ahead: bool) -> int:
        """Threads on thread.x copy neighbours."""
        return 1

    @abstractmethod
    def stores(self, vector: int) -> int:
        """Instructions that store a copied vector."""

    def copying(
        self, shape: TileShape, sides: Sequence[tuple[OperandTile, bool]], staged: int, ahead: bool
    ) -> CopyCost:
        """The cost of copying so many elements: a load, its address, roundings and stores for each vector."""
        return _copied_in_vectors(self, shape, staged)

    def begun(self, itemsize: int) -> float:
        """Copies stand before the products."""
        return 0.0

    def registers(self, shape: TileShape, ahead: bool, converting: bool, copied: int) -> int:
        """Registers a thread needs at most."""
        return registers_for(shape.rows, shape.columns, shape.itemsize, self.math, ahead, converting)


@dataclass(frozen=True)
class MmaF64(_WarpMma):
    """mma.sync of float64 numbers: every step is an IEEE multiply-add, operands lie in lines as for `Fma`."""

    math: Math = "f64"
    how: ClassVar[str] = " by tensor cores on float64 numbers as they are"
    rounds: ClassVar[bool] = False
    keeps_halves: ClassVar[bool] = False

    def held(self, itemsize: int) -> int:
        """Bytes of an operand's element in shared memory."""
        return itemsize

    def result_bytes(self, itemsize: int) -> int:
        """Bytes of a result in memory."""
        return itemsize

    def panels(self, shape: TileShape, side: OperandTile, by_steps: bool) -> tuple[bool, int]:
        """Panels of lines of steps."""
        return False, side.width

    def layout(
        self, shape: TileShape, side: OperandTile, values: ThreadValues, ahead: bool, uniform: bool
    ) -> SmemLayout:
        """The layout of an operand's elements in shared memory."""
        return spread_lines(self, shape, side, values, uniform)

    def folding(
        self, shape: TileShape, side: OperandTile, by_steps: bool, vector: int, ahead: bool
    ) -> tuple[str, int]:
        """Each thread's neighbour on thread.x copies its neighbour in memory, without more ado."""
        return "y", 1

    def stores(self, vector: int) -> int:
        """Instructions that store a copied vector."""
        return vector

    def demands(self, shape: TileShape, copies: int, machine: GpuMachine) -> tuple[float, float]:
        """Cycles of an SM for a tile's products: the tensor cores' or, if they wait for these, all instructions'."""
        warps, groups = shape.warps, shape.steps // STEPS[self.math]
        products = shape.rows * (shape.columns // 2) * groups
        loads = (shape.rows + shape.columns // 2) // shape.vector * groups
        issue = ((products + loads + OVERHEAD) * warps + copies) / SCHEDULERS
        busy = _flops(shape) / _tensor_rate(machine, self.math)
        return max(issue, busy), loads * warps * WARP * ACCESS_BYTES / SHARED_BYTES


class _Rounded:
    """Operands that are rounded to a format where they are staged, and float32 results."""

    math: Math
    rounds: ClassVar[bool] = True

    @property
    def keeps_halves(self) -> bool:
        """True if operands in memory may be of the format already."""
        return ITEMSIZE[STORED[self.math]] < FLOAT32

    def held(self, itemsize: int) -> int:
        """Bytes of an operand's element in shared memory."""
        return ITEMSIZE[STORED[self.math]]

    def result_bytes(self, itemsize: int) -> int:
        """Results are float32 numbers."""
        return FLOAT32


@dataclass(frozen=True)
class Mma(_Rounded, _WarpMma):
    """mma.sync of operands that are rounded to a format where they are staged, and read by ldmatrix."""

    @property
    def how(self) -> str:
        """The instruction in words, for a report."""
        return f" by tensor cores on {self.math} factors"

    def panels(self, shape: TileShape, side: OperandTile, by_steps: bool) -> tuple[bool, int]:
        """Rows of steps where these are neighbours in memory."""
        return by_steps, shape.steps if by_steps else side.width

    def in_lines(self, by_steps: bool) -> bool:
        """True if an operand lies in lines that lanes read in vectors: ldmatrix cannot turn numbers of 32 bits."""
        return not by_steps and self.math == "tf32"

    def layout(
        self, shape: TileShape, side: OperandTile, values: ThreadValues, ahead: bool, uniform: bool
    ) -> SmemLayout:
        """As ldmatrix reads it, or where it cannot, in lines of tf32 numbers."""
        if self.in_lines(values.by_steps):
            return spread_lines(self, replace(shape, steps=LDMATRIX_STEPS), side, values, uniform)
        return ldmatrix_layout(self.fragments(shape, side), values.by_steps, values.vector)[1]

    def fragments(self, shape: TileShape, side: OperandTile) -> FragmentTile:
        """An operand's tile as ldmatrix reads it."""
        own, lanes = (shape.columns, 4) if side.along_x else (shape.rows, 8)
        return FragmentTile(shape.steps, side.width, own, lanes, self.held(shape.itemsize))

    def folding(
        self, shape: TileShape, side: OperandTile, by_steps: bool, vector: int, ahead: bool
    ) -> tuple[str, int]:
        """As many on thread.y as the layout that was found has."""
        if self.in_lines(by_steps):
            return "y", 1
        return "y", ldmatrix_layout(self.fragments(shape, side), by_steps, vector)[0]

    def stores(self, vector: int) -> int:
        """Instructions that round and store a copied vector: stores of runs."""
        return vector * self.held(FLOAT32) // FLOAT32 + vector // 2

    def demands(self, shape: TileShape, copies: int, machine: GpuMachine) -> tuple[float, float]:
        """Cycles of an SM for a tile's products: the tensor cores' or, if they wait for these, all instructions'."""
        warps, instructions = shape.warps, shape.steps // STEPS[self.math]
        products = shape.rows // 2 * (shape.columns // 2) * instructions
        loads = (shape.rows // 2 + shape.columns // 4) * instructions
        issue = ((products + loads + OVERHEAD) * warps + copies) / SCHEDULERS
        delivered = loads * warps * WARP * ACCESS_BYTES / SHARED_BYTES
        return max(issue, _flops(shape) / (_tensor_rate(machine, self.math) * reached(machine))), delivered


@dataclass(frozen=True)
class Wgmma(_Rounded):
    """Instructions of a warpgroup of 128 threads, which read both operands from shared memory.

    Operands that threads round lie in core matrices (core_matrix.py); those that are copied `ahead`, as they are, too:

        by steps     16 bytes of a row's steps are a row of a core matrix           cp.async, 16 bytes a thread
        by columns   two columns are neighbours of a turned core matrix' row        cp.async, 4 bytes a thread

    Sixteen bytes of columns would be four threads' of an instruction, and each thread's columns are neighbours here.
    """

    math: Math
    axes: ClassVar[tuple[str, str]] = ("y", "zx")
    pauses: ClassVar[bool] = True

    @property
    def how(self) -> str:
        """The instruction in words, for a report."""
        return f" by tensor cores on {self.math} factors, a warpgroup together"

    def in_pairs(self, shape: TileShape) -> bool:
        """Instructions say which lane has what."""
        return False

    def read_columns(self, columns: int) -> int:
        """A thread's columns in a tile of the operand: no thread reads them."""
        return columns

    def panels(self, shape: TileShape, side: OperandTile, by_steps: bool) -> tuple[bool, int]:
        """Panels of rows, or of columns."""
        return False, side.width

    def layout(
        self, shape: TileShape, side: OperandTile, values: ThreadValues, ahead: bool, uniform: bool
    ) -> CoreMatrixLayout:
        """In core matrices, turned where columns that are neighbours in memory are copied as they are."""
        return core_matrices(shape, side, values, self.held(shape.itemsize), ahead and not values.by_steps)

    def vector(self, shape: TileShape, by_steps: bool, ahead: bool) -> int:
        """Elements that a thread copies in one access: 16 bytes, or what a thread has of columns."""
        return PAIR if ahead and not by_steps else shape.vector

    def copy_axes(self, by_steps: bool, ahead: bool) -> tuple[str, str]:
        """A quarter of a warp's row copies neighbours; steps that are none lie along the others of the warpgroup.

        Pairs of columns that are copied as they are lie on thread.y (`folding`) and then on thread.x.
        """
        if by_steps:
            return "x", "yz"
        return ("z", "yx") if ahead else ("y", "xz")

    def folding(
        self, shape: TileShape, side: OperandTile, by_steps: bool, vector: int, ahead: bool
    ) -> tuple[str, int]:
        """Eight pairs of columns follow each other, in other banks; else threads on thread.y copy one line each."""
        return "y", FOLDED_PAIRS if ahead and not by_steps else 1

    def apart(self, side: OperandTile, by_steps: bool, ahead: bool) -> int:
        """Four threads on thread.x copy what the four of an instruction have: words of 16 bytes, in four banks."""
        return side.tile // (PAIR * FOLDED_PAIRS) if ahead and not by_steps else 1

    def stores(self, vector: int) -> int:
        """Instructions that round and store a copied vector: stores of 8 bytes or of 2."""
        return 2 * vector

    def copying(
        self, shape: TileShape, sides: Sequence[tuple[OperandTile, bool]], staged: int, ahead: bool
    ) -> CopyCost:
        """The cost of copying so many elements: through registers, or by cp.async, an access and its address each."""
        if not ahead:
            count = ceil(staged / shape.vector / WARP) * (2 + self.stores(shape.vector))
            return CopyCost(count, THROUGH_REGISTERS * staged / WARP)
        count = sum(
            2 * ceil(side.width * shape.steps / self.vector(shape, by_steps, ahead) / WARP)
            for side, by_steps in sides
        )
        return CopyCost(count, COPYING * count / 2)

    def demands(self, shape: TileShape, copies: int, machine: GpuMachine) -> tuple[float, float]:
        """Cycles of an SM for a tile's products, or for issuing all instructions if that takes longer; and of its
        shared memory, which every instruction's operands are read from.
        """
        groups = shape.threads // (4 * WARP)
        depth = STEPS[self.math]
        instructions = shape.rows // 2 * (shape.steps // depth) * groups
        issue = ((instructions + OVERHEAD) * 4 + copies) / SCHEDULERS
        flops = 2 * shape.block_rows * shape.block_columns * shape.steps
        read = instructions * (INSTRUCTION_ROWS + 4 * shape.columns) * depth * self.held(shape.itemsize)
        return max(issue, flops / _tensor_rate(machine, self.math)), read / SHARED_BYTES

    def begun(self, itemsize: int) -> float:
        """Copies stand before the products."""
        return 0.0

    def registers(self, shape: TileShape, ahead: bool, converting: bool, copied: int) -> int:
        """Registers a thread needs at most, with those of what it copies."""
        return warpgroup_registers(shape.rows, shape.columns, copied)


Instruction = Fma | MmaF64 | Mma | Wgmma


def _copied_in_vectors(mma: Fma | _WarpMma, shape: TileShape, staged: int) -> CopyCost:
    """The cost of copying elements by threads: a load, its address, and an instruction's stores for each vector."""
    count = ceil(staged / shape.vector / WARP) * (2 + mma.stores(shape.vector))
    return CopyCost(count, count * (shape.itemsize // FLOAT32))


def operand_tiles(mma: Instruction, shape: TileShape) -> tuple[OperandTile, OperandTile]:
    """The operand with the rows, and the one with the columns."""
    return (
        OperandTile(shape.block_rows, shape.rows, False),
        OperandTile(shape.block_columns, mma.read_columns(shape.columns), True),
    )


def reached(machine: GpuMachine) -> float:
    """The part of its peak that mma.sync reaches on a machine."""
    return SYNCHRONOUS if machine.gpu.compute_capability >= (9, 0) else 1.0


def meeting(mma: Instruction, gpu: Gpu) -> tuple[str, int]:
    """The reason and the cycles for which tensor cores idle between tiles, if no other blocks multiply then.

    All warps of a block of warpgroups wait for their sums, and meet, before the next tile's products.
    """
    return ("that its warps meet", gpu.meeting_cycles) if mma.pauses else ("", 0)


def _flops(shape: TileShape) -> int:
    """Operations of a block in a tile of steps."""
    return 2 * shape.threads * shape.rows * shape.columns * shape.steps


def _tensor_rate(machine: GpuMachine, math: Math) -> float:
    """Operations of an SM's tensor cores in a cycle."""
    return dict(machine.tensor)[math] / (machine.flops32 / (2 * 128))


# -- lines -------------------------------------------------------------------------------------------------------------


@cache
def spread_lines(
    mma: Fma | MmaF64 | Mma, shape: TileShape, side: OperandTile, values: ThreadValues, uniform: bool
) -> SmemLayout:
    """The layout of lines in which reads and copies wait least, by enumeration; of equals the smallest.

    A copy along the steps turns 4 steps of one row into elements of 4 lines.
    """
    panel, accesses = accesses_of(mma, shape, side, values)
    return panel.least_waiting(mma.spreads(shape, side, uniform), accesses)


def accesses_of(
    mma: Fma | MmaF64 | Mma, shape: TileShape, side: OperandTile, values: ThreadValues
) -> tuple[Panel, tuple[Access, ...]]:
    """An operand's panel of a tile of steps, and what threads do at once: a read of a step, a store of the copy."""
    panel, vector = Panel(shape.steps, side.width, shape.itemsize), values.vector
    steps, elements = values.starts(shape, threads_of(shape, mma.in_pairs(shape)))
    stores = (steps * vector, elements, 1) if values.by_steps else (steps, elements * vector, vector)
    read = panel.access(*mma.reads(shape, side), ACCESS_BYTES)
    return panel, (read, panel.access(*stores[:2], stores[2] * shape.itemsize))

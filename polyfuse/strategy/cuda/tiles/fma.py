"""Shapes of register tiles on a GPU: which there are, what a tile of steps needs, and where it lies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, field, replace
from functools import cache
from itertools import product as pairs
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt

from polyfuse.analysis.banks import WARP
from polyfuse.analysis.paired_lanes import can_pair, paired
from polyfuse.analysis.vector_access import ACCESS_BYTES
from polyfuse.ir.precision import Math
from polyfuse.ir.tree import Spread
from polyfuse.machine import Gpu, Machine
from polyfuse.schedule.microkernel_verb import BEGUN_IN, registers_for
from polyfuse.strategy.cost.occupancy import occupancy
from polyfuse.strategy.cuda.tiles.smem_layouts import Access, Panel, Spreads
from polyfuse.strategy.cuda.transforms.rasterization import GRID, Grid, Order
from polyfuse.strategy.match.gemm_problem import Extents

Integers = npt.NDArray[np.int64]

SCHEDULERS = 4
"""Instructions of a warp that an SM issues in a cycle."""

SHARED_BYTES = 128
"""What an SM's shared memory delivers in a cycle."""

EXPOSED = 0.25
"""The part of what does not decide a tile's time that is not hidden behind it, where threads copy and multiply. By it
products in register tiles take 1.01 to 1.10 times what is expected (1024 to 8192, H200)."""

LINES = SHARED_BYTES // ACCESS_BYTES
"""Accesses of 16 bytes that shared memory takes in a cycle."""

WAYS = ((True, True), (True, False), (False, True), (False, False))
"""How a factor may be copied: along its steps or not, 16 bytes at a time or not."""

STAGES = (1, 2, 4)
"""How many tiles of steps are in shared memory, those on their way beside the one that is multiplied. Three would need
remainders that are no masks. Of float64 numbers only the largest tiles have stages: with smaller ones ptxas (CUDA 13)
spills 8 to 44 bytes with any number of registers."""

SINGLE = {True: 2.5, False: 5.0}
"""Instructions that copy one number: while the thread does other things, or through a register. In machine code for
sm_80 and sm_90 1.5 to 2.8 and 3.7 to 4.8, without 20 of each tile that `demands` counts (1023 × 1023 by 1023, tiles
of 32 to 64 rows by 64 to 128 columns)."""


@dataclass(frozen=True)
class Side:
    """One factor's tile in shared memory: elements along the results, how many a thread needs, and on which axis."""

    width: int
    tile: int
    along_x: bool


@dataclass(frozen=True)
class Shape:
    """Threads of a block, results of a thread, and steps that are staged at a time.

    Once it is costed for a product: the `group` of rows of blocks that start together (rasterization.py), the
    seconds expected, those in which instructions are issued (or shared memory is
    read, if that takes longer) and those in which bytes are moved; the tiles of steps one after the other, and the
    seconds in which all blocks of an SM have been through one; and why.
    """

    threads_z: int
    threads_y: int
    threads_x: int
    rows: int
    columns: int
    steps: int
    itemsize: int
    stages: int = 1
    group: int = field(default=1, compare=False)
    seconds: float = field(default=0.0, compare=False)
    issuing: float = field(default=0.0, compare=False)
    moving: float = field(default=0.0, compare=False)
    tiles: int = field(default=0, compare=False)
    tile: float = field(default=0.0, compare=False)
    why: str = field(default="", compare=False)

    @property
    def vector(self) -> int:
        """Elements of the widest access."""
        return ACCESS_BYTES // self.itemsize

    @property
    def result_bytes(self) -> int:
        """Bytes of a result in memory, at most."""
        return self.itemsize

    @property
    def block_rows(self) -> int:
        """Rows of a block's results."""
        return self.threads_z * self.threads_y * self.rows

    @property
    def block_columns(self) -> int:
        """Columns of a block's results."""
        return self.threads_x * self.columns

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.threads_z * self.threads_y * self.threads_x

    @property
    def left(self) -> Side:
        """The factor with the rows."""
        return Side(self.block_rows, self.rows, False)

    @property
    def right(self) -> Side:
        """The factor with the columns."""
        return Side(self.block_columns, self.columns, True)

    @property
    def math(self) -> Math:
        """What factors are rounded to."""
        return "ieee"

    @property
    def keeps_halves(self) -> bool:
        """Whether factors of halves lie in shared memory as they are."""
        return False

    @property
    def how(self) -> str:
        """What multiplies, for a report."""
        return ""

    @property
    def over(self) -> tuple[str, str]:
        """The axes that a block's rows are on, the outer ones first, and those of its columns."""
        return "zy", "x"

    @property
    def in_pairs(self) -> bool:
        """Whether lanes are in pairs (analysis/paired_lanes.py)."""
        return can_pair(self.threads_x, self.threads_y)

    def at_once(self, by_steps: bool) -> int:
        """Elements that a thread copies in one access, where a factor can be copied 16 bytes at a time.

        What is asked for ahead is stored as it comes: neighbours that are to lie in several lines one by one.
        """
        return 1 if by_steps and self.stages > 1 else self.vector

    def copying(self, by_steps: bool) -> tuple[str, str]:
        """The axes on which a copy has its steps, and those of its other elements, the inner ones first.

        `by_steps` says that steps are neighbours in memory: those of one row of threads are one line of it then, or
        those of one access of a warp, where each thread copies one.
        """
        return (("x", "yz") if self.stages > 1 else ("y", "xz")) if by_steps else ("yz", "x")

    def copied_by(self, side: Side, by_steps: bool, vector: int) -> tuple[Integers, Integers]:
        """The first step of each thread's copies, and the first of the other elements, both in accesses."""
        axes = dict(zip("zyx", threads_of(self), strict=True))
        folds, folded = self.folding(side, by_steps, vector)

        def counted(names: str, found: Integers, before: int) -> Integers:
            """A thread's number along some axes, the inner ones first, behind one that counts so far."""
            for axis in names:
                found, before = found + before * axes[axis], before * self.on(axis)
            return found

        steps, elements = self.copying(by_steps)
        if folded == 1:
            return counted(steps, 0 * axes["x"], 1), counted(elements, 0 * axes["x"], 1)
        rest, before = axes[folds] // folded, self.on(folds) // folded
        return axes[folds] % folded, counted(elements, rest, before)

    def folding(self, side: Side, by_steps: bool, vector: int) -> tuple[str, int]:
        """An axis, and how many neighbours on it copy neighbours in memory that lie beside each other in turn.

        Steps that are copied one by one are stored into lines whose banks are multiples of 4 (so that 16 bytes can be
        read from them): of more than 8 at a time two would share a bank.
        """
        return "x", LINES if by_steps and self.stages > 1 and self.threads_x > LINES else 1

    def apart(self, side: Side, by_steps: bool, axis: str) -> int:
        """How many neighbours one thread copies before its neighbour on an axis goes on."""
        return 1

    def panels(self, side: Side, by_steps: bool) -> tuple[bool, int]:
        """Whether a factor's panels in shared memory are of steps, and how wide they are."""
        return False, side.width

    def on(self, axis: str) -> int:
        """Threads along an axis."""
        return {"z": self.threads_z, "y": self.threads_y, "x": self.threads_x}[axis]

    def reads(self, side: Side) -> tuple[Integers, Integers]:
        """The step and the first element that each thread reads of a factor, in one access."""
        first = self.starts(side) * side.tile
        return 0 * first, first

    def starts(self, side: Side) -> Integers:
        """Which of the tiles along a factor's results each thread reads."""
        z, y, x = threads_of(self)
        return x if side.along_x else z * self.threads_y + y

    def blocks(self, extents: Extents) -> int:
        """Blocks of the grid."""
        across = ceil(extents.rows / self.block_rows) * ceil(extents.columns / self.block_columns)
        return across * extents.count

    def order(self, extents: Extents, wave: int, cache: int) -> Order:
        """How blocks are numbered, and the bytes that a wave of them reads from DRAM for a tile of steps."""
        grid = Grid(
            ceil(extents.rows / self.block_rows),
            ceil(extents.columns / self.block_columns),
            extents.count,
            ceil(extents.steps / self.steps),
            self.block_rows * self.steps * self.itemsize * extents.left.reads,
            self.block_columns * self.steps * self.itemsize * extents.right.reads,
        )
        return grid.best(wave, cache)

    def spreads(self, side: Side) -> Spreads:
        """The layouts to choose from for a factor."""
        v = self.vector
        gaps = (0,) if side.tile == v else tuple(range(0, WARP, v))
        return Spreads(side.tile, v, gaps, ((1, 0), *((e, n) for e in (1, v) for n in range(v, WARP + 1, v))))

    def demands(self, machine: Machine) -> tuple[float, float]:
        """Cycles of an SM in which one tile's products are issued, with all that belongs to them; and in which its
        shared memory delivers their factors.
        """
        warps = self.threads // WARP
        rate = machine.flops32 / (machine.flops64 if self.itemsize > 4 else machine.flops32)
        fma = self.rows * self.columns * self.steps * warps
        loads = (self.rows + self.columns) // self.vector * self.steps * warps
        issue = (fma * rate + loads + self.copies + 20 * warps) / SCHEDULERS
        return issue, self.steps * warps * (delivered(self, self.left) + delivered(self, self.right))

    @property
    def staged(self) -> int:
        """Elements of a tile of steps, of both factors."""
        return (self.block_rows + self.block_columns) * self.steps

    def laid_out(self, side: Side, by_steps: bool, wide: bool) -> Mapping[str, Any]:
        """What `promote` is told of a factor's tile: where it lies."""
        return {"spread": astuple(spread_for(self, side, by_steps, wide))}

    @property
    def staged_bytes(self) -> int:
        """Bytes in memory of a tile of steps, of both factors."""
        return self.staged * self.itemsize

    @property
    def copies(self) -> int:
        """Instructions of all warps that copy a tile of steps."""
        return ceil(self.staged / self.vector / WARP) * (2 + self.vector)

    def singly(self, extents: Extents) -> float:
        """Instructions of all warps beyond `copies` where numbers are copied one by one."""
        each = SINGLE[self.stages > 1] if extents.singles else 0
        return max(0.0, ceil(self.staged / WARP) * each - self.copies)

    @property
    def storing(self) -> float:
        """Cycles of shared memory in which a tile of steps is stored there."""
        return self.copies * (self.itemsize // 4)

    @property
    def exposed(self) -> float:
        """The part of what does not decide a tile's time that is not hidden behind it."""
        return EXPOSED

    def is_whole(self, extents: Extents) -> bool:
        """Whether none of a product's tiles is cut short."""
        sides = zip(
            (extents.rows, extents.columns, extents.steps),
            (self.block_rows, self.block_columns, self.steps),
            strict=True,
        )
        return all(size % tile == 0 for size, tile in sides)

    @property
    def begun(self) -> float:
        """The part of a tile's multiply-adds that its last copy is begun behind (interleave_copies.py)."""
        return 1 / BEGUN_IN if self.math == "ieee" and self.itemsize == 4 else 0.0

    def ahead(self, latency: float, copied: float, multiplied: float) -> float:
        """Cycles after which a tile is there that is asked for while others are used."""
        return latency / (self.stages - 1 - self.begun)

    @property
    def waits(self) -> int:
        """Loads that a thread waits for one after the other, to copy a tile of steps."""
        return 1

    def fillings(self, extents: Extents) -> int:
        """How often stages are filled anew: nothing else goes on then."""
        return 1

    @property
    def read_bytes(self) -> int:
        """Bytes that a block reads from L2 for a tile of steps."""
        return self.staged_bytes

    def pause(self, gpu: Gpu) -> tuple[str, int]:
        """Why tensor cores have nothing to do between tiles, if no other blocks multiply then; and the cycles."""
        return "", 0

    @property
    def registers(self) -> int:
        """Registers a thread needs at most: the plan that machine code is held to."""
        return registers_for(self.rows, self.columns, self.itemsize, self.math, self.stages > 1)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block, all stages of both factors, spread as widely as any choice does."""
        return (
            self.stages
            * sum(
                max(spread_for(self, side, *way).size(self.steps, side.width) for way in WAYS)
                for side in (self.left, self.right)
            )
            * self.itemsize
        )

    def resident(self, gpu: Gpu) -> int:
        """Blocks that an SM holds at once."""
        return occupancy(gpu, self.threads, self.registers, self.shared_bytes).blocks

    def sentences(self, statement: str) -> tuple[str, ...]:
        """What was chosen and why, for a report."""
        z, y, x = self.threads_z, self.threads_y, self.threads_x
        return (
            f"{statement} in register tiles: blocks of {self.block_rows} × {self.block_columns} results by "
            f"{z} × {y} × {x} threads of {self.rows} × {self.columns}"
            f"{self.how}, {self.steps} steps"
            f"{f' in each of {self.stages} stages' if self.stages > 1 else ''} in "
            f"{self.shared_bytes} bytes of shared memory, {self.registers} registers planned"
            f"{'; ' + self.why if self.why else ''}",
        )


def candidates(itemsize: int) -> Iterator[Shape]:
    """The shapes there are, whatever a product's sizes.

    The largest tiles of a thread, 16 × 8 float32 results, are of 256 threads that copy ahead: blocks of fewer took 5 to
    10 % longer (8 × 16 results; H200), and without copies ahead one block on an SM has nothing else to do meanwhile.
    """
    vector = ACCESS_BYTES // itemsize
    steps = 4 * vector
    for stages in STAGES[1:] if itemsize == 4 else ():
        yield Shape(4, 4, 16, 4 * vector, 2 * vector, steps, itemsize, stages)
    for (z, x), rows, columns, stages in pairs(
        ((4, 16), (4, 8), (2, 16), (2, 8), (1, 8)), (2 * vector, vector), (2 * vector, vector), STAGES
    ):
        if stages == 1 or itemsize == 4 or rows == columns == 2 * vector:
            yield Shape(z, 4, x, rows, columns, steps, itemsize, stages)


def fits(s: Shape, extents: Extents, gpu: Gpu) -> bool:
    """Whether a thread has all its rows and columns somewhere, and a block fits into an SM."""
    enough = extents.rows >= s.rows and extents.columns >= s.columns and extents.steps >= s.vector
    enough = enough and max(extents.count, ceil(extents.rows / s.block_rows)) <= GRID
    enough = enough and extents.loaded(s.block_rows, s.block_columns, s.staged_bytes // (4 * s.threads))
    return enough and s.shared_bytes <= gpu.shared_per_block and s.resident(gpu) >= 1


def delivered(s: Shape, side: Side) -> float:
    """Cycles of shared memory in which one warp's factors of one step are delivered (analysis/paired_lanes.py)."""
    lanes, starts = np.arange(WARP), s.starts(side)[:WARP]
    twice = any((starts == starts[lanes ^ other]).all() for other in (1, 2))
    return WARP * s.itemsize * side.tile / SHARED_BYTES / (2 if twice else 1)


def threads_of(s: Shape) -> tuple[Integers, ...]:
    """(z, y, x) of every thread of a block, in the order of its warps' lanes."""
    z, y, x = (each.ravel() for each in np.indices((s.threads_z, s.threads_y, s.threads_x)))
    x, y = paired(x, y, s.threads_x) if s.in_pairs else (x, y)
    return z, y, x


# -- shared memory -----------------------------------------------------------------------------------------------------


def spread_for(s: Shape, side: Side, by_steps: bool, wide: bool) -> Spread:
    """The layout in which reads and copies wait least, by enumeration; of equals the smallest.

    `by_steps` says that a factor's steps are neighbours in global memory: a copy then turns 4 steps of one row into
    elements of 4 lines. `wide` says that it loads 16 bytes at a time.
    """
    # all stages beyond the first are laid out alike
    return _spread_of(replace(s, stages=min(s.stages, 2)), side, by_steps, wide)


@cache
def _spread_of(s: Shape, side: Side, by_steps: bool, wide: bool) -> Spread:
    panel, accesses = accesses_of(s, side, by_steps, wide)
    return panel.least_waiting(s.spreads(side), accesses)


def accesses_of(s: Shape, side: Side, by_steps: bool, wide: bool) -> tuple[Panel, tuple[Access, ...]]:
    """A factor's panel of a tile of steps, and what threads do there at once: a read of a step, a store of the copy."""
    panel = Panel(s.steps, side.width, s.itemsize)
    vector = s.at_once(by_steps) if wide else 1
    steps, elements = s.copied_by(side, by_steps, vector)
    stores = (steps * vector, elements, 1) if by_steps else (steps, elements * vector, vector)
    read = panel.access(*s.reads(side), ACCESS_BYTES)
    return panel, (read, panel.access(*stores[:2], stores[2] * s.itemsize))

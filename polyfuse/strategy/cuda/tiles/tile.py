"""A tile of a product's results for a block of threads, as a value of parts: CUTLASS's factors.

    shape           threads, results of a thread, steps, bytes of an element           tile_shape.py
    mma             Fma, MmaF64, Mma, Wgmma: what multiplies                           mma.py
    copy            ThreadCopy, CpAsync, Tma: what brings operands to shared memory    tile_copies.py
    stages          tiles of steps in shared memory, those on their way too
    producer_warp   whether a warp does nothing but ask for boxes
    cluster         blocks that copy the boxes which all of them read for each other
    operands        Gemm, ImplicitGemm, Stationary: what is multiplied                 operands.py

Each part answers its own questions; a tile puts the answers together. What the model expects of one is tile_cost.py's,
which tiles there are tile_candidates.py's.

With a producer warp no thread has copies to ask for between products, and none meets others at a barrier:

    a warp           for each tile: wait for a free slot, ask for its boxes
    warpgroups       for each tile: wait for a full slot, begin its products, give the one before back

While a warpgroup waits for a tile the products of the one before go on, and warpgroups need not be at the same tile
(producer_consumer.py, overlap_wgmma.py). What it costs is a warp, with the registers of any other.

    2 blocks down, a cluster     both read the factor of the same columns: each asks for half of it, and both get all

Of 64 × 128 results and 64 steps a block reads 64 + 64 lines of 128 bytes from L2 then, and alone 64 + 128. That decides
most products' time in boxes. But a slot is free once the warps of all blocks have used it, so that blocks wait for the
slowest. Which blocks share what isl proves (multicast_boxes.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil
from typing import Any

from polyfuse.analysis.banks import WARP
from polyfuse.ir.precision import Math
from polyfuse.ir.tree import BULK, OWN_WARP
from polyfuse.layouts import Layout
from polyfuse.machine import Gpu, GpuMachine
from polyfuse.strategy.cost.occupancy import occupancy
from polyfuse.strategy.cuda.tiles.mma import CopyCost, Instruction, meeting, operand_tiles
from polyfuse.strategy.cuda.tiles.operands import Gemm, Operands
from polyfuse.strategy.cuda.tiles.rasterization import Order
from polyfuse.strategy.cuda.tiles.tile_copies import Copy, Sides, ThreadCopy
from polyfuse.strategy.cuda.tiles.tile_shape import Digits, OperandTile, ThreadValues, TileShape
from polyfuse.strategy.match.gemm_problem import Extents

MOST_BESIDE_PRODUCER = 168
"""Registers of a thread where nine warps are to fit into an SM: in pieces of 8, three warps in 16384 of a quarter."""

WAITING = 180
"""Cycles of a tile for each block of a cluster in which tensor cores have nothing to do: arrivals at other SMs, and the
slowest of the blocks. About a way to another SM (Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU
Architecture via Microbenchmarking", 2024, section on distributed shared memory). By it a product of 4096 takes 297 µs
in two blocks' clusters, tiles of 128 × 128 and four stages, and took 282 (H200)."""


MATRICES = Gemm()


@dataclass(frozen=True)
class Cluster:
    """Blocks of a cluster: so many, one below the other (`down`) or side by side."""

    blocks: int
    down: bool


@dataclass(frozen=True)
class ThreadblockTile:
    """A tile of results for a block of threads, and all that it takes to compute one.

    Once it is costed for a product: the `group` of rows of blocks that start together (rasterization.py), the
    seconds expected, those in which instructions are issued (or shared memory is
    read, if that takes longer) and those in which bytes are moved; the tiles of steps one after the other, and the
    seconds in which all blocks of an SM have been through one; the seconds to copy `once` what stays; and why.
    """

    shape: TileShape
    mma: Instruction
    copy: Copy
    stages: int = 1
    producer_warp: bool = False
    cluster: Cluster | None = None
    operands: Operands = MATRICES
    group: int = field(default=1, compare=False)
    seconds: float = field(default=0.0, compare=False)
    issuing: float = field(default=0.0, compare=False)
    moving: float = field(default=0.0, compare=False)
    tiles: int = field(default=0, compare=False)
    tile: float = field(default=0.0, compare=False)
    once: float = field(default=0.0, compare=False)
    why: str = field(default="", compare=False)

    def sized(self, steps: int | None = None, columns: int | None = None) -> ThreadblockTile:
        """The tile with other steps, or other columns of a thread."""
        s = self.shape
        return replace(self, shape=replace(s, steps=steps or s.steps, columns=columns or s.columns))

    @property
    def name(self) -> str:
        """What tells it from other tiles of a product, as a wish calls it (polyfuse.strategy.candidates).

        "128 x 128 x 32, 8 x 8 a thread, Fma, CpAsync, 3 stages"
        """
        s = self.shape
        said = [
            f"{s.block_rows} x {s.block_columns} x {s.steps}",
            f"{s.rows} x {s.columns} a thread",
            type(self.mma).__name__,
            type(self.copy).__name__,
            f"{self.stages} stage{'s' if self.stages > 1 else ''}",
        ]
        said += ["a producer warp"] if self.producer_warp else []
        if self.cluster is not None:
            said.append(f"{self.cluster.blocks} blocks {'down' if self.cluster.down else 'across'}")
        return ", ".join(said)

    # -- operands

    @property
    def left(self) -> OperandTile:
        """The operand with the rows."""
        return operand_tiles(self.mma, self.shape)[0]

    @property
    def right(self) -> OperandTile:
        """The operand with the columns."""
        return operand_tiles(self.mma, self.shape)[1]

    @property
    def sides(self) -> Sides:
        """Both operands, and whether their neighbours in memory are steps where they are copied as they are."""
        return [(side, self.operands.is_contiguous(side)) for side in (self.left, self.right)]

    @property
    def math(self) -> Math:
        """The format to which operands are rounded."""
        return self.mma.math

    @property
    def kept(self) -> bool:
        """True if operands of a format are copied as they are in memory."""
        return self.mma.rounds and self.copy.asynchronous

    @property
    def held(self) -> OperandTile | None:
        """The operand that stays in shared memory for all steps of a loop, if one does."""
        return self.operands.held(self.mma, self.shape)

    @property
    def held_bytes(self) -> int:
        """Bytes that a block copies once."""
        held = self.held
        return 0 if held is None else self.shape.itemsize * self.operands.lines(self.shape, held) * held.width

    @property
    def element(self) -> int:
        """Bytes of an operand's element in shared memory."""
        return self.mma.held(self.shape.itemsize)

    # -- shared memory

    def stages_of(self, side: OperandTile) -> int:
        """Tiles of an operand in shared memory: one of what stays."""
        return 1 if side == self.held else self.stages

    def copy_of(self, side: OperandTile) -> Copy:
        """The copy of an operand: a stationary one is copied once."""
        return ThreadCopy() if side == self.held else self.copy

    def thread_values(self, side: OperandTile, by_steps: bool, wide: bool) -> ThreadValues:
        """The elements that each thread copies; `by_steps` if steps are contiguous, `wide` for 16 bytes at a time."""
        ahead = self.copy_of(side).asynchronous
        return self.operands.thread_values(self.mma, self.shape, side, by_steps, wide, ahead)

    def panels(self, side: OperandTile, by_steps: bool) -> tuple[bool, int]:
        """Return (True if an operand's panels in shared memory run along steps, their width)."""
        return self.copy.panels(self.mma, self.shape, side, by_steps)

    def layout(self, side: OperandTile, by_steps: bool, wide: bool) -> Layout:
        """The layout of an operand's elements in shared memory."""
        shape, values = self.operands.laid_out_as(self.shape), self.thread_values(side, by_steps, wide)
        return self.copy_of(side).layout(self.mma, shape, side, values, self.operands.uniform)

    def laid_out(self, side: OperandTile, by_steps: bool, wide: bool) -> Mapping[str, Any]:
        """The arguments of `promote` for an operand's tile: its layout and its rounding."""
        rounded = {"rounded": self.math} if self.mma.rounds else {}
        return {"layout": self.layout(side, by_steps, wide)} | rounded

    @cached_property
    def shared_bytes(self) -> int:
        """Shared memory of a block, all stages of both operands, as wide as any choice has them, and barriers."""
        elements = sum(
            self.stages_of(side) * self._most_elements(side, contiguous) for side, contiguous in self.sides
        )
        barriers = self.stages * self.copy.barrier_bytes * (2 if self.producer_warp else 1)
        return elements * self.element + barriers

    def _most_elements(self, side: OperandTile, contiguous: bool) -> int:
        ways = ((contiguous, True),) if self.kept else self.operands.ways(self.mma, side)
        lines, steps, sizes = self.operands.lines(self.shape, side), self.shape.steps, []
        for by_steps, wide in ways:
            of_steps, width = self.panels(side, by_steps)
            rows, along = (lines // steps * side.width, steps) if of_steps else (lines, side.width)
            sizes.append(along // width * self.layout(side, by_steps, wide).size(rows, width))
        return max(sizes)

    # -- what it takes

    @property
    def copies(self) -> CopyCost:
        """The cost of copying a tile of steps."""
        return self.operands.cost(self.mma, self.copy, self.shape, self.sides)

    @property
    def staged(self) -> int:
        """Elements of a tile of steps, of the operands that are copied with each."""
        return self.operands.staged(self.mma, self.shape)

    @property
    def staged_bytes(self) -> int:
        """Bytes in memory of a tile of steps."""
        return self.operands.staged_bytes(self.mma, self.shape)

    @property
    def registers(self) -> int:
        """Registers a thread needs at most: the plan that machine code is held to.

        Three warps share a quarter of an SM with a producer. Tiles of 128 × 256 took 154 to 166 (CUDA 13, sm_90a).
        """
        copied = self.copy.registers(self.staged, self.shape.threads)
        found = self.mma.registers(self.shape, self.stages > 1, self.operands.converting, copied)
        return min(found, MOST_BESIDE_PRODUCER) if self.producer_warp else found

    def resident(self, gpu: Gpu) -> int:
        """Blocks that an SM holds at once."""
        threads = self.shape.threads + (WARP if self.producer_warp else 0)
        return occupancy(gpu, threads, self.registers, self.shared_bytes).blocks

    def demands(self, machine: GpuMachine) -> tuple[float, float]:
        """Cycles of an SM in which one tile's products are issued, with all that belongs to them; and in which its
        shared memory delivers their operands.
        """
        issue, delivered = self.mma.demands(self.shape, self.copies.instructions, machine)
        return issue + self.operands.finding_stages(self.shape, self.stages), delivered

    def ahead(self, latency: float, copied: float, multiplied: float) -> float:
        """Cycles after which a tile is there that is asked for while others are used."""
        begun = self.mma.begun(self.shape.itemsize) if self.operands.interleaved else 0.0
        return self.copy.ahead(self.stages, begun, latency, copied, multiplied)

    def pause(self, gpu: Gpu) -> tuple[str, int]:
        """The reason and the cycles for which tensor cores idle between tiles, if no other blocks multiply then."""
        if self.cluster is not None:
            return "that a cluster's blocks wait for each other", WAITING * self.cluster.blocks
        return ("", 0) if self.producer_warp else meeting(self.mma, gpu)

    @property
    def waits(self) -> int:
        """Loads that a thread waits for one after the other, to copy a tile of steps."""
        return self.operands.waits(self.mma, self.shape)

    def fillings(self, extents: Extents) -> int:
        """The number of times that the pipeline of stages is refilled, while nothing else runs."""
        return self.operands.fillings(self.shape, self.stages, extents)

    # -- blocks

    @property
    def units(self) -> int:
        """Columns of a block that are neighbours."""
        return self.operands.units(self.shape)

    def blocks(self, extents: Extents) -> int:
        """Blocks of the grid."""
        return self.operands.blocks(self.shape, extents)

    def order(self, extents: Extents, wave: int, cache: int) -> Order:
        """The order of blocks, and the bytes that a wave of them reads from DRAM for a tile of steps."""
        return self.operands.order(self.mma, self.shape, extents, wave, cache)

    def digits(self) -> tuple[Digits, Digits]:
        """The digits by which a block's rows, and its columns, are distributed to axes of threads and to threads."""
        return self.copy.digits(self.shape)

    # -- clusters

    @property
    def shared(self) -> OperandTile | None:
        """The operand that all blocks of a cluster read."""
        if self.cluster is None:
            return None
        return self.right if self.cluster.down else self.left

    @property
    def read_bytes(self) -> int:
        """Bytes that a block reads from L2 for a tile of steps: in a cluster a part of the operand that is shared."""
        if self.cluster is None:
            return self.staged_bytes
        shared, alone = (self.right, self.left) if self.cluster.down else (self.left, self.right)
        lines = shared.width / self.cluster.blocks + alone.width
        return ceil(lines * self.shape.steps * self.element)

    @property
    def innermost(self) -> bool:
        """True if the loop over a cluster's blocks is the last one over blocks: rows of a group, or columns."""
        return self.cluster is not None and self.cluster.down != (self.group == 1)

    def has_whole_clusters(self, extents: Extents) -> bool:
        """True if every cluster is complete, in groups of rows too."""
        if self.cluster is None:
            return True
        size = self.cluster.blocks
        rows, columns = (
            ceil(extents.rows / self.shape.block_rows),
            ceil(extents.columns / self.shape.block_columns),
        )
        if not self.cluster.down:
            return columns % size == 0
        last = rows % self.group if self.group > 1 else 0
        return rows % size == last % size == 0 and (self.group == 1 or self.group % size == 0)

    @property
    def bound_to(self) -> str:
        """The binding of a box's loop."""
        return OWN_WARP if self.producer_warp else BULK[0]

    # -- reports

    @property
    def how(self) -> str:
        """The instruction and the copies in words, for a report."""
        parts = [self.mma.how]
        parts += [", which are copied as they are"] if self.kept else []
        parts += [", a box by one instruction (tensor maps)"] if self.copy.boxes else []
        parts += [" of a warp that only copies"] if self.producer_warp else []
        if self.cluster is not None:
            place = "down" if self.cluster.down else "across"
            parts.append(f", in clusters of {self.cluster.blocks} blocks {place}")
        return "".join((*parts, self.operands.how(self.mma, self.shape)))

    def sentences(self, statement: str) -> tuple[str, ...]:
        """Sentences on the choice and its reasons, for a report."""
        s = self.shape
        found = [
            f"{statement} in register tiles: blocks of {s.block_rows} × {s.block_columns} results by "
            f"{s.threads_z} × {s.threads_y} × {s.threads_x} threads of {s.rows} × {s.columns}"
            f"{self.how}, {s.steps} steps"
            f"{f' in each of {self.stages} stages' if self.stages > 1 else ''} in "
            f"{self.shared_bytes} bytes of shared memory, {self.registers} registers planned"
            f"{'; ' + self.why if self.why else ''}"
        ]
        if self.producer_warp:
            found.append(
                f"{statement} has a warp that only copies: tensor cores do not pause while all of a block's warps "
                "wait for their sums and meet, in each tile, for one warp's registers more"
            )
        if self.cluster is not None:
            blocks, factor = self.cluster.blocks, "columns" if self.cluster.down else "rows"
            found.append(
                f"{statement} has clusters of {blocks} blocks that share the factor of their {factor}: each copies "
                f"1/{blocks} of it for all, {self.read_bytes} bytes of a tile from L2 where a block alone reads "
                f"{self.staged_bytes}, and waits for the others, {WAITING * blocks} cycles of a tile"
            )
        return tuple(found)

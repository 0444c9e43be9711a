"""The operands of a tile: a product's, an image's patches (implicit GEMM), or a stationary factor.

    Gemm            both operands are matrices in memory, or computed on the way
    ImplicitGemm    one operand are pixels in a window's order: im2col, of which a tile is in shared memory alone
    Stationary      a step of a loop multiplies the same factor again, which stays in shared memory for all steps

Each says how much is staged for a tile of steps, how blocks cover the results, and how often a thread waits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import ClassVar, Literal

from polyfuse.analysis.banks import WARP
from polyfuse.strategy.cuda.tiles.mma import FLOAT32, CopyCost, Instruction, operand_tiles
from polyfuse.strategy.cuda.tiles.rasterization import Grid, Order
from polyfuse.strategy.cuda.tiles.smem_layouts import WAYS
from polyfuse.strategy.cuda.tiles.tile_copies import Copy, Sides
from polyfuse.strategy.cuda.tiles.tile_shape import (
    SCHEDULERS,
    WRITTEN_OUT,
    OperandTile,
    ThreadValues,
    TileShape,
)
from polyfuse.strategy.match.gemm_problem import Extents

HALF = 2
"""Bytes of a half."""

COPIED = 8
"""Instructions that copy one pixel: its guard, its address, zero or the load, stores."""

ASKED = 6
"""Instructions that ask for one pixel, or for zero: its guard, its address, the copy that goes on by itself."""

ROUNDED = 12
"""Instructions that copy one pixel: its guards, its address, the load, rounding, stores of it or of zero."""

TURNING = 50
"""Instructions in which a warp finds the one of four stages: 21 more than of two in windows of 1 x 1, 88 of 3 x 3."""


class _Operands:
    """Operands that are staged anew with each tile of steps, of which all columns of a block are neighbours."""

    groups: int = 1
    period: int = 0
    halves: bool = False
    wide: bool = False
    across_steps: ClassVar[bool] = False
    interleaved: ClassVar[bool] = True
    uniform: ClassVar[bool] = False

    def how(self, mma: Instruction, shape: TileShape) -> str:
        """The operands' peculiarities, for a report."""
        return ""

    # -- shared memory

    def held(self, mma: Instruction, shape: TileShape) -> OperandTile | None:
        """The operand that stays in shared memory, if one does."""
        return None

    def is_contiguous(self, side: OperandTile) -> bool:
        """True if an operand's steps are neighbours in memory, where it is copied as it is."""
        return True

    def laid_out_as(self, shape: TileShape) -> TileShape:
        """The sizes of the tile whose layout a tile of these sizes has."""
        return shape

    def lines(self, shape: TileShape, side: OperandTile) -> int:
        """Lines of steps of an operand's tile."""
        return shape.steps

    def ways(self, mma: Instruction, side: OperandTile) -> tuple[tuple[bool, bool], ...]:
        """The ways to copy an operand: along its steps or not, 16 bytes at a time or not."""
        return WAYS

    def staged(self, mma: Instruction, shape: TileShape) -> int:
        """Elements of a tile of steps, of both operands."""
        return sum(side.width * self.lines(shape, side) for side in operand_tiles(mma, shape))

    def staged_bytes(self, mma: Instruction, shape: TileShape) -> int:
        """Bytes in memory of a tile of steps, of both operands."""
        return self.staged(mma, shape) * shape.itemsize

    # -- copies

    def thread_values(
        self, mma: Instruction, shape: TileShape, side: OperandTile, by_steps: bool, wide: bool, ahead: bool
    ) -> ThreadValues:
        """The elements that each thread copies, 16 bytes at a time if `wide`."""
        vector = mma.vector(shape, by_steps, ahead) if wide else 1
        folding, apart = mma.folding(shape, side, by_steps, vector, ahead), mma.apart(side, by_steps, ahead)
        return ThreadValues(by_steps, vector, *mma.copy_axes(by_steps, ahead), *folding, apart)

    def on_all_threads(self, mma: Instruction, values: ThreadValues, side: OperandTile) -> ThreadValues:
        """The values with a place for every axis of threads."""
        return values

    def cost(self, mma: Instruction, copy: Copy, shape: TileShape, sides: Sides) -> CopyCost:
        """The cost of copying a tile of steps."""
        return copy.cost(mma, shape, sides, self.staged(mma, shape))

    def waits(self, mma: Instruction, shape: TileShape) -> int:
        """Loads that a thread waits for one after the other, to copy a tile of steps."""
        return 1

    def fillings(self, shape: TileShape, stages: int, extents: Extents) -> int:
        """The number of times that the pipeline of stages is refilled, while nothing else runs."""
        return 1

    @property
    def converting(self) -> bool:
        """True if copies hold what they convert in registers."""
        return False

    # -- blocks

    def blocks(self, shape: TileShape, extents: Extents) -> int:
        """Blocks of the grid."""
        return shape.grid(extents)

    def units(self, shape: TileShape) -> int:
        """Columns of a block that are neighbours."""
        return shape.block_columns

    def order(self, mma: Instruction, shape: TileShape, extents: Extents, wave: int, cache: int) -> Order:
        """The order of blocks, and the bytes that a wave of them reads from DRAM for a tile of steps."""
        grid = Grid(
            ceil(extents.rows / shape.block_rows),
            ceil(extents.columns / shape.block_columns),
            extents.count,
            ceil(extents.steps / shape.steps),
            shape.block_rows * shape.steps * shape.itemsize * extents.left.reads,
            shape.block_columns * shape.steps * shape.itemsize * extents.right.reads,
        )
        return grid.best(wave, cache)

    def finding_stages(self, shape: TileShape, stages: int) -> float:
        """Cycles of an SM in which warps find the stage of a tile, beyond what is counted for every tile."""
        return 0.0


@dataclass(frozen=True)
class Gemm(_Operands):
    """A product of matrices; `by_columns`: the right one's columns are neighbours, where it is copied as it is."""

    by_columns: bool = False

    def is_contiguous(self, side: OperandTile) -> bool:
        """True if an operand's steps are neighbours in memory."""
        return not (side.along_x and self.by_columns)


@dataclass(frozen=True)
class ImplicitGemm(_Operands):
    """A convolution: threads along z have pixels of another row of the image, which are on one side of the product.

    Where the image is `padded` a pixel is loaded under a branch, and waited for there, unless it is asked for ahead, or
    factors in memory are `halves`: such a pixel comes through a register, and many are loaded together. Where factors
    are rounded pixels may be `wide`, copied four at a time; `by_channels`: their channels are neighbours, and in shared
    memory.
    """

    pixels_left: bool = False
    padded: bool = False
    halves: bool = False
    wide: bool = False
    by_channels: bool = False
    axes: ClassVar[tuple[str, str]] = ("y", "x")
    interleaved: ClassVar[bool] = False
    uniform: ClassVar[bool] = True

    def how(self, mma: Instruction, shape: TileShape) -> str:
        """True if halves are kept, for a report."""
        return ", which are copied as they are" if self.halves and mma.keeps_halves else ""

    def is_pixels(self, side: OperandTile) -> bool:
        """True if an operand's elements are pixels."""
        return side.along_x is not self.pixels_left

    def lines(self, shape: TileShape, side: OperandTile) -> int:
        """Lines of an operand's tile: a row of the image for each z."""
        return shape.steps * (shape.threads_z if self.is_pixels(side) else 1)

    def ways(self, mma: Instruction, side: OperandTile) -> tuple[tuple[bool, bool], ...]:
        """The ways to copy an operand: if factors are rounded, filters along their neighbours, possibly in vectors."""
        if not mma.rounds:
            return WAYS
        return ((self.by_channels, self.wide),) if self.is_pixels(side) else ((False, True), (False, False))

    def staged_bytes(self, mma: Instruction, shape: TileShape) -> int:
        """Bytes in memory of a tile of steps: constant filters are float32 numbers, unless halves are kept."""
        of_pixel = HALF if self.halves else shape.itemsize
        of_filter = of_pixel if mma.keeps_halves else shape.itemsize
        pixels, filters = self._elements(mma, shape)
        return pixels * of_pixel + filters * of_filter

    def _elements(self, mma: Instruction, shape: TileShape) -> tuple[int, int]:
        """Pixels and filters' elements of a tile of steps."""
        sides = sorted(operand_tiles(mma, shape), key=self.is_pixels, reverse=True)
        pixels, filters = (side.width * self.lines(shape, side) for side in sides)
        return pixels, filters

    def thread_values(
        self, mma: Instruction, shape: TileShape, side: OperandTile, by_steps: bool, wide: bool, ahead: bool
    ) -> ThreadValues:
        """Neighbours in memory on thread.x; channels one by one, into no more lines than have banks of their own."""
        vector = shape.vector if wide else 1
        axes = ("x", "y") if by_steps else ("y", "x")
        return ThreadValues(by_steps, vector, *axes, *mma.folding(shape, side, by_steps, vector, ahead=True))

    def on_all_threads(self, mma: Instruction, values: ThreadValues, side: OperandTile) -> ThreadValues:
        """The values with a place for thread.z: pixels of rows of the image are there, and else filters."""
        if self.is_pixels(side):
            return values
        if mma.rounds:
            return replace(values, steps="yz", elements="x")
        return replace(values, elements=f"{values.elements}z")

    def cost(self, mma: Instruction, copy: Copy, shape: TileShape, sides: Sides) -> CopyCost:
        """The cost of copying a tile of steps: pixels one by one or in vectors, filters in vectors."""
        pixels, filters = self._elements(mma, shape)
        loads, stores = pixels // (shape.vector if self.wide else 1), mma.stores(shape.vector)
        each = ROUNDED + stores * self.wide if mma.rounds else ASKED if copy.asynchronous else COPIED
        count = ceil(loads / WARP) * each + ceil(filters / shape.vector / WARP) * (2 + stores)
        # rounded: a cycle for each store, of a pixel or a vector of them, of two neighbours among the filters
        storing = (loads + filters / 2) / WARP if mma.rounds else count * (shape.itemsize // FLOAT32)
        return CopyCost(count, storing)

    def waits(self, mma: Instruction, shape: TileShape) -> int:
        """Loads that a thread waits for one after the other: of a padded image each pixel, or all together.

        Pixels that are rounded, and halves, are loaded without a branch, so many together.
        """
        pixels, _ = self._elements(mma, shape)
        if mma.rounds:
            return ceil(pixels // (shape.vector if self.wide else 1) / shape.threads / WRITTEN_OUT)
        each = ceil(pixels / shape.threads)
        return ceil(each / WRITTEN_OUT) if self.halves else each if self.padded else 1

    def fillings(self, shape: TileShape, stages: int, extents: Extents) -> int:
        """Once for each value of the shorter one of two loops: elements of the window, tiles of channels."""
        return 1 if stages == 1 else min(extents.windows, ceil(extents.steps / shape.steps))

    @property
    def converting(self) -> bool:
        """True if copies hold what they convert in registers."""
        return self.halves and self.padded

    def blocks(self, shape: TileShape, extents: Extents) -> int:
        """Blocks of the grid."""
        return shape.grid(extents) * ceil(extents.deep / shape.threads_z)

    def order(self, mma: Instruction, shape: TileShape, extents: Extents, wave: int, cache: int) -> Order:
        """Row by row. What blocks read of the same pixels is counted for each of them."""
        return Order(read=wave * self.staged_bytes(mma, shape))

    def finding_stages(self, shape: TileShape, stages: int) -> float:
        """More where stages are not even and odd."""
        return (stages > 2) * TURNING * shape.threads / (WARP * SCHEDULERS)


@dataclass(frozen=True)
class Stationary(_Operands):
    """A product that runs again in each step of a loop, by blocks that stay on the GPU for all steps.

    A factor that no step changes may stay in shared memory (`holds`) with all its `depth` lines of steps, where a
    block's part of it fits beside the stages of the other. That one alone is copied in each step, so that tiles of more
    steps fit, and a block waits less often:

        for t: for k (of 16): { copy a tile of h[t];  copy a tile of u;  mac }
        ->  copy a block's part of u;  for t: for k (of 32): { copy a tile of h[t];  mac }

    Columns that are a `period` apart may be one block's (`groups`), which then has all that one unit of a later part
    reads:

        a block's columns:  0 … 31   ->   0 … 7, 512 … 519, 1024 … 1031, 1536 … 1543        four groups, 512 apart
    """

    holds: Literal["left", "right"] | None = None
    depth: int = 0
    groups: int = 1
    period: int = 0
    across_steps: ClassVar[bool] = True

    def how(self, mma: Instruction, shape: TileShape) -> str:
        """The stationary factor, and the columns of a block, for a report."""
        held = f", whose {self.holds} factor stays in shared memory" if self.holds else ""
        more = f", {self.units(shape)} columns in each of {self.groups} groups" if self.groups > 1 else ""
        return held + more

    def held(self, mma: Instruction, shape: TileShape) -> OperandTile | None:
        """The operand that stays."""
        left, right = operand_tiles(mma, shape)
        return None if self.holds is None else right if self.holds == "right" else left

    def laid_out_as(self, shape: TileShape) -> TileShape:
        """More lines are laid out alike."""
        return replace(shape, steps=4 * shape.vector)

    def lines(self, shape: TileShape, side: OperandTile) -> int:
        """Lines of steps of an operand's tile, all of them where it stays."""
        return self.depth if side.along_x == (self.holds == "right") and self.holds else shape.steps

    def staged(self, mma: Instruction, shape: TileShape) -> int:
        """Elements of a tile of steps, of the operands that are copied with each."""
        held = self.held(mma, shape)
        return sum(side.width for side in operand_tiles(mma, shape) if side != held) * shape.steps

    def blocks(self, shape: TileShape, extents: Extents) -> int:
        """Blocks of the grid."""
        if self.groups == 1:
            return shape.grid(extents)
        return ceil(extents.rows / shape.block_rows) * ceil(self.period / self.units(shape)) * extents.count

    def units(self, shape: TileShape) -> int:
        """Columns of a block in each group: those of whole threads, so many that they divide a period; 0 if none do.

        Where they do not, isl takes 15 times as long for the proofs of a kernel (28 s for 97 units, one Zen 5 core).
        """
        if self.groups == 1:
            return shape.block_columns
        most = shape.threads_x // self.groups
        fit = (
            count * shape.columns
            for count in range(most, 0, -1)
            if self.period % (count * shape.columns) == 0
        )
        return next(fit, 0)


Operands = Gemm | ImplicitGemm | Stationary

"""Shapes of register tiles for convolutions: rows or columns are pixels along two dimensions of an image.

    thread.x     columns                thread.y     rows                thread.z     the image's other dimension

With channels first columns are pixels and rows filters, with channels last the other way round: the results' neighbours
in memory are columns. A block's pixels are a patch of the image, whose window's element is staged like any factor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product as pairs
from math import ceil

from polyfuse.analysis.banks import WARP
from polyfuse.analysis.vector_access import ACCESS_BYTES
from polyfuse.machine import Gpu, Machine
from polyfuse.schedule.microkernel_verb import registers_for
from polyfuse.strategy.cuda.tiles.fma import (
    LINES,
    SCHEDULERS,
    STAGES,
    WAYS,
    Integers,
    Shape,
    Side,
    spread_for,
    threads_of,
)
from polyfuse.strategy.cuda.tiles.smem_layouts import Spreads
from polyfuse.strategy.cuda.tiles.tile_cost import costed
from polyfuse.strategy.cuda.transforms.rasterization import GRID, Order
from polyfuse.strategy.cuda.transforms.thread_copies import WRITTEN_OUT
from polyfuse.strategy.match.gemm_problem import Extents

HALF = 2
"""Bytes of a half."""

MOST_THREADS = 256
"""Threads of a block."""

COPIED = 8
"""Instructions that copy one pixel: its guard, its address, zero or the load, stores."""

TURNING = 50
"""Instructions in which a warp finds the one of four stages: 21 more than of two in windows of 1 x 1, 88 of 3 x 3."""

ASKED = 6
"""Instructions that ask for one pixel, or for zero: its guard, its address, the copy that goes on by itself."""


@dataclass(frozen=True)
class WindowShape(Shape):
    """A shape whose threads along z have pixels of another row of the image; they are on one side of the product.

    Where the image is `padded` a pixel is loaded under a branch, and waited for there, unless it is asked for ahead, or
    factors in memory are `halves`: such a pixel comes through a register, and many are loaded together.
    """

    pixels_left: bool = False
    padded: bool = False
    halves: bool = False

    @property
    def staged_bytes(self) -> int:
        """Bytes in memory of a tile of steps: constant filters are float32 numbers, unless halves are kept."""
        pixels = HALF if self.halves else self.itemsize
        filters = pixels if self.keeps_halves else self.itemsize
        sides = (self.left, self.right)
        return sum(self._elements(side) * (pixels if self.is_deep(side) else filters) for side in sides)

    @property
    def registers(self) -> int:
        """Registers a thread needs at most."""
        ahead, converting = self.stages > 1, self.halves and self.padded
        return registers_for(self.rows, self.columns, self.itemsize, self.math, ahead, converting)

    @property
    def in_vectors(self) -> bool:
        """Whether pixels are copied 16 bytes at a time: neighbours lie apart here."""
        return False

    @property
    def begun(self) -> float:
        """Copies stand before the multiply-adds: some have loops or conditions around them."""
        return 0.0

    @property
    def over(self) -> tuple[str, str]:
        """Rows on thread.y, columns on thread.x."""
        return "y", "x"

    def at_once(self, by_steps: bool) -> int:
        """Elements that a thread copies in one access, where a factor can be copied 16 bytes at a time."""
        return self.vector

    def folding(self, side: Side, by_steps: bool, vector: int) -> tuple[str, int]:
        """Channels that are neighbours, one by one, into no more lines than have banks of their own."""
        return "x", LINES if by_steps and self.threads_x > LINES else 1

    def copying(self, by_steps: bool) -> tuple[str, str]:
        """Neighbours in memory on thread.x."""
        return ("x", "y") if by_steps else ("y", "x")

    def sharing(self, side: Side, by_steps: bool) -> tuple[str, str]:
        """The axes on which a factor's copy has its steps and its other elements: rows of the image are on thread.z."""
        steps, elements = self.copying(by_steps)
        return (steps, elements) if self.is_deep(side) else (steps, f"{elements}z")

    @property
    def block_rows(self) -> int:
        """Rows of a block's results."""
        return self.threads_y * self.rows

    def starts(self, side: Side) -> Integers:
        """A warp has one z, so that it reads one row of the image."""
        _, y, x = threads_of(self)
        return x if side.along_x else y

    def blocks(self, extents: Extents) -> int:
        """Blocks of the grid."""
        return super().blocks(extents) * ceil(extents.deep / self.threads_z)

    def order(self, extents: Extents, wave: int, cache: int) -> Order:
        """Row by row. What blocks read of the same pixels is counted for each of them."""
        return Order(read=wave * self.staged_bytes)

    def is_deep(self, side: Side) -> bool:
        """Whether a side's elements are pixels."""
        return side.along_x is not self.pixels_left

    @property
    def staged(self) -> int:
        """Elements of a tile of steps, of both factors."""
        return sum(self._elements(side) for side in (self.left, self.right))

    def _elements(self, side: Side) -> int:
        return side.width * self._lines(side)

    @property
    def copies(self) -> int:
        """Instructions of all warps that copy a tile of steps: pixels one by one, filters in vectors."""
        pixels, filters = sorted((self.left, self.right), key=self.is_deep, reverse=True)
        vectors = ceil(self._elements(filters) / self.vector / WARP) * (2 + self.vector)
        return ceil(self._elements(pixels) / WARP) * (COPIED if self.stages == 1 else ASKED) + vectors

    def demands(self, machine: Machine) -> tuple[float, float]:
        """Those of any shape, and more where stages are not even and odd."""
        issue, delivered = super().demands(machine)
        return issue + (self.stages > 2) * TURNING * self.threads / (WARP * SCHEDULERS), delivered

    @property
    def waits(self) -> int:
        """Loads that a thread waits for one after the other: of a padded image each pixel, or all together."""
        pixels = ceil(self._elements(max((self.left, self.right), key=self.is_deep)) / self.threads)
        return ceil(pixels / WRITTEN_OUT) if self.halves else pixels if self.padded else 1

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block, with a row of the image for each z."""
        return (
            sum(
                max(spread_for(self, side, *way).size(self._lines(side), side.width) for way in WAYS)
                for side in (self.left, self.right)
            )
            * self.itemsize
            * self.stages
        )

    def fillings(self, extents: Extents) -> int:
        """Once for each value of the shorter one of two loops: elements of the window, tiles of channels."""
        return 1 if self.stages == 1 else min(extents.windows, ceil(extents.steps / self.steps))

    def _lines(self, side: Side) -> int:
        return self.steps * (self.threads_z if self.is_deep(side) else 1)

    def spreads(self, side: Side) -> Spreads:
        """Layouts whose lines are as far apart for any number of channels."""
        found = super().spreads(side)
        return replace(found, skips=tuple((every, skip) for every, skip in found.skips if every == 1))


@lru_cache(maxsize=64)
def window_shapes(
    extents: Extents,
    pixels_left: bool,
    padded: bool,
    itemsize: int,
    machine: Machine,
    gpu: Gpu,
    halves: bool = False,
) -> tuple[Shape, ...]:
    """The shapes that fit a convolution and a machine, the cheapest first, of equals those whose blocks have fewer rows
    of the image, each of which has addresses and guards of its own. Kept, since layers ask the same.

    `halves` are copied through registers, so that none is on its way while its thread multiplies: in one stage.
    """
    there = (replace(s, halves=halves) for s in _every(itemsize, pixels_left, padded))
    found = [s for s in there if (s.stages == 1 or not halves) and _fits(s, extents, gpu)]
    every = [costed(s, extents, machine, gpu) for s in found]
    return tuple(sorted(every, key=lambda s: (round(s.seconds, 9), s.threads_z)))


def _every(itemsize: int, pixels_left: bool, padded: bool) -> Iterator[WindowShape]:
    vector = ACCESS_BYTES // itemsize
    for (y, x), z, rows, columns, stages in pairs(
        ((4, 8), (8, 4), (8, 8), (4, 16), (16, 4), (8, 16), (16, 8)),
        (1, 2, 4, 8),
        (2 * vector, vector),
        (2 * vector, vector),
        STAGES,
    ):
        if 2 * WARP <= x * y * z <= MOST_THREADS:
            yield WindowShape(
                z,
                y,
                x,
                rows,
                columns,
                4 * vector,
                itemsize,
                stages,
                pixels_left=pixels_left,
                padded=padded,
            )


def _fits(s: WindowShape, extents: Extents, gpu: Gpu) -> bool:
    """Whether a thread has all its rows and columns somewhere, and a block fits into an SM."""
    enough = extents.rows >= s.rows and extents.columns >= s.columns and extents.deep > s.threads_z // 2
    grid = max(extents.count * ceil(extents.deep / s.threads_z), ceil(extents.rows / s.block_rows))
    return enough and grid <= GRID and s.shared_bytes <= gpu.shared_per_block and s.resident(gpu) >= 1

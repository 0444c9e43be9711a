"""Shapes of tiles for convolutions on tensor cores: a warp's pixels are of one row of the image.

    thread.x     4 lanes along the columns          thread.y     8 lanes along the rows, then further warps
    thread.z     warps of other rows of the image, on the side of the pixels

Factors are rounded once, where an element of the window is staged, and come through registers: there is one stage.
Halves of the format come the same way, bit for bit: a pixel is two bytes, and no copy that goes on by itself has fewer
than four.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product as pairs
from math import ceil

from polyfuse.analysis.banks import WARP
from polyfuse.ir.precision import Math
from polyfuse.machine import Gpu, Machine
from polyfuse.strategy.cuda.tiles.fma import Integers, Side, threads_of
from polyfuse.strategy.cuda.tiles.implicit_gemm_fma import MOST_THREADS, WindowShape
from polyfuse.strategy.cuda.tiles.mma import DEEP, FLOAT32, TensorShape, WarpShape
from polyfuse.strategy.cuda.tiles.smem_layouts import Spreads
from polyfuse.strategy.cuda.tiles.tile_cost import costed
from polyfuse.strategy.cuda.transforms.rasterization import GRID
from polyfuse.strategy.cuda.transforms.thread_copies import WRITTEN_OUT
from polyfuse.strategy.match.gemm_problem import Extents

ROUNDED = 12
"""Instructions that copy one pixel: its guards, its address, the load, rounding, stores of it or of zero."""


TILES = ((2, 16), (4, 8), (4, 16), (8, 8), (8, 14), (8, 16))
"""Rows and columns of a thread. 2 rows are 16 pixels of a warp where these are rows, 14 columns 56 of them."""


@dataclass(frozen=True)
class WarpWindow(WindowShape, WarpShape):
    """A shape of a convolution whose products run on tensor cores: where a warp's results are."""

    @property
    def block_columns(self) -> int:
        """Columns of a block's results."""
        return self.threads_x * self.columns

    def reads(self, side: Side) -> tuple[Integers, Integers]:
        """Lane 4 * g + t reads of step t its own rows, or the g-th tile of columns."""
        _, y, x = threads_of(self)
        return x, (y % 8 if side.along_x else y) * side.tile

    def folding(self, side: Side, by_steps: bool, vector: int) -> tuple[str, int]:
        """As of a warp's shape without windows."""
        return super(WindowShape, self).folding(side, by_steps, vector)

    def spreads(self, side: Side) -> Spreads:
        """Those of any warp's lines: a tile has whole fours of them (`fits`)."""
        return WarpShape.spreads(self, side)


@dataclass(frozen=True)
class TensorWindow(WarpWindow, TensorShape):
    """A shape of a convolution whose products run on tensor cores, with factors rounded to a format.

    `wide`: pixels are copied four at a time; `by_channels`: their channels are neighbours, and in shared memory.
    """

    wide: bool = False
    by_channels: bool = False

    @property
    def how(self) -> str:
        """What multiplies, for a report."""
        kept = self.halves and self.keeps_halves
        return f"{super().how}{', which are copied as they are' if kept else ''}"

    @property
    def in_vectors(self) -> bool:
        """Whether pixels are copied four at a time."""
        return self.wide

    def sharing(self, side: Side, by_steps: bool) -> tuple[str, str]:
        """Filters' steps on thread.z too."""
        return self.copying(by_steps) if self.is_deep(side) else ("yz", "x")

    @property
    def copies(self) -> int:
        """Instructions of all warps that copy a tile of steps: pixels one by one or in vectors, filters in vectors."""
        pixels, filters = (
            ceil(count / WARP) for count in (self._loads, self._elements(self._filters) / self.vector)
        )
        more = self.vector * self.held // FLOAT32 + self.vector // 2  # roundings, and stores of runs
        return pixels * (ROUNDED + more * self.wide) + filters * (2 + more)

    @property
    def _pixels(self) -> Side:
        return max((self.left, self.right), key=self.is_deep)

    @property
    def _filters(self) -> Side:
        return min((self.left, self.right), key=self.is_deep)

    @property
    def _loads(self) -> int:
        """Loads of pixels for a tile of steps."""
        return self._elements(self._pixels) // (self.vector if self.wide else 1)

    @property
    def storing(self) -> float:
        """A cycle for each store: of a pixel or a vector of them, of two neighbours among the filters."""
        return (self._loads + self._elements(self._filters) / 2) / WARP

    @property
    def waits(self) -> int:
        """Loads that a thread waits for one after the other: pixels are loaded without a branch, so many together."""
        return ceil(self._loads / self.threads / WRITTEN_OUT)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block, spread as widely as any choice does."""
        return sum(self._widest(side) for side in (self.left, self.right)) * self.held

    def _widest(self, side: Side) -> int:
        """The elements of a factor's tile: filters are copied by their neighbours, perhaps in vectors."""
        deep = self.is_deep(side)
        sizes = []
        for by_steps, wide in ((self.by_channels, self.wide),) if deep else ((False, True), (False, False)):
            of_steps, width = self.panels(side, by_steps)
            rows = (side.width if of_steps else self.steps) * (self.threads_z if deep else 1)
            sizes.append(self.spread(side, by_steps, wide).size(rows, width))
        return max(sizes)


@lru_cache(maxsize=64)
def tensor_windows(
    extents: Extents,
    pixels_left: bool,
    padded: bool,
    itemsize: int,
    machine: Machine,
    gpu: Gpu,
    halves: bool = False,
    in_vectors: bool = False,
    by_channels: bool = False,
) -> tuple[TensorWindow, ...]:
    """The shapes for a machine's `math` that fit a convolution, the cheapest first; none for sums of other numbers."""
    if itemsize != FLOAT32 or machine.math not in dict(machine.tensor):
        return ()
    every = (
        replace(s, halves=halves, wide=in_vectors, by_channels=by_channels)
        for s in _every(machine.math, pixels_left, padded)
    )
    found = [s for s in every if _is_laid_out(s) and _fits(s, extents, gpu)]
    return tuple(sorted((costed(s, extents, machine, gpu) for s in found), key=lambda s: s.seconds))


def _every(format: Math, pixels_left: bool, padded: bool) -> Iterator[TensorWindow]:
    for down, z, (rows, columns), steps in pairs((1, 2), (1, 2, 4, 8), TILES, DEEP):
        if WARP * down * z <= MOST_THREADS:
            yield TensorWindow(
                z,
                8 * down,
                4,
                rows,
                columns,
                steps,
                FLOAT32,
                format=format,
                pixels_left=pixels_left,
                padded=padded,
            )


def _is_laid_out(s: TensorWindow) -> bool:
    """Whether a tile has a layout in which no access waits for a bank: lines of tf32 numbers are read in vectors."""
    if s.rows == 2:
        return s.pixels_left and s.by_channels and s.steps > DEEP[0]
    if s.columns == 14:
        return s.format != "tf32" and not (s.pixels_left or s.wide or s.by_channels)
    return True


def _fits(s: TensorWindow, extents: Extents, gpu: Gpu) -> bool:
    """Whether a block fits, and all its lanes have pixels where these lie behind each other in panels of steps.

    Such a lane may read what no thread has copied, but not what is not there.
    """
    in_lines = s.format == "tf32" and not s.by_channels
    pixels = extents.rows - s.block_rows if s.pixels_left else extents.columns - s.block_columns
    there = not s.by_channels or pixels >= 0
    return there and fits(s, extents, gpu, max(extents.steps, 0 if in_lines else DEEP[0]))


def fits(s: WarpWindow, extents: Extents, gpu: Gpu, most: int | None = None) -> bool:
    """Whether all warps of a block have pixels, and it fits into an SM, with `most` steps or those that there are.

    Lines lie in fours, which the next row of an image with fewer channels than a tile has steps would not begin with.
    """
    enough = extents.deep >= s.threads_z and s.steps <= (extents.steps if most is None else most)
    enough = enough and extents.rows > s.block_rows // 2 and extents.columns > s.block_columns // 2
    grid = max(extents.count * ceil(extents.deep / s.threads_z), ceil(extents.rows / s.block_rows))
    return enough and grid <= GRID and s.shared_bytes <= gpu.shared_per_block and s.resident(gpu) >= 1

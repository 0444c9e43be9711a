"""Shapes of tiles for tensor cores: a warp's results are rows of 8 lanes times columns of 4.

    thread.x     4 lanes along the columns          thread.y     8 lanes along the rows, then further warps
    thread.z     further warps along the columns

The product runs in mma.sync instructions (codegen/tensor_operations.py); the rest is that of other register tiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product as pairs
from math import ceil

from polyfuse.analysis.banks import WARP
from polyfuse.analysis.neighbours import ACCESS_BYTES
from polyfuse.ir.precision import PRECISIONS, Math
from polyfuse.ir.tree import Spread
from polyfuse.machine import Gpu, Machine
from polyfuse.strategy.register_shapes import (
    SCHEDULERS,
    SHARED_BYTES,
    STAGES,
    Extents,
    Integers,
    Shape,
    Side,
    costed,
    threads_of,
)

ITEMSIZE = 4
"""Bytes of a factor's elements in memory: float32, whatever they are rounded to."""

SYNCHRONOUS = 0.63
"""The part of Hopper's peak that mma.sync reaches: 62.9 % on average (Luo et al., "Benchmarking and Dissecting the
Nvidia Hopper GPU Architecture via Microbenchmarking", 2024, section on tensor cores); older ones reach all of it."""

LINES = 4
"""Lines of steps that the lanes of one row read at once."""


@dataclass(frozen=True)
class TensorShape(Shape):
    """A shape whose products run on tensor cores, with factors rounded to a format."""

    format: Math = "tf32"

    @property
    def math(self) -> Math:
        """What factors are rounded to."""
        return self.format

    @property
    def how(self) -> str:
        """What multiplies, for a report."""
        return f" by tensor cores on {self.math} factors"

    @property
    def over(self) -> tuple[str, str]:
        """Rows on thread.y, columns on thread.z and thread.x."""
        return "y", "zx"

    def copying(self, by_steps: bool) -> tuple[str, str]:
        """A quarter of a warp's row copies neighbours."""
        return ("x", "yz") if by_steps else ("yz", "x")

    @property
    def block_rows(self) -> int:
        """Rows of a block's results."""
        return self.threads_y * self.rows

    @property
    def block_columns(self) -> int:
        """Columns of a block's results."""
        return self.threads_z * self.threads_x * self.columns

    @property
    def left(self) -> Side:
        """The factor with the rows, of which a lane reads its own."""
        return Side(self.block_rows, self.rows, False)

    @property
    def right(self) -> Side:
        """The factor with the columns, of which a lane reads half a thread's."""
        return Side(self.block_columns, self.columns // 2, True)

    def reads(self, side: Side) -> tuple[Integers, Integers]:
        """Lane 4 * g + t reads of step t its own rows, or the g-th tile of columns of its warp."""
        z, y, x = threads_of(self)
        return x, (z * 8 + y % 8 if side.along_x else y) * side.tile

    def spreads(self, side: Side) -> list[Spread]:
        """The layouts to choose from: the four lines of a row's lanes may be skipped apart."""
        v = self.vector
        skips = [(1, 0), *((every, n) for every in (1, 2, LINES) for n in range(v, WARP + 1, v))]
        return [Spread(side.tile, v, gap, *skip) for gap in range(0, WARP, v) for skip in skips]

    def demands(self, machine: Machine) -> tuple[float, float]:
        """Cycles of an SM for a tile's products: the tensor cores' or, if they wait for these, all instructions'."""
        warps, precision = self.threads // WARP, PRECISIONS[self.format]
        lines = self.steps // LINES
        read = self.rows + self.columns // 2
        products = self.rows // 2 * (self.columns // 2) * ceil(self.steps / precision.steps)
        loads = read // self.vector * lines
        roundings = read * lines * 8 // precision.steps
        issue = ((products + loads + roundings + 20) * warps + self.copies) / SCHEDULERS
        flops = 2 * self.block_rows * self.block_columns * self.steps
        rate = dict(machine.tensor)[self.format] / (machine.flops32 / (2 * 128))
        assert machine.gpu is not None, "tensor cores are a GPU's"
        reached = SYNCHRONOUS if machine.gpu.compute_capability >= (9, 0) else 1.0
        delivered = loads * warps * WARP * ACCESS_BYTES / SHARED_BYTES
        return max(issue, flops / (rate * reached)), delivered


def tensor_shapes(extents: Extents, itemsize: int, machine: Machine, gpu: Gpu) -> list[TensorShape]:
    """The shapes for a machine's `math` that fit a product, the cheapest first; none for other than float32 sums."""
    if itemsize != ITEMSIZE or machine.math not in dict(machine.tensor):
        return []
    every = (s for s in _every(machine.math) if s.stages == 1 or extents.wide)
    return sorted(
        (costed(s, extents, machine, gpu) for s in every if _fits(s, extents, gpu)), key=lambda s: s.seconds
    )


def _every(format: Math) -> Iterator[TensorShape]:
    for (warps_down, warps_across), (rows, columns), stages in pairs(
        ((1, 1), (1, 2), (2, 2), (2, 4), (4, 2)), ((4, 8), (8, 8), (8, 16)), STAGES
    ):
        yield TensorShape(warps_across, 8 * warps_down, 4, rows, columns, 16, ITEMSIZE, stages, format=format)


def _fits(s: TensorShape, extents: Extents, gpu: Gpu) -> bool:
    """Whether every lane of a block has results somewhere, and a block fits into an SM."""
    enough = extents.rows >= s.block_rows and extents.columns >= s.block_columns
    return enough and s.shared_bytes <= gpu.shared_per_block and s.resident(gpu) >= 1

"""Shapes of tiles for tensor cores: a warp's results are rows of 8 lanes times columns of 4.

    thread.x     4 lanes along the columns          thread.y     8 lanes along the rows, then further warps
    thread.z     further warps along the columns

The product runs in mma.sync instructions (mma_tile.py); the rest is that of other register tiles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, replace
from itertools import product as pairs
from math import ceil
from typing import Any

from polyfuse.analysis.banks import WARP
from polyfuse.analysis.vector_access import ACCESS_BYTES
from polyfuse.ir.precision import STEPS, STORED, Math
from polyfuse.ir.tensor import ITEMSIZE
from polyfuse.ir.tree import Spread
from polyfuse.machine import Gpu, Machine
from polyfuse.strategy.cuda.tiles.fma import (
    SCHEDULERS,
    SHARED_BYTES,
    WAYS,
    Integers,
    Shape,
    Side,
    spread_for,
    threads_of,
)
from polyfuse.strategy.cuda.tiles.ldmatrix_layouts import Staged, laid_out
from polyfuse.strategy.cuda.tiles.smem_layouts import Spreads
from polyfuse.strategy.cuda.tiles.tile_cost import costed
from polyfuse.strategy.match.gemm_problem import Extents

FLOAT32 = 4
"""Bytes of a factor's elements in memory: float32, whatever they are rounded to."""

SYNCHRONOUS = 0.63
"""The part of Hopper's peak that mma.sync reaches: 62.9 % on average (Luo et al., "Benchmarking and Dissecting the
Nvidia Hopper GPU Architecture via Microbenchmarking", 2024, section on tensor cores); older ones reach all of it."""

LINES = 4
"""Lines of steps that the lanes of one row read at once."""

DEEP = (16, 32, 64)
"""How many steps may be staged at a time: with more of them the latency of a tile is covered by more products."""


@dataclass(frozen=True)
class WarpShape(Shape):
    """A shape whose products run on tensor cores: where a warp's results are, and which lane reads what."""

    format: Math = "tf32"

    @property
    def math(self) -> Math:
        """What the tensor cores multiply."""
        return self.format

    @property
    def over(self) -> tuple[str, str]:
        """Rows on thread.y, columns on thread.z and thread.x."""
        return "y", "zx"

    @property
    def in_pairs(self) -> bool:
        """Instructions say which lane has what."""
        return False

    def at_once(self, by_steps: bool) -> int:
        """Elements that a thread copies in one access, where a factor can be copied 16 bytes at a time."""
        return self.vector

    def folding(self, side: Side, by_steps: bool, vector: int) -> tuple[str, int]:
        """Each thread's neighbour on thread.x copies its neighbour in memory, without more ado."""
        return "y", 1

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

    def spreads(self, side: Side) -> Spreads:
        """The layouts to choose from: the four lines of a row's lanes may be skipped apart."""
        v = self.vector
        skips = ((1, 0), *((every, n) for every in (1, 2, LINES) for n in range(v, WARP + 1, v)))
        return Spreads(side.tile, v, tuple(range(0, WARP, v)), skips)


@dataclass(frozen=True)
class TensorShape(WarpShape):
    """A shape with factors rounded to a format."""

    @property
    def keeps_halves(self) -> bool:
        """Whether factors in memory may be of the format already."""
        return self.held < FLOAT32

    @property
    def how(self) -> str:
        """What multiplies, for a report."""
        return f" by tensor cores on {self.math} factors"

    def folding(self, side: Side, by_steps: bool, vector: int) -> tuple[str, int]:
        """As many on thread.y as the layout that was found has."""
        if not by_steps and self.format == "tf32":
            return "y", 1
        return "y", laid_out(self.staged_side(side), by_steps, vector)[0]

    @property
    def held(self) -> int:
        """Bytes of a factor's element in shared memory."""
        return ITEMSIZE[STORED[self.format]]

    def panels(self, side: Side, by_steps: bool) -> tuple[bool, int]:
        """Rows of steps where these are neighbours in memory."""
        return by_steps, self.steps if by_steps else side.width

    def spread(self, side: Side, by_steps: bool, wide: bool) -> Spread:
        """As ldmatrix reads it, or where it cannot, in lines of tf32 numbers."""
        if not by_steps and self.format == "tf32":
            return spread_for(replace(self, steps=DEEP[0]), side, by_steps, wide)  # lines are laid out alike
        return laid_out(self.staged_side(side), by_steps, self.vector if wide else 1)[1]

    def laid_out(self, side: Side, by_steps: bool, wide: bool) -> Mapping[str, Any]:
        """Rounded once, where it is staged."""
        return {"spread": astuple(self.spread(side, by_steps, wide)), "rounded": self.format}

    def staged_side(self, side: Side) -> Staged:
        """A factor's tile."""
        own, lanes = (self.columns, 4) if side.along_x else (self.rows, 8)
        return Staged(self.steps, side.width, own, lanes, self.held)

    def demands(self, machine: Machine) -> tuple[float, float]:
        """Cycles of an SM for a tile's products: the tensor cores' or, if they wait for these, all instructions'."""
        warps, instructions = self.threads // WARP, self.steps // STEPS[self.format]
        products = self.rows // 2 * (self.columns // 2) * instructions
        loads = (self.rows // 2 + self.columns // 4) * instructions
        issue = ((products + loads + 20) * warps + self.copies) / SCHEDULERS
        flops = 2 * self.threads * self.rows * self.columns * self.steps
        rate = dict(machine.tensor)[self.format] / (machine.flops32 / (2 * 128))
        assert machine.gpu is not None, "tensor cores are a GPU's"
        reached = SYNCHRONOUS if machine.gpu.compute_capability >= (9, 0) else 1.0
        delivered = loads * warps * WARP * ACCESS_BYTES / SHARED_BYTES
        return max(issue, flops / (rate * reached)), delivered

    @property
    def copies(self) -> int:
        """Instructions of all warps that copy a tile of steps: a load, addresses, roundings, stores of runs."""
        roundings = self.vector * self.held // FLOAT32
        return ceil(self.staged / self.vector / WARP) * (2 + roundings + self.vector // 2)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block, all stages of both factors, spread as widely as any choice does."""
        return self.stages * sum(self._most_bytes(side) for side in (self.left, self.right))

    def _most_bytes(self, side: Side) -> int:
        sizes = []
        for by_steps, wide in WAYS:
            of_steps, width = self.panels(side, by_steps)
            rows = side.width if of_steps else self.steps
            sizes.append(self.spread(side, by_steps, wide).size(rows, width) * self.held)
        return max(sizes)


def tensor_shapes(extents: Extents, itemsize: int, machine: Machine, gpu: Gpu) -> list[TensorShape]:
    """The shapes for a machine's `math` that fit a product, the cheapest first; none for other than float32 sums."""
    if itemsize != FLOAT32 or machine.math not in dict(machine.tensor):
        return []
    every = _every(machine.math)
    return sorted(
        (costed(s, extents, machine, gpu) for s in every if fits(s, extents, gpu)), key=lambda s: s.seconds
    )


def _every(format: Math) -> Iterator[TensorShape]:
    for (down, across), (rows, columns), steps in pairs(
        ((1, 1), (1, 2), (2, 2), (2, 4), (4, 2)), ((4, 8), (8, 8), (8, 16)), DEEP
    ):
        yield TensorShape(across, 8 * down, 4, rows, columns, steps, FLOAT32, format=format)


def fits(s: WarpShape, extents: Extents, gpu: Gpu) -> bool:
    """Whether every lane of a block has results somewhere, a tile its steps, and a block fits into an SM."""
    enough = extents.rows >= s.block_rows and extents.columns >= s.block_columns
    enough = enough and s.steps <= max(DEEP[0], extents.steps)
    return enough and s.shared_bytes <= gpu.shared_per_block and s.resident(gpu) >= 1

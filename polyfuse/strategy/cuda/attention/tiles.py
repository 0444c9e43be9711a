"""Tiles of attention's kernel on a GPU: queries and keys of a block, results of a thread, expected cost.

    time = launch + waves × (blocks of keys × max(resident blocks × busy, wait) + LATENCY) + what is written
    busy = longest + EXPOSED × the others, of: instructions / 4 a cycle, shared memory's bytes / 128 a cycle,
           the SM's share of the bytes from L2
    wait = busy + LATENCY × tiles that are loaded one after the other

All are cycles of one SM and one block of keys; the two products are two shapes of register tiles with the same threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product as pairs
from math import ceil, log2

from polyfuse.analysis.banks import WARP
from polyfuse.analysis.vector_access import ACCESS_BYTES
from polyfuse.errors import quantity
from polyfuse.ir.precision import Math
from polyfuse.layouts import Layout, SmemLayout
from polyfuse.machine import Gpu, GpuMachine
from polyfuse.measure import duration
from polyfuse.schedule.microkernel_verb import MOST_REGISTERS, registers_for
from polyfuse.strategy.cost.gpu_cycles import LATENCY, hertz
from polyfuse.strategy.cost.occupancy import occupancy
from polyfuse.strategy.cuda.tiles.mma import Fma
from polyfuse.strategy.cuda.tiles.smem_layouts import Panel
from polyfuse.strategy.cuda.tiles.tile import ThreadblockTile
from polyfuse.strategy.cuda.tiles.tile_copies import ThreadCopy
from polyfuse.strategy.cuda.tiles.tile_shape import (
    EXPOSED,
    SCHEDULERS,
    SHARED_BYTES,
    OperandTile,
    TileShape,
    threads_of,
)
from polyfuse.strategy.match.attention import ROW, OneKernel

STEPS = 16
"""Steps of a product that are written out."""

OF_A_SCORE = 26
"""Instructions for one score beside its products and what is written for it: maximum, exponential, sum, store. As
compiled for sm_90 (CUDA 13), whose exponential has nine of them and whose maximum, which keeps NaN, four."""

OF_A_DOUBLE = (46, 14)
"""The same for a score in float64: instructions at a full rate, and multiply-adds of its exponential, at float64's."""

OF_AN_EXCHANGE = 6
"""Instructions of one step of a maximum's exchange between lanes and of a sum's."""

OF_A_ROW = 30
"""Instructions for a row of a block of keys: what it had before, its correction, its place in shared memory."""

EXCHANGING = Fma(paired=False)
"""Multiply-adds of threads: lanes of a row, which exchange what they find of it, are neighbours."""


@dataclass(frozen=True)
class Sizes:
    """Attention's sizes: queries, keys, steps of a score, columns of a result, how many there are of it.

    `written` are the operations that are written for a score between its product and its maximum, `stored` the bytes
    of a key's number in memory.
    """

    rows: int
    keys: int
    steps: int
    columns: int
    count: int
    written: int = 0
    stored: int = 4


@dataclass(frozen=True)
class Panels:
    """The axis of a buffer that is in panels, their width, and their layout."""

    along: str
    width: int
    layout: Layout


@dataclass(frozen=True)
class PassShape:
    """Threads of a block and results of a thread of both products; once costed, the seconds expected, and why."""

    scores: ThreadblockTile
    results: ThreadblockTile
    seconds: float = field(default=0.0, compare=False)
    issuing: float = field(default=0.0, compare=False)
    moving: float = field(default=0.0, compare=False)
    why: str = field(default="", compare=False)

    @property
    def name(self) -> str:
        """What tells it from other shapes, as a wish calls it (polyfuse.strategy.candidates)."""
        return f"{self.rows} queries x {self.keys} keys, {type(self.scores.mma).__name__}"

    @property
    def rows(self) -> int:
        """Queries of a block."""
        return self.scores.shape.block_rows

    @property
    def keys(self) -> int:
        """Keys of a block."""
        return self.scores.shape.block_columns

    @property
    def registers(self) -> int:
        """Registers a thread needs: what scores need, and the tile of results, which stays meanwhile."""
        a, b = self.scores.shape, self.results.shape
        return registers_for(a.rows, a.columns, a.itemsize) + a.itemsize // 4 * b.rows * b.columns

    def queries(self, steps: int) -> ThreadblockTile:
        """The tile of queries, with all its steps."""
        return self.scores.sized(steps=steps)

    def values(self) -> ThreadblockTile:
        """The tile of values, with all keys of a block as its steps."""
        return self.results.sized(steps=self.keys)

    def shared_bytes(self, steps: int) -> int:
        """Shared memory of a block: queries, keys, values, exponentials, and four numbers a row."""
        a, b = self.queries(steps), self.values()
        panels = (
            a.layout(a.left, True, True).size(steps, a.left.width),
            a.layout(a.right, True, True).size(steps, a.right.width),
            b.layout(b.right, False, True).size(self.keys, b.right.width),
            exponentials_spread(self).size(self.keys, b.left.width),
        )
        return (sum(panels) + 4 * self.rows) * self.scores.shape.itemsize

    @property
    def math(self) -> Math:
        """The format to which factors are rounded."""
        return self.scores.math

    @property
    def narrowed(self) -> Math | None:
        """The format to which exponentials are rounded as factors of the second product; None if they are not."""
        return None

    def exponentials(self) -> Panels:
        """The layout of exponentials in shared memory."""
        return Panels(ROW, self.rows, exponentials_spread(self))

    def beside(self, sizes: Sizes, machine: GpuMachine) -> float:
        """Instructions of a thread in a block of keys that are no products'."""
        a, b = self.scores.shape, self.results.shape
        of_a_score = OF_A_SCORE if a.itemsize == 4 else OF_A_DOUBLE[0] + rate_of(a, machine) * OF_A_DOUBLE[1]
        exchanges = a.rows * OF_AN_EXCHANGE * log2(a.threads_x)
        return a.rows * (a.columns * (of_a_score + sizes.written) + b.columns + OF_A_ROW) + exchanges

    def issued(self, sizes: Sizes, machine: GpuMachine, at_once: int) -> float:
        """Cycles of an SM in which a block of keys is issued, with so many of its schedulers at work."""
        a, b = self.scores.shape, self.results.shape
        fma = rate_of(a, machine) * a.rows * (a.columns * sizes.steps + b.columns * self.keys)
        loads = (a.rows + a.columns) / a.vector * sizes.steps + (b.rows + b.columns) / b.vector * self.keys
        copies = ceil(self.copied(sizes) / a.vector / WARP) * (2 + a.vector)
        return ((fma + loads + self.beside(sizes, machine)) * self.warps + copies) / at_once

    def delivered(self, sizes: Sizes) -> float:
        """Cycles in which shared memory delivers a block of keys and takes its exponentials and copies."""
        a = self.scores.shape
        factors = sum(
            self.warps * STEPS * tiles * (_delivered(tile, tile.left) + _delivered(tile, tile.right))
            for tile, tiles in ((self.scores, sizes.steps / STEPS), (self.results, self.keys / STEPS))
        )
        stored = a.itemsize // 2 * a.rows * a.columns * self.warps
        return factors + stored + self.copied(sizes) * a.itemsize / SHARED_BYTES

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return self.scores.shape.warps

    def copied(self, sizes: Sizes) -> int:
        """Elements of a block of keys, and of its values."""
        return self.keys * (sizes.steps + sizes.columns)

    def sentences(self, one: OneKernel) -> tuple[str, ...]:
        """Sentences on the choice and its reasons, for a report."""
        a, b, steps = self.scores.shape, self.results.shape, one.extent(one.scores, one.scores.steps[0])
        return (
            f"{one.scores.statement} and {one.results.statement} in one kernel: "
            f"blocks of {self.rows} rows, {self.keys} keys at a time, "
            f"{a.threads_z} × {a.threads_y} × {a.threads_x} threads of {a.rows} × {a.columns} scores and "
            f"{b.rows} × {b.columns} results{self.scores.how} in {self.shared_bytes(steps)} bytes of shared memory, "
            f"{self.registers} registers planned; {self.why}",
        )


def pass_shapes(sizes: Sizes, itemsize: int, machine: GpuMachine, gpu: Gpu) -> list[PassShape]:
    """The shapes that fit, the cheapest first."""
    return cheapest_first(_every(itemsize, sizes.columns), sizes, machine, gpu)


def cheapest_first(
    every: Iterable[PassShape], sizes: Sizes, machine: GpuMachine, gpu: Gpu
) -> list[PassShape]:
    """The shapes that fit, with their expected costs, the cheapest first."""
    fit = (s for s in every if _fits(s, sizes, gpu))
    return sorted((_costed(s, sizes, machine, gpu) for s in fit), key=lambda s: s.seconds)


def _every(itemsize: int, columns: int) -> Iterator[PassShape]:
    """Rows of lanes that have all columns of a result, as few for each of them as may be."""
    vector = ACCESS_BYTES // itemsize
    for z, x, rows, keys in pairs((1, 2, 4), (8, 16), (vector, 2 * vector), (vector, 2 * vector)):
        own = next((n for n in (vector, 2 * vector) if n * x >= columns), None)
        if own is not None:
            shape = TileShape(z, 4, x, rows, keys, STEPS, itemsize)
            tile = ThreadblockTile(shape, EXCHANGING, ThreadCopy())
            yield PassShape(tile, tile.sized(columns=own))


def _fits(s: PassShape, sizes: Sizes, gpu: Gpu) -> bool:
    """True if blocks are whole, two at least of keys, a thread has all its columns, and an SM room for a block.

    Guards within tiles cost registers: blocks of 32 rows by 32 and 64 keys of 300 each spill 200 to 500 bytes on sm_80.
    """
    whole = (
        sizes.rows % s.rows == 0 and sizes.keys % s.keys == 0 and sizes.columns % s.results.shape.columns == 0
    )
    enough = whole and sizes.keys >= 2 * s.keys and s.registers <= MOST_REGISTERS
    return enough and s.shared_bytes(sizes.steps) <= gpu.shared_per_block and _resident(s, sizes, gpu) >= 1


def _resident(s: PassShape, sizes: Sizes, gpu: Gpu) -> int:
    return occupancy(gpu, s.scores.shape.threads, s.registers, s.shared_bytes(sizes.steps)).blocks


def _costed(s: PassShape, sizes: Sizes, machine: GpuMachine, gpu: Gpu) -> PassShape:
    """A shape with what the model expects of it."""
    cycles, a = hertz(machine), s.scores.shape
    blocks = ceil(sizes.rows / s.rows) * sizes.count
    resident = min(_resident(s, sizes, gpu), ceil(blocks / machine.units))
    cache = machine.levels[0]
    read = s.copied(sizes) * sizes.stored
    needs = {
        "instructions": s.issued(sizes, machine, min(SCHEDULERS, s.warps * resident)),
        "shared memory": s.delivered(sizes),
        "L2": read * machine.units * cycles / machine.bandwidth(cache, machine.units),
    }
    what = max(needs, key=lambda name: needs[name])
    busy = needs[what] + EXPOSED * (sum(needs.values()) - needs[what])
    wait = busy + 2 * LATENCY
    block = max(resident * busy, wait)
    waves, passes = ceil(blocks / (machine.units * resident)), ceil(sizes.keys / s.keys)
    written = sizes.count * sizes.rows * sizes.columns * a.itemsize
    end = written / machine.bandwidth(machine.levels[-1], min(blocks, machine.units))
    seconds = machine.launch_seconds + waves * (passes * block + 2 * LATENCY) / cycles + end
    every = waves * passes * resident / cycles
    parts = ", ".join(f"{value:.0f} of {name}" for name, value in needs.items())
    why = (
        f"{duration(seconds)} expected: {quantity(blocks, 'block')}, {resident} on an SM, "
        f"{quantity(waves, 'wave')} of {quantity(passes, 'block')} of keys of {block:.0f} cycles "
        f"({parts} a block; {'latency' if wait > resident * busy else what} decides)"
    )
    issuing = every * max(needs["instructions"], needs["shared memory"])
    return replace(s, seconds=seconds, issuing=issuing, moving=every * needs["L2"] + end, why=why)


def _delivered(tile: ThreadblockTile, side: OperandTile) -> float:
    """Cycles in which a warp's elements of one step are delivered."""
    return EXCHANGING.delivered(tile.shape, side)


def rate_of(shape: TileShape, machine: GpuMachine) -> float:
    """The time of a multiply-add as a multiple of one in float32."""
    return 1.0 if shape.itemsize == 4 else machine.flops32 / machine.flops64


@cache
def exponentials_spread(s: PassShape) -> SmemLayout:
    """The layout of exponentials with the fewest bank conflicts of threads that store and multiply them."""
    tile = s.values()
    side, shape = tile.left, tile.shape
    z, y, x = threads_of(shape, in_pairs=False)
    rows = (z * shape.threads_y + y) * shape.rows

    panel = Panel(s.keys, side.width, shape.itemsize)
    keys = range(s.scores.shape.columns)
    stored = [panel.access(x * len(keys) + key, rows, shape.itemsize) for key in keys]
    return panel.least_waiting(
        EXCHANGING.spreads(shape, side, uniform=False),
        (panel.access(*EXCHANGING.reads(shape, side), ACCESS_BYTES), *stored),
    )

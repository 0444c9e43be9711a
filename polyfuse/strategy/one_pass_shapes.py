"""Shapes of attention's kernel on a GPU: queries and keys of a block, results of a thread, what the model expects.

    time = launch + waves × (blocks of keys × max(resident blocks × busy, wait) + LATENCY) + what is written
    busy = longest + EXPOSED × the others, of: instructions / 4 a cycle, shared memory's bytes / 128 a cycle,
           the SM's share of the bytes from L2
    wait = busy + LATENCY × tiles that are loaded one after the other

All are cycles of one SM and one block of keys; the two products are two shapes of register tiles with the same threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product as pairs
from math import ceil, log2

from polyfuse.analysis.banks import WARP, least_waiting, waits
from polyfuse.analysis.neighbours import ACCESS_BYTES
from polyfuse.ir.precision import Math
from polyfuse.ir.tree import Spread
from polyfuse.machine import Gpu, Machine
from polyfuse.schedule.microkernel import MOST_REGISTERS, registers_for
from polyfuse.strategy.cost import microseconds
from polyfuse.strategy.occupancy import occupancy
from polyfuse.strategy.one_pass_roles import OneKernel
from polyfuse.strategy.register_shapes import (
    EXPOSED,
    LATENCY,
    SCHEDULERS,
    SHARED_BYTES,
    Shape,
    delivered,
    hertz,
    positions,
    spread_for,
    threads_of,
)

STEPS = 16
"""Steps of a product that are written out."""

OF_A_SCORE = 26
"""Instructions for one score beside its products and what is written for it: maximum, exponential, sum, store. As
compiled for sm_90 (CUDA 13), whose exponential has nine of them and whose maximum, which keeps NaN, four."""

OF_AN_EXCHANGE = 6
"""Instructions of one step of a maximum's exchange between lanes and of a sum's."""

OF_A_ROW = 30
"""Instructions for a row of a block of keys: what it had before, its correction, its place in shared memory."""


@dataclass(frozen=True)
class Sizes:
    """Attention's sizes: queries, keys, steps of a score, columns of a result, how many there are of it.

    `written` are the operations that are written for a score between its product and its maximum.
    """

    rows: int
    keys: int
    steps: int
    columns: int
    count: int
    written: int = 0


@dataclass(frozen=True)
class PassShape:
    """Threads of a block and results of a thread of both products; once costed, the seconds expected, and why."""

    scores: Shape
    results: Shape
    seconds: float = field(default=0.0, compare=False)
    issuing: float = field(default=0.0, compare=False)
    moving: float = field(default=0.0, compare=False)
    why: str = field(default="", compare=False)

    @property
    def rows(self) -> int:
        """Queries of a block."""
        return self.scores.block_rows

    @property
    def keys(self) -> int:
        """Keys of a block."""
        return self.scores.block_columns

    @property
    def registers(self) -> int:
        """Registers a thread needs: what scores need, and the tile of results, which stays meanwhile."""
        a, b = self.scores, self.results
        return registers_for(a.rows, a.columns, a.itemsize) + b.rows * b.columns

    def queries(self, steps: int) -> Shape:
        """The tile of queries, with all its steps."""
        return replace(self.scores, steps=steps)

    def values(self) -> Shape:
        """The tile of values, with all keys of a block as its steps."""
        return replace(self.results, steps=self.keys)

    def shared_bytes(self, steps: int) -> int:
        """Shared memory of a block: queries, keys, values, exponentials, and four numbers a row."""
        a, b = self.queries(steps), self.values()
        panels = (
            spread_for(a, a.left, True, True).size(steps, a.block_rows),
            spread_for(a, a.right, True, True).size(steps, a.block_columns),
            spread_for(b, b.right, False, True).size(self.keys, b.block_columns),
            exponentials_spread(self).size(self.keys, b.block_rows),
        )
        return (sum(panels) + 4 * self.rows) * self.scores.itemsize

    @property
    def math(self) -> Math:
        """What factors are rounded to."""
        return "ieee"

    def sentences(self, one: OneKernel) -> tuple[str, ...]:
        """What was chosen and why, for a report."""
        a, b, steps = self.scores, self.results, one.extent(one.scores, one.scores.steps[0])
        return (
            f"{one.scores.statement} and {one.results.statement} in one kernel: "
            f"blocks of {self.rows} rows, {self.keys} keys at a time, "
            f"{a.threads_z} × {a.threads_y} × {a.threads_x} threads of {a.rows} × {a.columns} scores and "
            f"{b.rows} × {b.columns} results in {self.shared_bytes(steps)} bytes of shared memory, "
            f"{self.registers} registers planned; {self.why}",
        )


def pass_shapes(sizes: Sizes, itemsize: int, machine: Machine, gpu: Gpu) -> list[PassShape]:
    """The shapes that fit, the cheapest first."""
    fit = (s for s in _every(itemsize, sizes.columns) if _fits(s, sizes, gpu))
    return sorted((_costed(s, sizes, machine, gpu) for s in fit), key=lambda s: s.seconds)


def _every(itemsize: int, columns: int) -> Iterator[PassShape]:
    """Rows of lanes that have all columns of a result, as few for each of them as may be."""
    vector = ACCESS_BYTES // itemsize
    for z, x, rows, keys in pairs((1, 2, 4), (8, 16), (vector, 2 * vector), (vector, 2 * vector)):
        own = next((n for n in (vector, 2 * vector) if n * x >= columns), None)
        if own is not None:
            tile = Shape(z, 4, x, rows, keys, STEPS, itemsize)
            yield PassShape(tile, replace(tile, columns=own))


def _fits(s: PassShape, sizes: Sizes, gpu: Gpu) -> bool:
    """Whether blocks are whole, two at least of keys, a thread has all its columns, and an SM room for a block.

    Guards within tiles cost registers: blocks of 32 rows by 32 and 64 keys of 300 each spill 200 to 500 bytes on sm_80.
    """
    whole = sizes.rows % s.rows == 0 and sizes.keys % s.keys == 0 and sizes.columns % s.results.columns == 0
    enough = whole and sizes.keys >= 2 * s.keys and s.registers <= MOST_REGISTERS
    return enough and s.shared_bytes(sizes.steps) <= gpu.shared_per_block and _resident(s, sizes, gpu) >= 1


def _resident(s: PassShape, sizes: Sizes, gpu: Gpu) -> int:
    return occupancy(gpu, s.scores.threads, s.registers, s.shared_bytes(sizes.steps)).blocks


def _costed(s: PassShape, sizes: Sizes, machine: Machine, gpu: Gpu) -> PassShape:
    """A shape with what the model expects of it."""
    cycles, a, b = hertz(machine), s.scores, s.results
    warps = a.threads // WARP
    blocks = ceil(sizes.rows / s.rows) * sizes.count
    resident = min(_resident(s, sizes, gpu), ceil(blocks / machine.units))
    of_scores, of_results = sizes.steps / STEPS, s.keys / STEPS
    copied = s.keys * (sizes.steps + sizes.columns)
    copies = ceil(copied / a.vector / WARP) * (2 + a.vector)
    fma = a.rows * (a.columns * sizes.steps + b.columns * s.keys)
    loads = (a.rows + a.columns) / a.vector * sizes.steps + (b.rows + b.columns) / b.vector * s.keys
    beside: float = a.rows * (a.columns * (OF_A_SCORE + sizes.written) + b.columns + OF_A_ROW)
    beside += a.rows * OF_AN_EXCHANGE * log2(a.threads_x)
    shared = sum(
        warps * STEPS * tiles * (delivered(shape, shape.left) + delivered(shape, shape.right))
        for shape, tiles in ((a, of_scores), (b, of_results))
    )
    cache = machine.levels[0]
    needs = {
        "instructions": ((fma + loads + beside) * warps + copies) / min(SCHEDULERS, warps * resident),
        "shared memory": shared + 2 * a.rows * a.columns * warps + copied * a.itemsize / SHARED_BYTES,
        "L2": copied * a.itemsize * machine.units * cycles / machine.bandwidth(cache, machine.units),
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
        f"{microseconds(seconds)} expected: {blocks} blocks, {resident} on an SM, {waves} "
        f"{'wave' if waves == 1 else 'waves'} of {passes} blocks of keys of {block:.0f} cycles "
        f"({parts} a block; {'latency' if wait > resident * busy else what} decides)"
    )
    issuing = every * max(needs["instructions"], needs["shared memory"])
    return replace(s, seconds=seconds, issuing=issuing, moving=every * needs["L2"] + end, why=why)


@cache
def exponentials_spread(s: PassShape) -> Spread:
    """Where exponentials lie, so that threads that store them and those that multiply them wait least for banks."""
    shape = s.values()
    side, (z, y, x) = shape.left, threads_of(shape)
    rows = (z * shape.threads_y + y) * shape.rows

    def turns(spread: Spread) -> int:
        read = positions(spread, *shape.reads(side), side.width) * shape.itemsize
        total = waits(read.reshape(-1, WARP), ACCESS_BYTES)
        for key in range(s.scores.columns):
            at = positions(spread, x * s.scores.columns + key, rows, side.width) * shape.itemsize
            total += waits(at.reshape(-1, WARP), shape.itemsize)
        return total

    options = sorted(shape.spreads(side), key=lambda o: o.size(s.keys, side.width))
    return least_waiting(options, turns)

"""Shapes of tiles for warpgroups whose factors one instruction copies a box at a time, as they are in memory.

    by steps     64 steps of up to 256 rows are a box          lines of 128 bytes are rows, 64 steps each
    by columns   64 columns of 64 steps are a box              lines are steps, 64 columns each, in panels

of halves; numbers of tf32 come by steps alone, 32 of them a line.

No thread has an address or a guard of a copy: one asks for boxes (tma_boxes.py), which lie swizzled
(swizzle.py). What is in a line is in the order of memory, so a block's rows and columns are dealt out as an
instruction has them, not in tiles of neighbours: of 64 rows a thread has two that are 8 apart, of 8 columns it has two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product as pairs
from math import ceil
from typing import Any, TypeVar

from polyfuse.analysis.banks import WARP
from polyfuse.analysis.storage import buffers_of, geometry
from polyfuse.ir.precision import STORED, Math
from polyfuse.ir.tensor import ITEMSIZE
from polyfuse.ir.tree import BULK, parts
from polyfuse.layouts.core_matrix import CORE_ROWS, INSTRUCTION_ROWS
from polyfuse.layouts.swizzle import BARRIER_BYTES, LINE_BYTES, MOST_ALONG
from polyfuse.machine import Gpu, Machine
from polyfuse.schedule import Schedule
from polyfuse.schedule.microkernel_verb import DEALT_OTHERS, warpgroup_registers
from polyfuse.schedule.promote.tma_boxes import BulkCopy, bulk_copy
from polyfuse.strategy.cuda.tiles.fma import SHARED_BYTES, Shape, Side
from polyfuse.strategy.cuda.tiles.tile_cost import costed
from polyfuse.strategy.cuda.tiles.wgmma import fits, has_warpgroups
from polyfuse.strategy.cuda.tiles.wgmma_cp_async import STAGES, KeptShape
from polyfuse.strategy.match.gemm_problem import Extents
from polyfuse.strategy.transforms.band_verbs import inside

OWN = ""
"""In place of an axis: a thread's own."""

Dealt = tuple[tuple[str, int], ...]
"""Digits of an index, the outermost first: whose each is, an axis' or a thread's own, and what it stands for."""

BOX_LATENCY = 1500
"""Cycles in which a box comes where all SMs ask for some, beside what L2 takes: with two stages tiles of 128 × 128 and
of 128 × 256 by 64 steps took 1200 and 2700 cycles (products of 4096, H200), 1550 and 2020 by it."""

ASKING = 12
"""Instructions of the warp that asks for a box: coordinates, the bytes to expect, the copy."""

AWAITING = 16
"""Instructions of a warp that waits for a group of boxes."""


@dataclass(frozen=True)
class BulkShape(KeptShape):
    """A shape whose factors are copied in boxes of `line` neighbours."""

    @property
    def how(self) -> str:
        """What multiplies, for a report."""
        return f"{super().how}, a box by one instruction (tensor maps)"

    @property
    def place(self) -> str:
        """What runs a box's loop."""
        return BULK[0]

    @property
    def line(self) -> int:
        """Elements of a line."""
        return LINE_BYTES // self.held

    @property
    def dealt(self) -> tuple[Dealt, Dealt]:
        """As instructions have them (PTX ISA, "Matrix Fragments for wgmma"): 16 rows a warp, two of them a thread."""
        rows = (("y", INSTRUCTION_ROWS // 4), (OWN, CORE_ROWS), ("y", 1))
        return rows, (("z", 4 * self.columns), (OWN, CORE_ROWS), ("x", 2), (OWN, 1))

    def panels(self, side: Side, by_steps: bool) -> tuple[bool, int]:
        """Panels of lines, of steps or of what are neighbours along the results."""
        return by_steps, self.line

    def laid_out(self, side: Side, by_steps: bool, wide: bool) -> Mapping[str, Any]:
        """In lines, as they are."""
        return {"cores": "swizzled", "rounded": self.format}

    @property
    def exposed(self) -> float:
        """Nothing: no thread copies, and products go on meanwhile (4096 × 4096 by 4096 in tiles of 128 × 128 and four
        stages took 258 µs on an H200, 249 by what L2 delivers).
        """
        return 0.0

    def ahead(self, latency: float, copied: float, multiplied: float) -> float:
        """A slot's round trip: asked for, filled, multiplied; with two stages one tile's boxes are on their way."""
        return (BOX_LATENCY + copied + multiplied) / self.stages

    @property
    def storing(self) -> float:
        """Cycles of shared memory in which what was asked for arrives."""
        return self.staged * self.held / SHARED_BYTES

    @property
    def registers(self) -> int:
        """Registers a thread needs at most."""
        return warpgroup_registers(self.rows, self.columns, DEALT_OTHERS)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block: all stages of both factors, and the barriers."""
        return self.stages * (self.staged * self.held + BARRIER_BYTES)

    @property
    def copies(self) -> int:
        """Instructions of all warps that ask for a tile of steps and wait for one."""
        boxes = (ceil(side.width / (MOST_ALONG if by_steps else self.line)) for side, by_steps in self.sides)
        return ASKING * sum(boxes) + AWAITING * self.threads // WARP


def dealt(s: Shape) -> tuple[Dealt, Dealt]:
    """How a block's rows, and its columns, are dealt out: each thread's own are neighbours, but of bulk shapes."""
    if isinstance(s, BulkShape):
        return s.dealt
    found = list[Dealt]()
    for axes, size in zip(s.over, (s.block_rows, s.block_columns), strict=True):
        digits = list[tuple[str, int]]()
        for axis in axes:
            size //= s.on(axis)  # what is left of it
            digits.append((axis, size))
        found.append((*digits, (OWN, 1)))
    return found[0], found[1]


def in_boxes(
    schedule: Schedule, copy: str, loops: tuple[str, str], by_steps: bool, shape: BulkShape
) -> tuple[Schedule, BulkCopy]:
    """A copy whose loops (steps, elements along the results) one instruction runs, a box at a time; and a box.

    for e0: for e1: load   ->   for e1 (panels of 64): for e0 (bulk, or bulk.warp): for e1_in: load

    Raises InvalidSchedule where they are no boxes.
    """
    step, element = loops
    line, fine = (element, step) if by_steps else (step, element)
    others = [x.name for x in schedule.loops(copy) if len(x.dates) == 1 and x.name not in loops]
    schedule = schedule.split(copy, line, MOST_ALONG).split(copy, fine, shape.line)
    box = [inside(schedule, copy, each).name for each in (line, fine)]
    schedule = schedule.reorder(copy, *others, line, fine, *box)
    schedule = schedule.unroll(copy, line).unroll(copy, fine).bind(copy, **{box[0]: shape.place})
    kernel = next(part for part in parts(schedule.tree) if copy in part.members)
    held = {b.tensor: geometry(schedule.nest, kernel, loop, b) for loop, b in buffers_of(kernel)}
    top = next(x for x in schedule.loops(copy) if x.bind in BULK)
    _, made = bulk_copy(schedule.nest, kernel, top, held, None)
    return schedule, made


def bulk_shapes(extents: Extents, format: Math, machine: Machine, gpu: Gpu) -> list[BulkShape]:
    """The shapes that fit a product and a machine, unsorted; none where factors are rounded on their way."""
    if extents.kept is None or not has_warpgroups(gpu, format):
        return []
    every = every_bulk(BulkShape, format, extents.kept == "columns")
    return [costed(s, extents, machine, gpu) for s in every if fits(s, extents, gpu)]


AnyBulk = TypeVar("AnyBulk", bound=BulkShape)


def every_bulk(kind: type[AnyBulk], format: Math, turned: bool) -> Iterator[AnyBulk]:
    """Of one instruction's rows each."""
    for (down, across), columns, stages in pairs(((1, 1), (1, 2), (2, 1)), (16, 32, 64), STAGES):
        size = ITEMSIZE[STORED[format]]
        steps = LINE_BYTES // size
        yield kind(across, 32 * down, 4, 2, columns, steps, size, stages, format=format, turned=turned)

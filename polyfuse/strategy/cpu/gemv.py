"""Schedule products of one row (GEMV): a network at batch 1, a vector times a matrix.

    for k: for j: y[j] += x[k] * w[k, j]
    ->  for j (pieces of `columns`): for k (microkernel): for j_in: y[j] += x[k] * w_panels[j, k, j_in]

Nothing is used twice but the row, so that no tile of rows helps: the matrix goes by once. What can be saved are the
loads and stores of the sums, which stay in registers, and vectors of the matrix that lie across two cache lines: a
constant one is packed once for all calls, into panels that begin with a line and are read in order. 8 × Linear(64) +
ReLU took 1.10 µs with the caller's arrays and 0.83 with panels (one core of a Xeon, in the kernel).
"""

from __future__ import annotations

from dataclasses import dataclass

from polyfuse.analysis.once import is_constant
from polyfuse.errors import IllegalSchedule, InvalidSchedule
from polyfuse.ir.tree import Loop
from polyfuse.machine import CpuMachine
from polyfuse.schedule import Schedule
from polyfuse.strategy.match.gemm import Product, products_of
from polyfuse.strategy.transforms.band_verbs import constant_extent, inside, reordered
from polyfuse.strategy.transforms.packing import packed_once

STEPS = 4
"""Steps of the loops that a row would run in otherwise; they load and store each sum once for all of them."""

VECTORS = (8, 4, 2, 1)
"""Vectors of sums in registers: eight keep the multipliers busy, of fewer the kernel makes several sets."""

ENTRY = 20
"""Cycles before a piece's first sums are added and after its last ones."""


@dataclass(frozen=True)
class RowProduct:
    """A product of one row on a machine: its loops' values, and whether the matrix is packed once for all calls."""

    steps: int
    columns: int
    itemsize: int
    fixed: bool
    machine: CpuMachine

    @property
    def lanes(self) -> int:
        """Numbers in a vector."""
        return self.machine.vector_bytes // self.itemsize

    def in_pieces(self, width: int) -> float:
        """Seconds in pieces of `width` columns: multiply-adds and a load for each, or the matrix from its cache."""
        vectors = self.steps * self.columns / self.lanes
        issued = self.machine.cycle * (vectors / self.machine.multiply_adds + ENTRY * self.columns / width)
        return max(issued, self._stream(width))

    def in_loops(self) -> float:
        """Seconds in loops over steps and columns: each sum is loaded and stored once for a few steps."""
        vectors = self.steps * self.columns / self.lanes
        issued = self.machine.cycle * vectors * (1 + 2 / STEPS) / self.machine.multiply_adds
        return max(issued, self._stream(self.columns))

    def _stream(self, width: int) -> float:
        """The matrix read once; in pieces of rows that lie apart no prefetcher follows beyond L2."""
        size = self.steps * self.columns * self.itemsize
        level = self.machine.level(size)
        apart = width < self.columns and not self.fixed and level not in self.machine.levels[:2]
        return size * (4.0 if apart else 1.0) / self.machine.reading(level, 1.0)

    def width(self) -> int | None:
        """The columns of a piece that take least; None if loops are faster, or no piece is whole vectors."""
        widths = [v * self.lanes for v in VECTORS if self.columns % (v * self.lanes) == 0]
        best = min(widths, key=self.in_pieces, default=None)
        return best if best is not None and self.in_pieces(best) <= self.in_loops() else None


def in_one_row(
    schedule: Schedule, name: str, loops: tuple[Loop, ...], steps: Loop, vector: Loop, machine: CpuMachine
) -> Schedule | None:
    """A product's loops over steps and columns as microkernels of a row; None if it is none, or does not pay."""
    known = (p for p in products_of(schedule.nest, name) if len(p.steps) == 1 and not p.across)
    product, size = next(known, None), constant_extent(schedule, vector)
    count = constant_extent(schedule, steps)
    if product is None or product.right.computed or not size or not count:
        return None
    tensor = product.right.access.tensor
    fixed = is_constant(schedule.nest, schedule.tree, tensor)
    itemsize = schedule.nest.tensor(tensor).itemsize
    width = RowProduct(count, size, itemsize, fixed, machine).width()
    if width is None:
        return None
    try:
        return _in_pieces(schedule, product, loops, steps, vector, width, fixed)
    except (IllegalSchedule, InvalidSchedule):
        return None


def _in_pieces(
    schedule: Schedule,
    product: Product,
    loops: tuple[Loop, ...],
    steps: Loop,
    vector: Loop,
    width: int,
    fixed: bool,
) -> Schedule:
    name, inner = product.statement, vector.name
    outer = [loop.name for loop in loops if loop not in (steps, vector)]
    if constant_extent(schedule, vector) != width:
        schedule = schedule.split(name, vector.name, width)
        inner = inside(schedule, name, vector.name).name
        outer.append(vector.name)
    schedule = reordered(schedule, name, (*outer, steps.name, inner))
    if fixed:
        panel = product.right.axes[product.columns], width
        schedule = packed_once(schedule, product.right.name, name, panel)
    return schedule.microkernel(name, steps.name)

"""A tile's sizes: threads of a block, results of a thread, operand tiles, and each thread's share of their copies.

    block of results     rows of threads times a thread's rows      columns of threads times a thread's columns
    operands             left: the block's rows by steps            right: steps by the block's columns

The other parts of a tile (tile.py) answer their questions for one of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

import numpy as np
import numpy.typing as npt

from polyfuse.analysis.banks import WARP
from polyfuse.analysis.paired_lanes import paired
from polyfuse.analysis.vector_access import ACCESS_BYTES
from polyfuse.strategy.match.gemm_problem import Extents

Integers = npt.NDArray[np.int64]

SCHEDULERS = 4
"""Instructions of a warp that an SM issues in a cycle."""

SHARED_BYTES = 128
"""Bytes that an SM's shared memory delivers in a cycle."""

EXPOSED = 0.25
"""The part of what does not decide a tile's time that is not hidden behind it, where threads copy and multiply. By it
products in register tiles take 1.01 to 1.10 times what is expected (1024 to 8192, H200)."""

WRITTEN_OUT = 8
"""Iterations of a copy's loop that are unrolled at most."""

OWN = ""
"""In place of an axis: a thread's own."""

Digits = tuple[tuple[str, int], ...]
"""Digits of an index, the outermost first: the axis that each is on, or a thread's own, and its place value."""


@dataclass(frozen=True)
class OperandTile:
    """One operand's tile in shared memory: elements along the results, how many a thread reads, and which operand."""

    width: int
    tile: int
    along_x: bool


@dataclass(frozen=True)
class TileShape:
    """Threads of a block, results of a thread, steps that are staged at a time, and bytes of an element in memory.

    `axes` are those that a block's rows are on, the outer ones first, and those of its columns.
    """

    threads_z: int
    threads_y: int
    threads_x: int
    rows: int
    columns: int
    steps: int
    itemsize: int
    axes: tuple[str, str] = ("zy", "x")

    @property
    def vector(self) -> int:
        """Elements of the widest access."""
        return ACCESS_BYTES // self.itemsize

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.threads_z * self.threads_y * self.threads_x

    @property
    def warps(self) -> int:
        """Whole warps of a block."""
        return self.threads // WARP

    @property
    def block_rows(self) -> int:
        """Rows of a block's results."""
        return prod(map(self.on, self.axes[0])) * self.rows

    @property
    def block_columns(self) -> int:
        """Columns of a block's results."""
        return prod(map(self.on, self.axes[1])) * self.columns

    def on(self, axis: str) -> int:
        """Threads along an axis."""
        return {"z": self.threads_z, "y": self.threads_y, "x": self.threads_x}[axis]

    def is_whole(self, extents: Extents) -> bool:
        """True if none of a product's tiles is cut short."""
        sides = zip(
            (extents.rows, extents.columns, extents.steps),
            (self.block_rows, self.block_columns, self.steps),
            strict=True,
        )
        return all(size % tile == 0 for size, tile in sides)

    def digits(self) -> tuple[Digits, Digits]:
        """The digits by which a block's rows, and its columns, are distributed to threads whose own are contiguous."""
        found = list[Digits]()
        for axes, size in zip(self.axes, (self.block_rows, self.block_columns), strict=True):
            digits = list[tuple[str, int]]()
            for axis in axes:
                size //= self.on(axis)  # what is left of it
                digits.append((axis, size))
            found.append((*digits, (OWN, 1)))
        return found[0], found[1]

    def grid(self, extents: Extents) -> int:
        """Tiles of results that a product has."""
        across = ceil(extents.rows / self.block_rows) * ceil(extents.columns / self.block_columns)
        return across * extents.count


def threads_of(shape: TileShape, in_pairs: bool) -> tuple[Integers, ...]:
    """(z, y, x) of every thread of a block, in the order of its warps' lanes, perhaps paired (paired_lanes.py)."""
    z, y, x = (each.ravel() for each in np.indices((shape.threads_z, shape.threads_y, shape.threads_x)))
    x, y = paired(x, y, shape.threads_x) if in_pairs else (x, y)
    return z, y, x


@dataclass(frozen=True)
class ThreadValues:
    """The elements of an operand's tile that each thread copies: a thread-value layout.

    A thread copies `vector` neighbours in one access: of steps (`by_steps`) or of elements along the results. Accesses
    along the steps are on the axes `steps`, others on the axes `elements`, the inner ones first. Of the threads on the
    axis `folds` the innermost `folded` go on with neighbours in memory, whatever else is on that axis; a thread copies
    `apart` accesses before its neighbour on thread.x goes on.
    """

    by_steps: bool
    vector: int
    steps: str
    elements: str
    folds: str = "y"
    folded: int = 1
    apart: int = 1

    def gap(self, axis: str) -> int:
        """Accesses along the results that one thread does before its neighbour on an axis goes on."""
        return self.apart if axis == "x" else 1

    def starts(self, shape: TileShape, threads: tuple[Integers, ...]) -> tuple[Integers, Integers]:
        """The first step of each thread's copies, and the first of the other elements, both in accesses."""
        numbers = dict(zip("zyx", threads, strict=True))
        step, element = _Along(self.steps), _Along(self.elements)
        fine, coarse = (step, element) if self.by_steps else (element, step)
        for along in (fine, coarse):
            for axis in along.axes:
                number, count = numbers[axis], shape.on(axis)
                if axis == self.folds and self.folded > 1:
                    fine.add(number % self.folded, self.folded)
                    coarse.add(number // self.folded, count // self.folded)
                else:
                    along.stride *= self.gap(axis)
                    along.add(number, count)
        zero = 0 * threads[0]
        return zero + step.first, zero + element.first


class _Along:
    """The first access along one dimension, digit after digit, the inner ones first."""

    def __init__(self, axes: str) -> None:
        self.axes, self.stride = axes, 1
        self.first: Integers = np.zeros(1, np.int64)

    def add(self, number: Integers, count: int) -> None:
        """Count a digit: a thread's number of so many."""
        self.first = self.first + number * self.stride
        self.stride *= count

"""Layouts of factors that ldmatrix reads, by enumeration: no read of a matrix and no store of a copy waits for a bank.

    rows      panels of steps: a row's steps are neighbours, rows follow each other, some elements are skipped
              after a thread's rows
    columns   panels of rows or columns, one line a step: of each tile the first one (or two), then the second …

Both as `polyfuse.codegen.cuda.proofs.fragment_layouts` wants them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from polyfuse.analysis.banks import WARP, least_waiting, waits
from polyfuse.analysis.vector_access import ACCESS_BYTES
from polyfuse.ir.tree import Spread

Integers = npt.NDArray[np.int64]

EIGHT = 8
"""Rows of a matrix."""

SKIPS = 8
"""Sixteenths of the banks that are tried as gaps: all there are."""


@dataclass(frozen=True)
class Staged:
    """A factor's tile: steps, elements along the results, a thread's of these, and lanes that have them.

    `part` are those of a thread that follow each other in one of the matrix's rows: half of the columns.
    """

    steps: int
    width: int
    own: int
    lanes: int
    itemsize: int

    @property
    def part(self) -> int:
        """Elements of a thread in a tile of eight in a warp."""
        return self.own * self.lanes // EIGHT

    @property
    def neighbours(self) -> int:
        """Elements of 16 bytes."""
        return ACCESS_BYTES // self.itemsize


@cache
def laid_out(s: Staged, by_steps: bool, vector: int) -> tuple[int, Spread]:
    """How many neighbours on thread.y copy neighbours in memory, `vector` each, as four on thread.x do; and a layout.

    Of those in which reads and stores wait least, the one with the longest rows of neighbours, then the smallest.
    """
    neighbours = s.steps if by_steps else s.width
    ways = (Stores(by_steps, vector, n) for n in (8, 4, 2, 1) if n == 1 or 4 * vector * n <= neighbours)
    pairs = ((stores, _spread_of(s, stores)) for stores in ways)
    stores, spread = least_waiting(pairs, lambda pair: turns_of(s, *pair))
    return stores.folded, spread


@dataclass(frozen=True)
class Stores:
    """How a warp's lanes store a copy: along the steps or not, so many neighbours each, folded lanes of thread.y.

    All accesses of a copy are shifted alike, and so are all reads of matrices: the first ones tell of all.
    """

    by_steps: bool
    vector: int
    folded: int

    @property
    def places(self) -> tuple[Integers, Integers]:
        """(step, element along the results) of each lane's first neighbour."""
        x, y = np.arange(WARP) % 4, np.arange(WARP) // 4
        fine, other = (y % self.folded * 4 + x) * self.vector, y // self.folded
        return (fine, other) if self.by_steps else (other, fine)


def _spread_of(s: Staged, stores: Stores) -> Spread:
    """The layout in which reads and stores wait least; of equals the smallest."""
    gaps = range(0, SKIPS * s.neighbours, s.neighbours)
    if stores.by_steps:
        options = [Spread(s.steps, s.steps, 0, s.part, skip) for skip in gaps]
    else:
        options = [Spread(s.own, EIGHT // s.lanes, gap, 1, skip) for gap in gaps for skip in gaps]
    options.sort(key=lambda o: _size_of(s, o, stores.by_steps))
    return least_waiting(options, lambda o: turns_of(s, stores, o))


def _size_of(s: Staged, spread: Spread, by_steps: bool) -> int:
    """The elements of a tile in a layout."""
    return spread.size(s.width, s.steps) if by_steps else spread.size(s.steps, s.width)


def turns_of(s: Staged, stores: Stores, spread: Spread) -> int:
    """The turns that a warp's read of four matrices, and a copy's store, wait for banks."""
    by_steps = stores.by_steps
    row, q = np.arange(WARP) % EIGHT, np.arange(WARP) // EIGHT
    step = q % 2 * s.neighbours + (0 if by_steps else row)
    along = row * s.part + q // 2 if by_steps else q // 2 * (EIGHT // s.lanes)
    steps, elements = stores.places
    there = (steps < s.steps) & (elements < s.width)
    run = min(stores.vector, s.steps if by_steps else spread.vector)
    stored = _turns(s, spread, by_steps, steps, elements, run * s.itemsize, there)
    return _turns(s, spread, by_steps, step, along, ACCESS_BYTES) + stored


def _turns(
    s: Staged,
    spread: Spread,
    by_steps: bool,
    step: Integers,
    along: Integers,
    nbytes: int,
    there: npt.NDArray[np.bool_] | None = None,
) -> int:
    rows, inside, width = (along, step, s.steps) if by_steps else (step, along, s.width)
    part, tile = inside % spread.tile // spread.vector, inside // spread.tile
    place = part * spread.part(width) + tile * spread.vector + inside % spread.vector
    place = (place + rows * spread.row(width) + rows // spread.every * spread.skip) * s.itemsize
    if there is not None:
        place = np.where(there, place, -1)
    return waits(place.reshape(-1, WARP), nbytes)

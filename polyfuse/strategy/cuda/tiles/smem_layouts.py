"""Choose layouts of operands in shared memory by enumeration: those with the fewest bank conflicts.

lines       panels of one line a step, spread apart                              multiply-adds of threads, float64
fragments   rows of steps, or lines, where ldmatrix reads matrices of 8 rows     mma.sync
cores       core matrices of 8 rows of 16 bytes, with gaps                       wgmma
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product as pairs

import numpy as np
import numpy.typing as npt

from polyfuse.analysis.banks import WARP, Integers, least_waiting, least_waiting_of_many, waits, waits_of_each
from polyfuse.analysis.vector_access import ACCESS_BYTES
from polyfuse.layouts.core_matrix import CoreMatrixLayout, Digit
from polyfuse.layouts.smem import SmemLayout
from polyfuse.strategy.cuda.tiles.tile_shape import OperandTile, ThreadValues, TileShape, threads_of

WAYS = ((True, True), (True, False), (False, True), (False, False))
"""The ways to copy an operand: along its steps or not, 16 bytes at a time or not."""

EIGHT = 8
"""Rows of a matrix that ldmatrix reads."""

SKIPS = 8
"""Sixteenths of the banks that are tried as gaps: all there are."""

# -- lines -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spreads:
    """The layouts to choose from: each gap with each pair of `every` and `skip`; all have one tile and one vector."""

    tile: int
    vector: int
    gaps: tuple[int, ...]
    skips: tuple[tuple[int, int], ...]

    def each(self) -> tuple[SmemLayout, ...]:
        """All of them."""
        return tuple(
            SmemLayout(self.tile, self.vector, gap, *skip) for gap in self.gaps for skip in self.skips
        )


@dataclass(frozen=True)
class Access:
    """The row and the place along it (int32) at which each of a block's threads begins in a panel, -1 for nowhere."""

    rows: bytes
    along: bytes
    nbytes: int


@dataclass(frozen=True)
class Panel:
    """So many rows of so many elements of so many bytes each.

    Many shapes of tiles have the same panels and accesses: each is looked at once.
    """

    rows: int
    width: int
    itemsize: int

    def access(self, rows: Integers, along: Integers, nbytes: int) -> Access:
        """Threads that begin there; those beyond the panel take no part."""
        inside = np.where((along >= self.width) | (rows >= self.rows), -1, along)
        return Access(rows.astype(np.int32).tobytes(), inside.astype(np.int32).tobytes(), nbytes)

    def waits(self, spreads: Sequence[SmemLayout], access: Access) -> Integers:
        """The turns that an access waits for banks, in each of several layouts with the same tiles and vectors."""
        rows, along = (np.frombuffer(each, np.int32).astype(int) for each in (access.rows, access.along))
        found = _positions(spreads, rows, along, self.width) * self.itemsize
        found[:, along < 0] = -1
        return waits_of_each(found.reshape(len(spreads), -1, WARP), access.nbytes)

    def least_waiting(self, spreads: Spreads, accesses: tuple[Access, ...]) -> SmemLayout:
        """The first of the layouts in which accesses wait least for banks, by enumeration; of equals the smallest."""
        return _least_waiting(self, spreads, accesses)


@cache
def _least_waiting(panel: Panel, spreads: Spreads, accesses: tuple[Access, ...]) -> SmemLayout:
    def waits(some: Sequence[SmemLayout]) -> Integers:
        return sum((panel.waits(some, access) for access in accesses), np.zeros(len(some), int))

    return least_waiting_of_many(_smallest_first(panel, spreads), waits)


@cache
def _smallest_first(panel: Panel, spreads: Spreads) -> tuple[SmemLayout, ...]:
    return tuple(sorted(spreads.each(), key=lambda spread: spread.size(panel.rows, panel.width)))


def _positions(spreads: Sequence[SmemLayout], rows: Integers, along: Integers, width: int) -> Integers:
    """The positions of a panel's elements in each of several layouts with the same tiles and vectors."""
    ((tile, vector),) = {(spread.tile, spread.vector) for spread in spreads}
    each = np.array([(o.row(width), o.every, o.skip, o.part(width)) for o in spreads])
    row, every, skip, part = each.T[:, :, None]
    inside = along % tile // vector * part + along // tile * vector + along % vector
    found: Integers = rows * row + rows // every * skip + inside
    return found


# -- fragments ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FragmentTile:
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
def ldmatrix_layout(s: FragmentTile, by_steps: bool, vector: int) -> tuple[int, SmemLayout]:
    """The neighbours on thread.y that copy neighbours in memory, `vector` each, as four on thread.x do; and a layout.

    Of those in which reads and stores wait least, the one with the longest rows of neighbours, then the smallest.
    """
    neighbours = s.steps if by_steps else s.width
    ways = (Stores(by_steps, vector, n) for n in (8, 4, 2, 1) if n == 1 or 4 * vector * n <= neighbours)
    pairs = ((stores, _fragment_spread(s, stores)) for stores in ways)
    stores, spread = least_waiting(pairs, lambda pair: turns_of(s, *pair))
    return stores.folded, spread


@dataclass(frozen=True)
class Stores:
    """A copy's stores by a warp's lanes: along the steps or not, so many neighbours each, folded lanes of thread.y.

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


def _fragment_spread(s: FragmentTile, stores: Stores) -> SmemLayout:
    """The layout in which reads and stores wait least; of equals the smallest."""
    gaps = range(0, SKIPS * s.neighbours, s.neighbours)
    if stores.by_steps:
        options = [SmemLayout(s.steps, s.steps, 0, s.part, skip) for skip in gaps]
    else:
        options = [SmemLayout(s.own, EIGHT // s.lanes, gap, 1, skip) for gap in gaps for skip in gaps]
    options.sort(key=lambda o: _fragment_size(s, o, stores.by_steps))
    return least_waiting(options, lambda o: turns_of(s, stores, o))


def _fragment_size(s: FragmentTile, spread: SmemLayout, by_steps: bool) -> int:
    """The elements of a tile in a layout."""
    return spread.size(s.width, s.steps) if by_steps else spread.size(s.steps, s.width)


def turns_of(s: FragmentTile, stores: Stores, spread: SmemLayout) -> int:
    """The turns that a warp's read of four matrices, and a copy's store, wait for banks."""
    by_steps = stores.by_steps
    row, q = np.arange(WARP) % EIGHT, np.arange(WARP) // EIGHT
    step = q % 2 * s.neighbours + (0 if by_steps else row)
    along = row * s.part + q // 2 if by_steps else q // 2 * (EIGHT // s.lanes)
    steps, elements = stores.places
    there = (steps < s.steps) & (elements < s.width)
    run = min(stores.vector, s.steps if by_steps else spread.vector)
    stored = _fragment_waits(s, spread, by_steps, steps, elements, run * s.itemsize, there)
    return _fragment_waits(s, spread, by_steps, step, along, ACCESS_BYTES) + stored


def _fragment_waits(
    s: FragmentTile,
    spread: SmemLayout,
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


# -- core matrices -----------------------------------------------------------------------------------------------------


@cache
def core_matrices(
    shape: TileShape, side: OperandTile, values: ThreadValues, held: int, turned: bool
) -> CoreMatrixLayout:
    """The core matrices into which a copy's stores wait least for banks, by enumeration; of equals the smallest.

    Elements are of `held` bytes; `turned` says that the rows of a core are steps. Reads need no choice: a core matrix
    of 128 bytes in a row has every bank once.
    """
    options = sorted(
        every_core_matrix(shape, side, held, turned), key=lambda o: o.size(shape.steps, side.width)
    )
    return least_waiting(options, lambda o: copy_waits(shape, side, values, held, o))


def every_core_matrix(
    shape: TileShape, side: OperandTile, held: int, turned: bool
) -> Iterator[CoreMatrixLayout]:
    """The core matrices to choose from: how far they lie apart."""
    lanes, beside = (4, shape.columns // 2) if side.along_x else (8, 2)
    depth = ACCESS_BYTES // held
    gaps = [depth * n for n in (0, 1, 2, 4)]
    for gap, apart, skip in pairs(gaps[:3], gaps if side.tile > 2 and not side.along_x else (0,), gaps):
        yield CoreMatrixLayout(side.tile, lanes, beside, depth, gap, apart, skip, turned)


def copy_waits(
    shape: TileShape, side: OperandTile, values: ThreadValues, held: int, cores: CoreMatrixLayout
) -> int:
    """The turns that a copy's stores wait for banks, the first tile of each loop."""
    lanes = values.vector
    steps, elements = values.starts(shape, threads_of(shape, in_pairs=False))
    if values.by_steps:
        return _core_waits(shape, side, cores, steps * lanes, elements, held, lanes)
    if cores.turned:
        return _core_waits(shape, side, cores, steps, elements * lanes, held, lanes)
    return sum(
        _core_waits(shape, side, cores, steps, elements * lanes + lane, held, 1) for lane in range(lanes)
    )


def _core_waits(
    shape: TileShape,
    side: OperandTile,
    cores: CoreMatrixLayout,
    steps: Integers,
    along: Integers,
    held: int,
    count: int,
) -> int:
    """The turns that stores of `count` neighbours each wait."""
    found = _digits(steps, cores.along_steps(side.width)) + _digits(along, cores.along_results(side.width))
    found = np.where((along >= side.width) | (steps >= shape.steps), -1, found * held)
    return waits(found.reshape(-1, WARP), count * held) if (found >= 0).any() else 0


def _digits(values: Integers, digits: tuple[Digit, ...]) -> Integers:
    """The sum of value // divisor % modulus * weight."""
    total = 0 * values
    for digit in digits:
        part = values // digit.divisor
        total += (part if digit.modulus is None else part % digit.modulus) * digit.weight
    return total

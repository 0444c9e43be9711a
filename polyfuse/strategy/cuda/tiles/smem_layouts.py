"""How panels of a factor lie in a GPU's shared memory: the layouts there are, and the one whose accesses wait least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from polyfuse.analysis.banks import WARP, Integers, least_waiting_of_many, waits_of_each
from polyfuse.ir.tree import Spread


@dataclass(frozen=True)
class Spreads:
    """The layouts to choose from: each gap with each pair of `every` and `skip`; all have one tile and one vector."""

    tile: int
    vector: int
    gaps: tuple[int, ...]
    skips: tuple[tuple[int, int], ...]

    def each(self) -> tuple[Spread, ...]:
        """All of them."""
        return tuple(Spread(self.tile, self.vector, gap, *skip) for gap in self.gaps for skip in self.skips)


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

    def waits(self, spreads: Sequence[Spread], access: Access) -> Integers:
        """The turns that an access waits for banks, in each of several layouts with the same tiles and vectors."""
        rows, along = (np.frombuffer(each, np.int32).astype(int) for each in (access.rows, access.along))
        found = _positions(spreads, rows, along, self.width) * self.itemsize
        found[:, along < 0] = -1
        return waits_of_each(found.reshape(len(spreads), -1, WARP), access.nbytes)

    def least_waiting(self, spreads: Spreads, accesses: tuple[Access, ...]) -> Spread:
        """The first of the layouts in which accesses wait least for banks, by enumeration; of equals the smallest."""
        return _least_waiting(self, spreads, accesses)


@cache
def _least_waiting(panel: Panel, spreads: Spreads, accesses: tuple[Access, ...]) -> Spread:
    def waits(some: Sequence[Spread]) -> Integers:
        return sum((panel.waits(some, access) for access in accesses), np.zeros(len(some), int))

    return least_waiting_of_many(_smallest_first(panel, spreads), waits)


@cache
def _smallest_first(panel: Panel, spreads: Spreads) -> tuple[Spread, ...]:
    return tuple(sorted(spreads.each(), key=lambda spread: spread.size(panel.rows, panel.width)))


def _positions(spreads: Sequence[Spread], rows: Integers, along: Integers, width: int) -> Integers:
    """Where elements of a panel lie in each of several layouts, whose tiles and vectors are the same."""
    ((tile, vector),) = {(spread.tile, spread.vector) for spread in spreads}
    each = np.array([(o.row(width), o.every, o.skip, o.part(width)) for o in spreads])
    row, every, skip, part = each.T[:, :, None]
    inside = along % tile // vector * part + along // tile * vector + along % vector
    found: Integers = rows * row + rows // every * skip + inside
    return found

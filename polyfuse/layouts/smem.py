"""Layouts of panels in a GPU's shared memory that threads read: padded, so that no access has bank conflicts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SmemLayout:
    """The layout of a panel's row in a GPU's shared memory without bank conflicts of threads that access it together.

    The first vectors of all tiles are neighbours, then the second ones:

    tile 8, vector 4, width 32:   0-3 8-11 16-19 24-27 gap 4-7 12-15 20-23 28-31 gap

    Attributes:
        tile: The neighbours that a thread reads.
        vector: So many of them it reads at a time.
        gap: The elements between the first vectors and the second ones.
        every: After so many rows elements are skipped.
        skip: The elements that are skipped.
    """

    tile: int
    vector: int
    gap: int
    every: int
    skip: int

    def row(self, width: int) -> int:
        """The elements from one row of a panel to the next, without what is skipped."""
        return self.tile // self.vector * self.part(width)

    def part(self, width: int) -> int:
        """The elements from the first vectors of all tiles to the second ones."""
        return width // self.tile * self.vector + self.gap

    def size(self, rows: int, width: int) -> int:
        """The elements of a panel of so many rows."""
        return rows * self.row(width) + -(-rows // self.every) * self.skip

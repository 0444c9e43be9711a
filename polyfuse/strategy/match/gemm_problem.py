"""The size of a product and the facts about its factors, by which tiles on a GPU are chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kept = Literal["steps", "columns"]
"""The dimension along which a right factor that is copied as it is is contiguous in memory."""


MOST_LOADED = 96
"""Words that a thread may load for a tile of factors which it computes: beside 8 × 8 sums 128 of them, 32 times four,
spill 8 bytes on sm_80, and 16 times four do not."""


@dataclass(frozen=True)
class Terms:
    """The reads and operations from which a factor's element is computed while it is copied.

    x[i, k] + x[512 + i, 512 + k]: 2 reads, 1 operation.
    """

    reads: int = 1
    operations: int = 0

    def more(self, vector: int) -> float:
        """Instructions for each element beyond those of a copy: each other read is a load of a vector, and its address.

        128 × 16 sums of two: 8 operations and 2 loads with 3 to 4 integers a thread of 256, of 1142 instructions.
        """
        return self.operations + 2 * (self.reads - 1) / vector


@dataclass(frozen=True)
class Extents:
    """A product's size: rows, columns, steps, and how many there are of it.

    `wide` says that its factors are numbers in memory and can be copied 16 bytes at a time, while a thread does other
    things; `singles` that they are, but some of them number by number. A convolution has as many elements in its
    `windows`, and `deep` rows or columns beside each of its rows or columns, along another dimension. `whole_steps` are
    the steps if every result has that number of them, a constant; 0 if that is not known. `kept` says that both factors
    may be copied as they are (operand_rows.py), and what are neighbours in the right one; None if they may not.
    Blocks are `lone` on their SM where they wait for each other (resident_blocks.py). `once`
    says that a block runs through its tiles of steps once. Factors may be computed as they are copied: `left` and
    `right` say from what. `beside` are bytes that the kernel's other statements read and write once beside the results.
    """

    rows: int
    columns: int
    steps: int
    count: int
    wide: bool = True
    singles: bool = False
    windows: int = 1
    deep: int = 1
    whole_steps: int = 0
    kept: Kept | None = None
    lone: bool = False
    once: bool = False
    left: Terms = Terms()
    right: Terms = Terms()
    beside: int = 0

    @property
    def results(self) -> int:
        """All results."""
        return self.count * self.rows * self.columns * self.deep

    @property
    def factors(self) -> int:
        """All elements of the factors, about."""
        read = self.rows * self.left.reads + self.columns * self.right.reads
        return self.count * read * self.steps * self.deep

    def read_of(self, rows: int, columns: int) -> float:
        """The reads per element of a tile of factors, counting each read of its computation."""
        return (rows * self.left.reads + columns * self.right.reads) / (rows + columns)

    def loaded(self, rows: int, columns: int, words: int) -> bool:
        """True if a thread that copies so many words of a tile of factors can hold what it computes them from."""
        reads = self.read_of(rows, columns)
        return reads == 1 or reads * words <= MOST_LOADED

    def computing(self, rows: int, columns: int, vector: int) -> float:
        """Instructions of all threads that compute one step of a tile's factors: loads, addresses, operations."""
        return rows * self.left.more(vector) + columns * self.right.more(vector)

"""Rasterisation: order a grid's blocks so that concurrent ones read the same rows and columns from DRAM.

    row by row:     0  1  2  3        in groups of 2 rows:     0  2  4  6        a wave of 4 blocks reads the factors
                    4  5  6  7                                 1  3  5  7        of 1 + 4 of them, or of 2 + 2
                    8  9 10 11                                 8 10 12 14
                   12 13 14 15                                 9 11 13 15

In verbs: the loop over rows of blocks is cut into groups, whose blocks are on block.x, columns on block.y, groups on
block.z. That blocks start in the order of their numbers, block.x first, is assumed: CUDA does not promise it, and no
result depends on it. The same order is CUTLASS' "threadblock swizzle" and Triton's "grouped ordering" (tutorial 03).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, gcd

GRID = 65535
"""The most blocks along a grid's second and third axis."""

GROUPS = (1, 2, 4, 8, 16, 32)
"""Rows of blocks in a group, before groups are made equal."""


@dataclass(frozen=True)
class Order:
    """Blocks in groups of so many rows, and the bytes that a wave of them reads from DRAM for a tile of steps.

    `by_rows` are those that it would read row by row, in groups of 1.
    """

    group: int = 1
    read: float = 0.0
    by_rows: float = 0.0

    def __str__(self) -> str:
        """The words of a report after "blocks"."""
        if self.group == 1:
            return ""
        return (
            f" in groups of {self.group} rows (DRAM reads {self.read / self.by_rows:.2f} of those row by row)"
        )


@dataclass(frozen=True)
class Grid:
    """The blocks of a product, or of `count` products: rows and columns of them, and tiles of steps of each.

    `left` and `right` are the bytes of one tile of steps of a block's rows, and of its columns.
    """

    rows: int
    columns: int
    count: int
    tiles: int
    left: int
    right: int

    def best(self, wave: int, cache: int) -> Order:
        """The order in which so many blocks at once read least, L2 being a `cache` of so many bytes.

        >>> str(Grid(64, 64, 1, 256, 128 * 32 * 4, 128 * 32 * 4).best(132, 50 * 2**20))
        ' in groups of 8 rows (DRAM reads 0.40 of those row by row)'
        """
        by_rows = self.read(1, wave, cache)
        orders = (Order(group, self.read(group, wave, cache), by_rows) for group in self.groups())
        return min(orders, key=lambda order: order.read)

    def groups(self) -> Iterator[int]:
        """The groups to choose from, none much smaller than the others: 33 rows in groups of 8 are 4 of 7 and one of 5.

        With several products they divide the rows: one axis has groups and products then, and each block divides.
        """
        for group in dict.fromkeys(ceil(self.rows / ceil(self.rows / most)) for most in GROUPS):
            count = ceil(self.rows / group)
            fits = self.columns <= GRID and self.count * count <= GRID
            if group == 1 or (fits and (self.count == 1 or self.rows % group == 0)):
                yield group

    def read(self, group: int, wave: int, cache: int) -> float:
        """Bytes from DRAM for one tile of steps of a wave, on average over all waves.

        Each row's and each column's factor is read by the first block that asks, and is in the cache for the others,
        which walk along the steps beside it. Where the cache has room for a wave's factors with all of their steps, a
        group's rows are read once, and where a wave has all columns, these are.
        """
        blocks = self.rows * self.columns
        if wave >= blocks:
            return wave / blocks * (self.rows * self.left + self.columns * self.right)
        high = min(self.rows, min(group, wave) * _touched(wave, group * self.columns))
        wide = min(self.columns, _touched(wave, group))
        down, across = high * self.left, wide * self.right
        if (down + across) * self.tiles > cache:
            return down + across
        if wide < self.columns:
            return down * wide / self.columns + across
        return down + across * wave / blocks


def _touched(wave: int, size: int) -> float:
    """The mean number of pieces of so many blocks that a wave has blocks of, over the waves of a long row of pieces.

    >>> _touched(4, 4), _touched(6, 4), _touched(3, 4)
    (1.0, 2.0, 1.5)
    """
    return wave / size + 1 - gcd(wave, size) / size

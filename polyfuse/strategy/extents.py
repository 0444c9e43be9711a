"""How large a product is, and what is known of its factors: what shapes of tiles on a GPU are chosen by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kept = Literal["steps", "columns"]
"""What lies side by side in memory of a right factor that is copied as it is."""


@dataclass(frozen=True)
class Extents:
    """A product's size: rows, columns, steps, and how many there are of it.

    `wide` says that its factors are numbers in memory and can be copied 16 bytes at a time, while a thread does other
    things. Single numbers could be too, but each is an instruction with a guard, which costs more than it hides: 60 %
    of a tile's instructions are multiply-adds then, not 81. A convolution has as many elements in its `windows`, and
    `deep` rows or columns beside each of its rows or columns, along another dimension. `whole_steps` are the steps if
    every result has that number of them, a constant; 0 if that is not known. `kept` says that both factors
    may be copied as they are (strategy/factor_rows.py), and what are neighbours in the right one; None if they may not.
    Blocks are `lone` on their SM where they wait for each other (strategy/blocks_at_once.py). `once`
    says that a block runs through its tiles of steps once.
    """

    rows: int
    columns: int
    steps: int
    count: int
    wide: bool = True
    windows: int = 1
    deep: int = 1
    whole_steps: int = 0
    kept: Kept | None = None
    lone: bool = False
    once: bool = False

    @property
    def results(self) -> int:
        """All results."""
        return self.count * self.rows * self.columns * self.deep

    @property
    def factors(self) -> int:
        """All elements of the factors, about."""
        return self.count * (self.rows + self.columns) * self.steps * self.deep

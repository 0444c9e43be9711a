"""The core-matrix layout of a factor's tile in shared memory, as a warpgroup's instructions read it.

A core matrix is 8 rows of 16 bytes, one after the other: 8 rows or columns of results, and `depth` steps of each (PTX
ISA, "Shared Memory Matrix Layout" of wgmma, without swizzling, steps being neighbours: K-major). Turned, its rows are 8
steps of 8 halves, neighbours of the results (M- or N-major). An instruction reads several that are `core` elements
apart along the results and two that are `line` elements apart along the steps.

Which row of a tile is which row of an instruction is ours to say. Lane 4 * g + t of a warp gets rows g and g + 8 of its
16, and columns 8j + 2t, 8j + 2t + 1 ("Matrix Fragments for wgmma"). So that a thread has neighbours of both, as without
tensor cores,

    row  tile * (8 * warp + g) + 2m + h      is row g of core 2 * warp + h of instruction m     (lanes 8, side 2)
    column  tile * (4 * group + t) + 2j + e  is row 2t + e of core j of a group's instruction   (lanes 4, side tile / 2)

(turned, its place in each of the core's rows). So of eight neighbours in a turned core's row two are a thread's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CORE_ROWS = 8
"""Rows of a core matrix."""

INSTRUCTION_ROWS = 64
"""Rows of one instruction's results."""

FORMATS: tuple[Literal["tf32", "bf16", "f16"], ...] = ("tf32", "bf16", "f16")
"""The formats of factors that such an instruction takes here: of 32 bits, or of 16."""


@dataclass(frozen=True)
class Digit:
    """A part of an index and what it adds to a position: index // divisor % modulus * weight."""

    divisor: int
    modulus: int | None
    weight: int


@dataclass(frozen=True)
class CoreMatrixLayout:
    """A panel's elements in core matrices; all numbers are elements.

    Elements are left out behind cores, so that copies meet no bank twice.

    Attributes:
        tile: The neighbours along the results that a thread has.
        lanes: A core has rows of so many lanes, one or two of each.
        side: Of a lane's cores so many stand side by side, then those of the other lanes.
        depth: The steps that are 16 bytes.
        gap: The elements left out behind each core.
        apart: The elements left out behind an instruction's cores.
        skip: The elements left out behind a line of cores.
        turned: True if the rows of a core are steps.
    """

    tile: int
    lanes: int
    side: int
    depth: int
    gap: int = 0
    apart: int = 0
    skip: int = 0
    turned: bool = False

    @property
    def each(self) -> int:
        """Neighbours of one lane that a core has."""
        return CORE_ROWS // self.lanes

    @property
    def core(self) -> int:
        """Elements between neighbouring cores along the results."""
        return CORE_ROWS * self.depth + self.gap

    @property
    def several(self) -> int:
        """Instructions that a thread's tile takes for the same steps."""
        return self.tile // (self.each * self.side)

    def line(self, width: int) -> int:
        """Elements between neighbouring cores along the steps, in a panel of so many results."""
        return self.several * self.far(width) + self.skip

    def far(self, width: int) -> int:
        """Elements between the cores of two consecutive instructions of a warpgroup."""
        return self.side * self.core * (width // (self.tile * self.lanes)) + self.apart

    def size(self, rows: int, width: int) -> int:
        """The elements of a panel of so many steps."""
        return -(-rows // self.depth) * self.line(width)

    def along_steps(self, width: int) -> tuple[Digit, ...]:
        """The digits that a step adds to an element's position."""
        inside = CORE_ROWS if self.turned else 1
        return Digit(1, self.depth, inside), Digit(self.depth, None, self.line(width))

    def along_results(self, width: int) -> tuple[Digit, ...]:
        """The digits that a row or column of results adds to an element's position.

        >>> rows = CoreMatrixLayout(tile=4, lanes=8, side=2, depth=8).along_results(128)
        >>> [sum(r // d.divisor % (d.modulus or 1000) * d.weight for d in rows) for r in (0, 1, 2, 4, 32)]
        [0, 64, 512, 8, 128]
        """
        inside = 1 if self.turned else self.depth
        return (
            Digit(1, self.each, inside),
            Digit(self.each, self.side, self.core),
            Digit(self.each * self.side, self.several, self.far(width)),
            Digit(self.tile, self.lanes, self.each * inside),
            Digit(self.tile * self.lanes, None, self.side * self.core),
        )

    def fits(self, width: int) -> bool:
        """True if a panel of so many results consists of whole tiles of whole cores."""
        whole = min(self.tile, self.side, self.depth) >= 1 and self.lanes in (4, 8)
        whole = whole and (not self.turned or self.depth == CORE_ROWS)
        gaps = (self.gap, self.apart, self.skip)
        return (
            whole
            and all(gap >= 0 and gap % self.depth == 0 for gap in gaps)
            and self.tile % (self.each * self.side) == 0
            and width % (self.tile * self.lanes) == 0
        )

    def __str__(self) -> str:
        """The text in a dump."""
        apart = f" {self.gap} apart" if self.gap else ""
        turned = ", turned" if self.turned else ""
        return f"cores of {CORE_ROWS} × {self.depth}{turned}, {self.side} of tiles of {self.tile} side by side{apart}"

"""The swizzled layout of a factor's tile in shared memory, in lines of 128 bytes, as bulk copies (TMA) write it.

A panel is lines, one after the other: neighbours in memory, 64 halves of a row's steps or of a
step's columns, or 32 numbers of a row's steps. The 16
bytes c of line l lie at place c ^ l % 8 of it (PTX ISA, "Swizzling Modes" of tensors, 128 bytes). So eight lines' same
16 bytes are in all 32 banks, and a warpgroup's instruction, which reads a core matrix of 8 x 16 bytes at a time, waits
for none, whether its rows are lines or 16 bytes of eight lines.

    line 0   0 1 2 3 4 5 6 7        line 1   1 0 3 2 5 4 7 6        line 2   2 3 0 1 6 7 4 5

Only such instructions read and write a tile that lies so: positions in a buffer are those without the swizzle, which
they put in by themselves, each from the address that it has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

LINE_BYTES = 128
"""A line of a panel."""

LINES = 8
"""Lines after which the order of their parts comes again; the first begins at a multiple of all their bytes."""

WHOLE = LINE_BYTES * LINES
"""The alignment of a tile in bytes."""


MOST_AXES = 5
"""Axes of an array that is copied in boxes, at most."""

MOST_ALONG = 256
"""Elements of a box along one axis, at most."""

BARRIER_BYTES = 8
"""Of a barrier on which boxes arrive."""


@dataclass(frozen=True)
class SwizzledLayout:
    """A panel's rows are lines of 128 bytes, whose parts of 16 bytes are swizzled."""

    def size(self, rows: int, width: int) -> int:
        """The elements of a panel of so many rows."""
        return rows * width

    def __str__(self) -> str:
        """The text in a dump."""
        return f"swizzled lines of {LINE_BYTES} bytes"


def swizzled(address: Any) -> Any:
    """Return the swizzled address of a byte address; numbers or arrays. The function is its own inverse.

    >>> [swizzled(a) for a in (0, 128, 128 + 16, 256, 7 * 128 + 2, 8 * 128)]
    [0, 144, 128, 288, 1010, 1024]
    """
    return address ^ (address // LINE_BYTES % LINES * 16)

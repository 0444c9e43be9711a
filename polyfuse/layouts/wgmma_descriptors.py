"""The 64 bits by which a warpgroup's instruction finds a factor in shared memory, and what it reads there.

    bits 0-13   first address / 16              bits 49-51  base offset (0: swizzled lines begin at their multiple)
    bits 16-29  leading byte offset / 16        bits 62-63  swizzle (0: none, 1: of 128 bytes)
    bits 32-45  stride byte offset / 16

(PTX ISA, "Matrix Descriptor Format" of wgmma.) Without swizzling the leading offset lies between two core matrices
along the steps, the stride offset between two along the rows ("Strides" there), whether a core matrix' rows are the
matrix' rows or, turned, its steps. In units of 16 bytes, as (rows, steps) : (distances), these are the layouts
((8, m), (1, 2)) : ((1, stride), (0, leading)) and, turned, ((1, m), (8, 2)) : ((0, stride), (1, leading)), the
canonical ones of CUTLASS (cute/atom/mma_traits_sm90_gmma.hpp, Major-K and Major-MN, INTERLEAVE). Swizzled lines of
128 bytes (swizzle.py) are ((8, m), (1, 2)) : ((8, stride), (-, 1)), and turned ((8, m), (8, 2)) : ((1, leading),
(8, stride)), each position with its swizzle (B128 there).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from polyfuse.layouts.core_matrix import CORE_ROWS
from polyfuse.layouts.swizzle import LINE_BYTES, swizzled

UNIT = 16
"""Bytes that an offset counts, and those of a core matrix' row."""

FIELD = (1 << 14) - 1

LEADING, STRIDE, SWIZZLE = 16, 32, 62
"""The first bits of the offsets and of the swizzle."""

HALVES = LINE_BYTES // 2
"""Of these a line."""

WARPGROUP = 128
"""Threads of four warps in a row, the first a multiple of four."""


@dataclass(frozen=True)
class Form:
    """The form of a factor's core matrices: `turned` if their rows are its steps; parts of `swizzled` lines."""

    turned: bool = False
    swizzled: bool = False

    @property
    def number(self) -> int:
        """The form as an operation's argument."""
        return self.turned + 2 * self.swizzled

    @classmethod
    def by(cls, number: int) -> Form:
        """The form that an operation's argument encodes."""
        return cls(bool(number & 1), bool(number & 2))

    def described(self, start: int, line: int, core: int) -> int:
        """The descriptor for bytes from one core matrix to the next, along the steps and along the results."""
        leading, stride = (core, line) if self.swizzled and self.turned else (line, core)
        return descriptor(start, leading, stride, self.swizzled)


def descriptor(start: int, leading: int, stride: int, swizzle: bool = False) -> int:
    """The descriptor for byte offsets; the start's address in a block's shared memory may be added later, in 16 bytes.

    >>> hex(descriptor(0x420, 2048, 128))
    '0x800800042'
    """
    for what, number in {"start": start, "leading offset": leading, "stride offset": stride}.items():
        if number % UNIT or not 0 <= number <= FIELD * UNIT:
            raise ValueError(f"a {what} of {number} bytes; it is a multiple of {UNIT} up to {FIELD * UNIT}")
    return start // UNIT | leading // UNIT << LEADING | stride // UNIT << STRIDE | int(swizzle) << SWIZZLE


@dataclass(frozen=True)
class Described:
    """A descriptor's byte offsets.

    >>> Described.by(descriptor(0x420, 2048, 128))
    Described(start=1056, leading=2048, stride=128, swizzle=False)
    """

    start: Any
    leading: int
    stride: int
    swizzle: bool = False

    @classmethod
    def by(cls, bits: int) -> Described:
        """Decode the fields. Raises ValueError for bits that ask for another swizzle or a base offset."""
        start, leading, stride = ((bits >> first & FIELD) * UNIT for first in (0, LEADING, STRIDE))
        swizzle = bits >> SWIZZLE == 1
        if descriptor(start, leading, stride, swizzle) != bits:
            raise ValueError(f"a descriptor with another swizzle or a base offset: {bits:#x}")
        return cls(start, leading, stride, swizzle)

    def address(self, row: Any, step: Any, itemsize: int, turned: bool = False) -> Any:
        """The byte address of an element of the matrix; numbers or arrays of them.

        >>> Described(0, 2048, 128).address(9, 10, 2), Described(0, 2048, 128).address(9, 10, 2, turned=True)
        (2196, 2210)
        """
        depth = UNIT // itemsize
        if turned and depth != CORE_ROWS:
            raise ValueError(f"elements of {itemsize} bytes in turned core matrices: these are of halves")
        if self.swizzle:
            along, part, panel = (step, row % HALVES, row // HALVES) if turned else (row, step, 0)
            line = along // CORE_ROWS * self.stride + along % CORE_ROWS * LINE_BYTES
            return swizzled(self.start + panel * self.leading + line + part * itemsize)
        cores = row // CORE_ROWS * self.stride + step // depth * self.leading
        line, element = (step % depth, row % CORE_ROWS) if turned else (row % CORE_ROWS, step % depth)
        return self.start + cores + line * UNIT + element * itemsize

"""Levels of a memory hierarchy, and sizes in bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass

KiB, MiB, GiB = 2**10, 2**20, 2**30

UNBOUNDED = 2**62
"""The size of a level that holds whatever there is."""

STEPS = 40
"""Newton's steps to `missing`, from 1 down: each halves the error at least."""


@dataclass(frozen=True)
class Level:
    """One level of the memory hierarchy.

    Attributes:
        name: The name shown in reports.
        size: Bytes that one unit can use.
        bandwidth: Bytes/s of reads and writes together: of one unit if `private`, else of all units.
        private: True if each unit has its own.
        drawn_by: The number of units that saturate a shared level's bandwidth.
        reading: The bandwidth of reads alone, relative to `bandwidth`.
        rows: The bandwidth of about a dozen rows read at once, relative to `bandwidth`.
        missing: The part of what is read that comes from the last level instead, as this one is too small for all.
    """

    name: str
    size: int
    bandwidth: float
    private: bool
    drawn_by: int = 1
    reading: float = 1.0
    rows: float = 1.0
    missing: float = 0.0


def missing(size: float, kept: float) -> float:
    """Return the part of a working set that a cache does not have when it is gone through again and again.

    A cache of n lines replaces any of them at a miss: a line stays, with (1 - 1/n) at each miss, until it is read again
    after `missing * size / kept * n` of them. So missing = 1 - exp(-missing * size / kept), 0 if all fits.

    Args:
        size: Bytes of the working set.
        kept: Bytes of the cache.

    >>> [round(missing(size, 20), 2) for size in (20, 20.2, 24, 32, 48, 96)]
    [0.0, 0.02, 0.31, 0.64, 0.88, 0.99]
    """
    if size <= kept:
        return 0.0
    found, times = 1.0, size / kept
    for _ in range(STEPS):
        there = math.exp(-found * times)
        found -= (found + there - 1) / (1 - times * there)
    return found


def size_text(size: int) -> str:
    """A level's size as text after its name; nothing for an unbounded one."""
    for name, unit in (("GiB", GiB), ("MiB", MiB), ("KiB", KiB)):
        if unit <= size < UNBOUNDED:
            return f" {size / unit:g} {name}"
    return "" if size == UNBOUNDED else f" {size} B"


UNKNOWN = 2.0**60
"""Bytes from which on a level's size is not known."""


def bytes_text(count: float) -> str:
    """Return bytes for a reader; nothing for a size that is not known.

    >>> bytes_text(1536), bytes_text(12), bytes_text(1010 * 2**20)
    ('1.5 KiB', '12 bytes', '1010 MiB')
    """
    for unit, name in ((GiB, "GiB"), (MiB, "MiB"), (KiB, "KiB")):
        if count >= unit:
            text = f"{count / unit:{'.0f' if count >= 100 * unit else '.3g'}} {name}"
            return text if count < UNKNOWN else ""
    return f"{count:.0f} bytes"

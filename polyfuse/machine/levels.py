"""Levels of a memory hierarchy, and sizes in bytes."""

from __future__ import annotations

from dataclasses import dataclass

KiB, MiB, GiB = 2**10, 2**20, 2**30

UNBOUNDED = 2**62
"""The size of a level that holds whatever there is."""


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
    """

    name: str
    size: int
    bandwidth: float
    private: bool
    drawn_by: int = 1
    reading: float = 1.0
    rows: float = 1.0


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

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

"""Ours compiled before anything is measured, in processes beside each other, into the cache that the run then reads.

    (part, subject, way) …  --some processes-->  cache  -->  compiled in the run in milliseconds

Plans and machine code take most of a run's time and one core of the host; the measuring needs the GPU for itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from functools import partial

from benchmarks.gpu.parts import ALL, CAPTURED, PARTS, Chosen
from benchmarks.gpu.subject import compiled
from polyfuse.checks.cuda_case import Place
from polyfuse.checks.side_by_side import side_by_side

Piece = tuple[str, int, str]
"""A part's name, a subject's position in it, and the way that it is compiled."""

Ahead = dict[tuple[str, str], float | str]
"""Seconds, or what was wrong, by a row's workload and side."""


def pieces_of(names: Sequence[str], small: bool, chosen: Chosen = ALL) -> list[Piece]:
    """All that the parts compile, but those of `calls`, whose compilation is what is measured."""
    return [
        (name, position, way)
        for name in names
        if name != "calls"
        for position, subject in enumerate(PARTS[name].subjects(small))
        if chosen.measured(subject.name)
        for way in subject.ways
        if way != CAPTURED  # compiled as OURS
    ]


def built_ahead(
    names: Sequence[str], device: Place, processes: int, seconds: float, chosen: Chosen = ALL
) -> Ahead:
    """Compile them all, or as many as begin in time; what fails here fails again in the run, where its row says so."""
    small = device != "gpu"
    pieces = pieces_of(names, small, chosen)
    found: Ahead = {}
    for piece, took in side_by_side(partial(_built, device=device), pieces, processes, seconds):
        name, position, way = piece
        key = PARTS[name].subjects(small)[position].name, way
        found[key] = f"a process died: {took}" if isinstance(took, BrokenProcessPool) else took
    return found


def _built(piece: Piece, device: Place) -> float | str:
    name, position, way = piece
    subject = PARTS[name].subjects(device != "gpu")[position]
    try:
        _, row = compiled(subject, subject.workload.make(), subject.ways[way], device)
    except Exception as why:  # noqa: BLE001 — the run meets it again, and its row says what it was
        return f"{type(why).__name__}: {why}"
    return float(row["build_s"])

"""Vectorise loops over contiguous elements on a GPU: 16 bytes per access, if all moving arrays allow it.

    for c (of 8): z[i, 8*j + c] = …   ->   for c (of 2): for c_in (vector, of 4): z[i, 8*j + 4*c + c_in] = …

A thread's loads and stores of single numbers are an instruction each, and of a warp whose threads hold eight results
each, every store touches eight times as many lines of memory as it fills. Where results are dealt out as instructions
of tensor cores have them, two of each eight are neighbours: accesses of 8 or 4 bytes, of half as many sectors.
"""

from __future__ import annotations

from collections.abc import Iterator

from polyfuse.analysis.vector_access import ACCESS_BYTES, is_one_access
from polyfuse.errors import IllegalSchedule, InvalidSchedule
from polyfuse.ir.access import Access
from polyfuse.schedule import Schedule
from polyfuse.strategy.cost.counts import dims_of, stride
from polyfuse.strategy.transforms.band_verbs import inside


def in_vectors_of(
    schedule: Schedule,
    unit: tuple[str, ...],
    loop: str,
    kept: tuple[str, ...],
    accesses: tuple[int, ...] = (ACCESS_BYTES,),
) -> Schedule | None:
    """A unit's loop cut into vectors of so many bytes, the first of `accesses` that fits; None if something that it
    walks along is not accessed so.

    The temporaries `kept` are not in memory.
    """
    in_memory = list(_accesses(schedule, unit, kept))
    size = max(
        (schedule.nest.tensor(access.tensor).itemsize for _, access in in_memory), default=ACCESS_BYTES
    )
    counts = (nbytes // size for nbytes in accesses if nbytes >= 2 * size)
    found = (_in_vectors(schedule, unit, loop, in_memory, count) for count in counts)
    return next((done for done in found if done is not None), None)


def _in_vectors(
    schedule: Schedule, unit: tuple[str, ...], loop: str, in_memory: list[tuple[str, Access]], count: int
) -> Schedule | None:
    try:
        done = schedule.split(unit[0], loop, count)
        inner = inside(done, unit[0], loop)
        done = done.vectorize(unit[0], inner.name)
    except (IllegalSchedule, InvalidSchedule):
        return None
    vector = inside(done, unit[0], loop)
    moving = [
        (name, access)
        for name, access in in_memory
        if any(stride(access, d) for d in dims_of(vector.date(name)))
    ]
    wide = (is_one_access(done.nest, done.tree, vector, name, access, count, None) for name, access in moving)
    return done if moving and all(wide) else None


def _accesses(
    schedule: Schedule, unit: tuple[str, ...], kept: tuple[str, ...]
) -> Iterator[tuple[str, Access]]:
    for name in unit:
        for access in schedule.nest.statement(name).accesses:
            if access.tensor not in kept:
                yield name, access

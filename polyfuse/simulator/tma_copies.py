"""Bulk copies in lock-step: boxes by tensor maps, swizzled as the hardware does it, and the barriers they arrive on.

A box arrives as late as it may: when its group is waited for. Until then nobody may read where it goes. A GPU tells a
barrier's phases apart by parity alone; here they are counted, and one that is not its next one is an error.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from math import prod

import numpy as np

from polyfuse.layouts.swizzle import MOST_AXES, WHOLE, swizzled
from polyfuse.simulator.agents import agreed
from polyfuse.simulator.races import poison
from polyfuse.simulator.threads import Asked, Given, Meaning, Numbers, Threads, element, literal


def begin_bulk(threads: Threads, node: ast.stmt, given: Given) -> None:
    """No phase of any barrier is over."""
    if threads.active.mask is not None:
        raise TypeError("only some threads make barriers for copies")
    threads.bulk.phases = [0] * literal(given, "count")


def copy_bulk(threads: Threads, node: ast.stmt, given: Given) -> None:
    """One thread of a block asks for a box."""
    _copy(threads, node, given, 1, (threads.rank,))


def copy_multicast(threads: Threads, node: ast.stmt, given: Given) -> None:
    """One thread of a block asks for a part of a box, for several blocks of its cluster."""
    if threads.handover is None:
        raise TypeError("blocks copy for each other, and no slots say when")
    parts, ranks, first = literal(given, "parts"), literal(given, "ranks"), agreed(threads, given["first"])
    whom = [first + bit for bit in range(ranks.bit_length()) if ranks >> bit & 1]
    if max(whom) >= threads.team.grid.per_cluster:
        raise TypeError(f"a copy to block {max(whom)} of a cluster of {threads.team.grid.per_cluster}")
    _copy(threads, node, given, parts, whom)


def _copy(threads: Threads, node: ast.stmt, given: Given, parts: int, ranks: Sequence[int]) -> None:
    """One thread of a block asks for a box, the bytes of so many parts being expected, for blocks of some ranks.

    Which threads bring its elements here makes no difference.
    """
    target, boxes = element(node, given["target"]), element(node, given["boxes"])
    assert isinstance(boxes.value, ast.Name)
    mapped = threads.bulk.maps.get(boxes.value.id)
    axes, nbytes, count = (literal(given, name) for name in ("axes", "nbytes", "count"))
    if mapped is None or axes != len(mapped.box):
        raise TypeError(f"{boxes.value.id} is no map of an array of {axes} axes")
    size = threads.itemsize(target)
    if prod(mapped.box) * size != nbytes:
        raise TypeError(f"{nbytes} bytes are expected of boxes of {mapped.box}")
    group, first = agreed(threads, given["group"]), threads.value(given["to"])
    if threads.handover is None:
        _check_phase(threads, group, count)
    elif count != threads.handover.slots:
        raise TypeError(f"there are {threads.handover.slots} slots, and a box is to arrive in one of {count}")
    per_block = threads.team.grid.per_block
    active = threads.active.mask if threads.active.mask is not None else np.ones(threads.team.size, np.bool_)
    by_block = active.reshape(-1, per_block)
    if (by_block.sum(axis=1) > 1).any():
        raise TypeError("several threads of a block ask for a box")
    blocks = np.flatnonzero(by_block.any(axis=1))
    caller = blocks * per_block + by_block[blocks].argmax(axis=1)
    corner = [
        np.broadcast_to(threads.value(given[f"c{axis}"]), active.shape)[caller] for axis in range(MOST_AXES)
    ]
    start = np.broadcast_to(first, active.shape)[caller] * size
    if (start % WHOLE).any():
        raise TypeError(f"a box goes to no multiple of {WHOLE} bytes")
    found = mapped.positions(tuple(reversed(corner[:axes])))
    places = swizzled(start[:, None] + np.arange(found.shape[1]) * size) // size
    everyone = threads.active
    if threads.handover is not None:
        threads.handover.expect(threads.rank, group, nbytes * parts)
    for part in _parts(found.shape[1], per_block):
        mask = np.zeros((len(by_block), per_block), np.bool_)
        mask[blocks, : part.stop - part.start] = True
        at, to = (_by_thread(values[:, part], mask) for values in (found, places))
        threads.active = everyone.among(mask.reshape(-1))
        value = _loaded(threads, boxes, at)
        if threads.handover is not None:
            memory, located = threads.locate(target, [to])
            for rank in ranks:
                threads.handover.asked(threads, memory, located, threads.active.pick(value), group, rank)
            continue
        threads.store(target, [to], poison(value.dtype.name), nbytes=0)
        threads.on_way(target, [to], True)
        threads.bulk.asked.setdefault(group, []).append(Asked(threads.active, target, [to], value))
    threads.active = everyone
    for rank in ranks if threads.handover is not None else ():
        threads.handover.expect(rank, group, -nbytes)
    threads.unshown.discard(target.value.id)  # type: ignore[attr-defined]  # a name: it is of the same proxy


def await_bulk(threads: Threads, node: ast.stmt, given: Given) -> None:
    """A group is complete, and the one so many before it arrives."""
    if threads.active.mask is not None:
        raise TypeError("only some threads wait for copies of their block")
    still_open, count = literal(given, "still_open"), literal(given, "count")
    group = threads.value(given["group"])
    if np.ndim(group):
        raise TypeError("blocks are at different copies")
    _check_phase(threads, int(group), count)
    awaited, shown = int(group) - still_open, set(threads.unshown)
    if awaited >= 0:
        _check_phase(threads, awaited, count)
        threads.bulk.phases[awaited % count] += 1
        everyone = threads.active
        for asked in threads.bulk.asked.pop(awaited, []):
            threads.active = asked.active
            threads.on_way(asked.target, asked.indices, False)
            threads.store(asked.target, asked.indices, asked.value, nbytes=0)
        threads.active = everyone
        threads.unshown &= shown


def _check_phase(threads: Threads, group: int, count: int) -> None:
    phases = threads.bulk.phases
    if not phases:
        raise TypeError("there are no barriers for copies")
    if len(phases) != count or phases[group % count] != group // count:
        raise TypeError(
            "a barrier of copies is used again before those that came before have been waited for"
        )


def _loaded(threads: Threads, boxes: ast.Subscript, at: Numbers) -> Numbers:
    """The elements of an array that the active threads bring, zeros beyond it."""
    outer, inside = threads.active, at >= 0
    threads.active = outer.where(inside)
    held = threads.zeros(boxes)
    if threads.active.count:
        loaded = np.asarray(threads.load(boxes, [np.maximum(at, 0)]))
        held = np.where(inside, loaded, held)
    threads.active = outer
    return np.broadcast_to(held, at.shape).astype(held.dtype)


def _by_thread(values: Numbers, mask: Numbers) -> Numbers:
    """Values [blocks, elements] at those threads that bring them; -1 at the others."""
    found = np.full(mask.shape, -1, np.int64)
    found[mask] = values.reshape(-1)
    return found.reshape(-1)


def _parts(elements: int, threads: int) -> Iterator[slice]:
    return (slice(first, min(first + threads, elements)) for first in range(0, elements, threads))


BULK_MEANINGS: Mapping[str, Meaning] = {
    "begin_bulk": begin_bulk,
    "copy_bulk": copy_bulk,
    "copy_multicast": copy_multicast,
    "await_bulk": await_bulk,
}

"""The CPU's program: how one group of statements becomes loops for cores, caches and vectors, in public verbs.

for i (tiles, on cores): for j (tiles):
  for i_in: for j_in: zero                          y in a local buffer of one tile
  for k (of 4): for j_in (vector): i_in, k_in unrolled: mac
  for i_in: for j_in (vector): bias; relu           their temporaries scalars
"""

from __future__ import annotations

from polyfuse.ir.tree import Loop
from polyfuse.machine import Machine
from polyfuse.schedule import Schedule
from polyfuse.strategy.cost import Tiling
from polyfuse.strategy.counts import Counts
from polyfuse.strategy.kernel import Kernel
from polyfuse.strategy.moves import (
    buffer_bytes,
    common_loops,
    constant_extent,
    contiguous,
    cut,
    inside,
    internal,
    promoted,
    rejoined,
    reordered,
    separated,
    units,
    users_in,
)

UNROLLED_K = 4
"""Steps of a contraction in one pass over a vector loop: with four rows 205 GFLOP/s on a Zen 5 core, numba 0.68."""

UNROLLED = 16
"""Copies of a statement at most: numba's frontend takes time quadratic in the statements of a function."""


def shaped(schedule: Schedule, counts: Counts, kernel: Kernel, tiling: Tiling, machine: Machine) -> Schedule:
    """One group, tiled, ordered, vectorized, bound to the cores, its temporaries in buffers of their own."""
    names = kernel.names
    tiled = cut(schedule, kernel, tiling)
    schedule, keep = tiled.schedule, len(tiled.tiles)
    if keep:
        schedule = rejoined(separated(schedule, names, keep), names, keep)
    if keep or len(names) == 1:
        for unit in units(schedule, names, keep):
            schedule = _unit(schedule, counts, unit, keep, tiled.points)
    if tiling.parallel is not None:
        schedule = schedule.bind(names[0], **{kernel.band[tiling.parallel].name: "cores"})
    for tensor in internal(kernel):
        schedule = _contracted(schedule, tensor, users_in(schedule, names, tensor), machine)
    return schedule


def _unit(
    schedule: Schedule, counts: Counts, unit: tuple[str, ...], keep: int, points: tuple[str, ...]
) -> Schedule:
    """One perfect loop nest: contractions outside, then the loop along memory as vector, small loops unrolled in it."""
    name = unit[0]
    loops = schedule.loops(name)[keep:]
    if not loops:
        return schedule
    vector = contiguous(counts, schedule, unit, loops)
    carried = [loop for loop in loops if not counts.parallel(loop)]
    if not carried or vector in carried:
        return _vector(schedule, name, loops, vector)
    schedule, step = _stepped(schedule, name, carried[-1])
    rows = [
        loop for loop in loops if loop.name in points and loop is not vector and _copies(schedule, loop) <= 4
    ][:1]
    inner = [loop.name for loop in rows] + ([step] if step else [])
    outer = [loop for loop in loops if loop is not vector and loop.name not in inner]
    outer.sort(key=lambda loop: loop in carried)
    schedule = reordered(schedule, name, (*(loop.name for loop in outer), vector.name, *inner))
    for small in inner:
        schedule = schedule.unroll(name, small)
    return schedule.vectorize(name, vector.name)


def _vector(schedule: Schedule, name: str, loops: tuple[Loop, ...], vector: Loop) -> Schedule:
    """The loop along memory innermost, on vector lanes."""
    others = [loop.name for loop in loops if loop is not vector]
    return reordered(schedule, name, (*others, vector.name)).vectorize(name, vector.name)


def _stepped(schedule: Schedule, name: str, loop: Loop) -> tuple[Schedule, str | None]:
    """for k  ->  for k: for k_in, with the most steps up to four that divide it: a rest would need guards."""
    size = constant_extent(schedule, loop)
    steps = next((s for s in range(UNROLLED_K, 1, -1) if size is not None and size % s == 0), None)
    if steps is None:
        return schedule, None
    if size == steps:
        return schedule, loop.name
    schedule = schedule.split(name, loop.name, steps)
    return schedule, inside(schedule, name, loop.name).name


def _copies(schedule: Schedule, loop: Loop) -> int:
    return constant_extent(schedule, loop) or UNROLLED + 1


def _contracted(schedule: Schedule, tensor: str, users: tuple[str, ...], machine: Machine) -> Schedule:
    """The temporary in a buffer of the innermost loop that holds all its uses, if that fits into L2."""
    around = common_loops(schedule, users)
    for loop in reversed(around):
        if loop.bind == "unroll":
            continue
        size = buffer_bytes(schedule, loop, tensor)
        if size is None or size > machine.levels[1].size // 2:
            return schedule
        done = promoted(schedule, tensor, users[0], loop.name, "local")
        if done is not None:
            return done
    return schedule

"""The CPU's program for pipelines in overlapping tiles, in public verbs.

for i_tile (on cores): for j_tile:          Ix in a local buffer of one tile
  for i: for j (vector): Ix; Iy             stages over boxes of one shape in one loop nest
  for i: for j (vector): Sxx; Sxy; out      what they hand on pointwise in registers
"""

from __future__ import annotations

from itertools import pairwise

from polyfuse.errors import IllegalSchedule, InvalidSchedule
from polyfuse.ir.tree import Leaf, parts, statements
from polyfuse.rewrite import Overlapped
from polyfuse.schedule import Schedule
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.transforms.band_verbs import common_loops, promoted, vectorized


def shaped(schedule: Schedule, made: Overlapped, parallel: bool) -> Schedule:
    """One pipeline: passes fused, temporaries in buffers, inner loops on vector lanes, a loop of tiles on cores."""
    names = tuple(n for n in statements(schedule.tree) if n in set(made.statements))
    depth = len(made.loops)
    schedule = fused(schedule, names, depth)
    counts = Counts(schedule.nest)
    tensors = dict.fromkeys(schedule.nest.statement(n).write.tensor for n in names if n not in made.consumers)
    for tensor in tensors:
        schedule = contracted(schedule, names, tensor)
    for name in names:
        schedule = along_memory(schedule, name, depth)
    tiles = schedule.loops(names[0])[:depth]
    free = next((loop for loop in tiles if counts.parallel(loop) and counts.extent(loop) > 1), None)
    if parallel and free is not None:
        schedule = schedule.bind(names[0], **{free.name: "cores"})
    return schedule


def along_memory(schedule: Schedule, name: str, depth: int) -> Schedule:
    """A stage's innermost loop on vector lanes."""
    inner = schedule.loops(name)[-1]
    whole = len(schedule.loops(name)) > depth and all(isinstance(part, Leaf) for part in parts(inner.body))
    return vectorized(schedule, name, inner) if inner.bind is None and whole else schedule


def fused(schedule: Schedule, names: tuple[str, ...], depth: int) -> Schedule:
    """Neighbours whose loops run through the same values in one loop nest, as deep as that is legal."""
    for first, second in pairwise(names):
        loops, others = schedule.loops(first)[depth:], schedule.loops(second)[depth:]
        if len(loops) != len(others) or not loops or loops[0] is others[0]:
            continue
        counts = Counts(schedule.nest)
        if any(counts.extent(a) != counts.extent(b) for a, b in zip(loops, others, strict=True)):
            continue
        try:
            schedule = schedule.fuse(first, second, at=loops[-1].name, shift={loop.name: 0 for loop in loops})
        except (IllegalSchedule, InvalidSchedule):
            continue
    return schedule


def contracted(schedule: Schedule, names: tuple[str, ...], tensor: str) -> Schedule:
    """A tile's temporary in a buffer of the innermost loop around all its uses."""
    users = tuple(n for n in names if tensor in schedule.nest.statement(n).tensors)
    for loop in reversed(common_loops(schedule, users)):
        done = promoted(schedule, tensor, users[0], loop.name, "local")
        if done is not None:
            return done
    return schedule

"""Schedule sums over windows without cache blocks: depthwise convolutions and other windows.

    for q: for r: for s: y[q] += w[r, s] * x[k + r, q + s]
    ->  for q (pieces): for r: for s: for q_in (microkernel): y[q_in] += w[r, s] * x[k + r, q_in + s]

A row of results stays in registers for all elements of the window. Each reads one vector of pixels, as far as the
window's border lets it, and multiplies it with one number. Along the window itself, where both factors are neighbours,
there are three numbers to a vector, and a sum to be taken across them: 8 images of 64 channels of 28 × 28 by 3 × 3
windows took 1.3 ms so.
"""

from __future__ import annotations

from polyfuse.analysis.once import is_constant
from polyfuse.errors import IllegalSchedule, InvalidSchedule
from polyfuse.ir import Nest
from polyfuse.ir.tree import Loop
from polyfuse.machine import CpuMachine
from polyfuse.schedule import Schedule
from polyfuse.strategy.cost.counts import Counts, dims_of, stride
from polyfuse.strategy.match.gemm import moved_axes
from polyfuse.strategy.transforms.band_verbs import constant_extent, far_and_near, inside
from polyfuse.strategy.transforms.packing import packed_once

VECTORS = 8
"""Vectors of sums of a row: enough to keep the multipliers busy, and few enough for what else needs registers."""


def summed_in_rows(
    schedule: Schedule, counts: Counts, name: str, loops: tuple[Loop, ...], machine: CpuMachine
) -> Schedule | None:
    """A sum's loops as microkernels of a row of results; None if it has no such row.

    `loops` are those around the statement alone, outermost first.
    """
    if not schedule.nest.statement(name).is_reduction:
        return None
    loops = tuple(loop for loop in loops if counts.extent(loop) > 1)
    steps = tuple(loop for loop in loops if not counts.parallel(loop))
    rows = [loop for loop in loops if loop not in steps and _along_results(schedule, name, loop)]
    if not steps or not rows:
        return None
    row = min(reversed(rows), key=lambda loop: far_and_near(schedule.nest, name, dims_of(loop.date(name))))
    if _is_shorter(schedule, counts, name, row, steps, machine):
        return None
    outer = [loop.name for loop in loops if loop not in steps and loop is not row]
    try:
        return _in_pieces(schedule, name, outer, steps, row, machine)
    except (IllegalSchedule, InvalidSchedule):
        return None


def _is_shorter(
    schedule: Schedule, counts: Counts, name: str, row: Loop, steps: tuple[Loop, ...], machine: CpuMachine
) -> bool:
    """True if a row of results fills no vector, where more steps than it has results lie side by side in memory.

    The gradient of a window's weights: w[s] += z[q] * x[q + s] for 3 of s, and 28 of q.
    """
    s = schedule.nest.statement(name)
    lanes = machine.vector_bytes // schedule.nest.tensor(s.write.tensor).itemsize
    results = counts.extent(row)
    return results < lanes and any(
        counts.extent(loop) > results
        and not far_and_near(schedule.nest, name, dims_of(loop.date(name)))[0]
        and all(any(stride(a, d) == 1 for d in dims_of(loop.date(name))) for a in s.reads)
        for loop in steps
    )


def sums_along_memory(nest: Nest, name: str) -> bool:
    """True if neighbouring results of a sum are neighbours in memory, and so is what they read.

    y[q] += w[s] * x[q + s] is so, y[q] += x[q, k] is not.
    """
    s = nest.statement(name)
    along = [d for d in range(len(s.dims)) if stride(s.write, d) == 1]
    every = [[stride(access, d) for access in s.reads] for d in along]
    return s.is_reduction and any(1 in moved and 2 not in moved for moved in every)


def _along_results(schedule: Schedule, name: str, loop: Loop) -> bool:
    """True if a loop goes from a result to its neighbour in memory."""
    write = schedule.nest.statement(name).write
    return any(stride(write, d) == 1 for d in dims_of(loop.date(name)))


def _in_pieces(
    schedule: Schedule,
    name: str,
    outer: list[str],
    steps: tuple[Loop, ...],
    row: Loop,
    machine: CpuMachine,
) -> Schedule:
    size, inner = constant_extent(schedule, row), row.name
    lanes = machine.vector_bytes // schedule.nest.tensor(schedule.nest.statement(name).write.tensor).itemsize
    most = VECTORS * lanes
    width = most if size is None else size
    if size is None or size > most:
        width = most if size is None else -(-size // (-(-size // most) * lanes)) * lanes
        schedule = schedule.split(name, row.name, width)
        inner = inside(schedule, name, row.name).name
        outer = [*outer, row.name]
    schedule = schedule.reorder(name, *outer, *(loop.name for loop in steps), inner)
    schedule = _with_neighbours(schedule, name, dims_of(row.date(name)), width)
    return schedule.microkernel(name, steps[0].name)


def _with_neighbours(schedule: Schedule, name: str, along: frozenset[int], width: int) -> Schedule:
    """Constant factors whose numbers lie apart along a row in panels of its pieces, packed once for all calls.

    w[f, r, s], where a row is of neighbouring filters f   ->   w_panels[f // 32, r, s, f % 32]
    """
    s = schedule.nest.statement(name)
    nest, tree = schedule.nest, schedule.tree
    for access in s.reads:
        axes = moved_axes(access, len(s.dims)) or {}
        far = [axes[d] for d in along if d in axes and stride(access, d) > 1]
        if far and is_constant(nest, tree, access.tensor):
            schedule = packed_once(schedule, access.tensor, name, (far[0], width))
    return schedule

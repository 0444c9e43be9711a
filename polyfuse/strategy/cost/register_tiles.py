"""Price the register tiles of a finished CPU kernel by the vectors that they issue.

    for i (tiles of 6): for j (tiles of 16): for k (microkernel): for i_in: for j_in: y[i, j] += a[i, k] * b[k, j]
    seconds = tiles × (steps × max((rows × vectors + loading × loads) / multiply-adds a cycle, latency) + entry)

A row that fills 4 of 16 lanes takes as long as a whole half of a vector, a tile of one vector as long as the latency of
its multiply-add, and a tile that is cut short issues all of its vectors. Windows' rows, y[q] += w[s] * x[q + s], are
tiles of one row.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, prod

import islpy as isl

from polyfuse.ir.tree import Loop, Tree, loops, loops_around, statements
from polyfuse.machine import CpuMachine
from polyfuse.sets import IN
from polyfuse.strategy.cost.counts import Counts, dims_of, step

LATENCY = 4
"""Cycles from one sum to the next, in which each multiplier begins as many others."""

ENTRY = 20
"""Cycles before a tile's first sums are added and after its last ones: latencies of loads, multiply-adds, stores."""

LEAST_ISSUE = 0.5
"""Cycles of a vector multiply-add at least, however narrow: two begin in a cycle."""


def tile_seconds(counts: Counts, part: Tree, machine: CpuMachine) -> float:
    """Return the seconds that one core takes for the register tiles of a kernel; 0 if it has none."""
    tiles = (loop for loop in loops(part) if loop.bind == "microkernel" and len(statements(loop)) == 1)
    return sum(_seconds(counts, part, steps, machine) for steps in tiles)


def _seconds(counts: Counts, part: Tree, steps: Loop, machine: CpuMachine) -> float:
    """The seconds of one statement's tiles.

    MobileNetV2's depthwise layers behind products, 3 × 3 windows, one thread of a Zen 4: of 144 channels of 14 × 14 80
    µs where the peak allows 27 and this is 61; of 192 channels of 7 × 7 50, 11 and 36.
    """
    (name,) = statements(steps)
    around, inside = loops_around(part, name), loops_around(steps, name)
    outside = around[: len(around) - len(inside)]
    own, last = {loop.name: _extent(counts, name, loop) for loop in around}, inside[-1]
    write = counts.nest.statement(name).write
    lanes = machine.vector_bytes // counts.nest.tensor(write.tensor).itemsize
    if not _moves(write.map, last, name):
        return 0.0  # lanes are steps of dot products: `block_cost` prices their tiles
    columns = own[last.name]
    of_sums = [loop for loop in inside[:-1] if _moves(write.map, loop, name)]
    rows = prod(own[loop.name] for loop in of_sums)
    count = prod(own[loop.name] for loop in inside[:-1] if loop not in of_sums)
    cycles = count * _cycles(counts, name, rows, columns, last, lanes, machine) + ENTRY
    all_columns = max(1, counts.box_of(name, dims_of(last.date(name))))
    box = prod(own.values())
    # tiles at the end of rows have fewer of them; at the end of columns they issue as many vectors
    there = counts.work(name).instances * ceil(all_columns / columns) * columns / all_columns / box
    tiles = prod(own[loop.name] for loop in outside) * min(1.0, there) * counts.filled(name)
    return tiles * cycles * machine.cycle


def _cycles(
    counts: Counts, name: str, rows: int, columns: int, last: Loop, lanes: int, machine: CpuMachine
) -> float:
    """Cycles of one step of a tile: multiply-adds beside loads, or the latency of its few sums."""
    width = min(lanes, 1 << (columns - 1).bit_length())
    vectors = ceil(columns / lanes)
    issue = max(LEAST_ISSUE, width / lanes / machine.multiply_adds)
    sums, loads = rows * vectors, rows + vectors
    # in multiply-adds, several of which begin in a cycle
    loading = machine.loading * loads / machine.multiply_adds
    apart = any(
        step(access, d) > 1 for access in counts.nest.statement(name).reads for d in dims_of(last.date(name))
    )
    gathered = machine.apart * columns if apart else 0.0
    return max(sums * issue + loading + gathered, LATENCY, machine.broadcast * rows)


def _extent(counts: Counts, name: str, loop: Loop) -> int:
    """The values of a loop for one statement."""
    return counts.extent(replace(loop, dates=((name, loop.date(name)),)))


def _moves(access: isl.Map, loop: Loop, name: str) -> bool:
    """True if an access goes to other elements as a loop advances."""
    return any(access.involves_dims(IN, d, 1) for d in dims_of(loop.date(name)))

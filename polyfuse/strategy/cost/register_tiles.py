"""Price the register tiles of a finished CPU kernel by the vectors that they issue.

    for i (tiles of 6): for j (tiles of 16): for k (microkernel): for i_in: for j_in: y[i, j] += a[i, k] * b[k, j]
    seconds = tiles × (steps × max((rows × vectors + loading × loads) / multiply-adds a cycle, latency) + entry)

Where each step of a tile takes lines of its own that lie apart, and no cache keeps those of all steps in the sets that
they fall into, a tile also waits for its lines.

A row that fills 4 of 16 lanes takes as long as a whole half of a vector, a tile of one vector as long as the latency of
its multiply-add, and a tile that is cut short issues all of its vectors. Windows' rows, y[q] += w[s] * x[q + s], are
tiles of one row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, gcd, prod

import islpy as isl

from polyfuse.analysis.storage import buffers_of
from polyfuse.ir.access import Access
from polyfuse.ir.tensor import Tensor
from polyfuse.ir.tree import Loop, Tree, loops, loops_around, statements
from polyfuse.machine import CpuMachine
from polyfuse.sets import IN
from polyfuse.strategy.cost.counts import Counts, dims_of, step
from polyfuse.strategy.cost.kernel_model import LINE
from polyfuse.strategy.cost.roofline import CACHED

LATENCY = 4
"""Cycles from one sum to the next, in which each multiplier begins as many others."""

ENTRY = 20
"""Cycles before a tile's first sums are added and after its last ones: latencies of loads, multiply-adds, stores."""

LEAST_ISSUE = 0.5
"""Cycles of a vector multiply-add at least, however narrow: two begin in a cycle."""

PAGE = 4096
"""Bytes of a page, whose end no prefetcher crosses; and of one way of an L1 cache, which is indexed inside a page."""

MISSED = 11.0
"""Cycles of a line that comes into L1 unasked for, where several that are needed at once lie in pages of their own. Of
products of 1 x 1 windows, whose rows are 6 neighbours in memory, times beyond those expected without it, per line that
they touch, ns: 256 to 64 channels of 56 x 56 3.6, 64 to 256 3.5, 512 to 128 of 28 x 28 3.5, 128 to 512 3.6; of 64 to 64
of 56 x 56, whose lines stay in L1 for several tiles, 4 per line that there is (one core of a Zen 3)."""


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
    cycles = _tile_cycles(_step(counts, name, rows, columns, last, lanes, machine), count, machine)
    of_steps = [(loop, own[loop.name]) for loop in inside[:-1] if loop not in of_sums]
    held = frozenset(buffer.tensor for _, buffer in buffers_of(part))
    for access in counts.nest.statement(name).reads:
        if access.tensor not in held:
            along = columns if _moves(access.map, last, name) else rows
            cycles += _missed(counts, name, access, of_steps, along, machine)
    all_columns = max(1, counts.box_of(name, dims_of(last.date(name))))
    box = prod(own.values())
    # tiles at the end of rows have fewer of them; at the end of columns they issue as many vectors
    there = counts.work(name).instances * ceil(all_columns / columns) * columns / all_columns / box
    tiles = prod(own[loop.name] for loop in outside) * min(1.0, there) * counts.filled(name)
    return tiles * cycles * machine.cycle


@dataclass(frozen=True)
class Step:
    """One step of a tile: the cycles in which it begins, those until its sums are there, and its instructions."""

    begun: float
    done: float
    instructions: int


def _step(
    counts: Counts, name: str, rows: int, columns: int, last: Loop, lanes: int, machine: CpuMachine
) -> Step:
    """One step of a tile: multiply-adds beside loads, or the latency of its few sums."""
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
    begun = max(sums * issue + loading + gathered, machine.broadcast * rows)
    return Step(begun, max(begun, LATENCY), sums + loads + (columns if apart else 0))


def _tile_cycles(one: Step, count: int, machine: CpuMachine) -> float:
    """Cycles of a tile of so many steps; a core that looks ahead begins the next short ones while it waits for sums.

    2 x 32 sums of 8 products take 26 cycles with a bias behind them, 52 one after the other (one Zen 5 core).
    """
    alone = count * one.done + ENTRY
    if not machine.ahead:
        return alone
    seen = min(1.0, (count * one.instructions + ENTRY) / machine.ahead)
    return max(count * one.begun, seen * alone)


def _missed(
    counts: Counts, name: str, access: Access, steps: list[tuple[Loop, int]], along: int, machine: CpuMachine
) -> float:
    """Cycles in which a tile waits for lines of a factor of which each step takes its own, if L2 does not keep them.

    2500 steps down columns whose rows are 8 KiB apart: all lines fall into eight sets of L2, which hold 64. Steps whose
    lines follow each other, as a panel's do, wait for none: 512 to 512 channels of 4 x 4 by windows of 3 x 3, whose
    panels of 64 filters have 1.1 MiB, took 275 µs, 204 of them multiply-adds (one Zen 5 core).
    """
    tensor = counts.nest.tensor(access.tensor)
    apart = [(_bytes_apart(tensor, access, loop, name), extent) for loop, extent in steps]
    far = [(size, extent) for size, extent in apart if size >= LINE and extent > 1]
    if not far:
        return 0.0
    lines, size = prod(extent for _, extent in far), min(size for size, _ in far)
    each = ceil(along * tensor.itemsize / LINE)
    if size <= each * LINE or lines <= lines_held(machine.levels[CACHED].size // 2, size):
        return 0.0
    return cycles_missed(lines * each, size)


def lines_held(size: int, stride: int) -> int:
    """The lines that stay in so many bytes of a cache, by the sets that they fall into: 2 KiB apart few.

    >>> lines_held(32 * 1024, 64), lines_held(32 * 1024, 2048), lines_held(32 * 1024, 2048 + 64)
    (512, 16, 512)
    """
    return size // max(LINE, gcd(stride, PAGE))


def cycles_missed(lines: float, stride: int) -> float:
    """The cycles in which so many lines come in: fewer where several lie in a page."""
    return lines * min(1.0, 4 * stride / PAGE) * MISSED


def _bytes_apart(tensor: Tensor, access: Access, loop: Loop, name: str) -> int:
    """Bytes in a tensor from one value of a loop to the next, by sizes that are numbers; 0 if it does not move."""
    subscripts, bytes_of, found = access.subscripts(), tensor.itemsize, 0
    for axis in reversed(range(tensor.rank)):
        pieces = subscripts.get_pw_aff(axis).get_pieces()
        for d in dims_of(loop.date(name)):
            by = (value.get_coefficient_val(IN, d) for _, value in pieces)
            found += bytes_of * max((abs(int(v.to_python())) for v in by if v.is_int()), default=0)
        extent = tensor.shape[axis]
        if not isinstance(extent, int):
            break
        bytes_of *= extent
    return found


def _extent(counts: Counts, name: str, loop: Loop) -> int:
    """The values of a loop for one statement."""
    return counts.extent(replace(loop, dates=((name, loop.date(name)),)))


def _moves(access: isl.Map, loop: Loop, name: str) -> bool:
    """True if an access goes to other elements as a loop advances."""
    return any(access.involves_dims(IN, d, 1) for d in dims_of(loop.date(name)))

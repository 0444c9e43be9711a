"""Stage pointwise kernels on a GPU that access memory along different loops (transposes) through shared memory.

    for i: for j: y[i, j] = x[j, i]
    ->  for i (block.y): for j (block.x): {
          for j_in (of 4): for j_in_in (thread.y): for i_in (thread.x): x_shared[j_in, i_in] = x[j, i]
          for i_in (of 4): for i_in_in (thread.y): for j_in (thread.x): y[i, j] = x_shared[j_in, i_in] }

        x . . . . i        y . . . . j       a warp reads 32 neighbours of x and writes 32 of y: 128 bytes each,
          . # # .            . # # .         where it would read 32 lines of memory, 4 bytes of each
          j                  i

A row of a square is an element longer than the square is wide: the 32 lanes that walk down it meet no bank twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from polyfuse.analysis.banks import WARP
from polyfuse.analysis.storage import CLUSTERS
from polyfuse.errors import IllegalSchedule, InvalidSchedule
from polyfuse.ir.tree import Loop, Tree
from polyfuse.layouts import SmemLayout
from polyfuse.machine import GpuMachine
from polyfuse.schedule import Schedule
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.kernel_model import Kernel
from polyfuse.strategy.cost.roofline import Model, Tiling, cost_of
from polyfuse.strategy.cuda.tiles.rasterization import GRID
from polyfuse.strategy.fusion.group_search import part_with
from polyfuse.strategy.plan import Group
from polyfuse.strategy.remarks import Reason, Refused, applied
from polyfuse.strategy.transforms.band_verbs import (
    buffer_bytes,
    constant_extent,
    goes,
    held_in_registers,
    inside,
    is_perfect,
    reordered,
)
from polyfuse.strategy.transforms.packing import added

PASS = "transpose"

NOT_IN_SQUARES = "not in squares through shared memory"
"""The words of a plan on a kernel that reads across memory, before the reason."""

SIDE = WARP
"""Values of either loop in a square: a lane each."""

LEAST = 16
"""Values of either loop, at least: with fewer most lanes of a square would be idle."""

ROWS = 8
"""Warps of a block, each with a quarter of a square's rows, whose loads are all under way before the first arrives."""


@dataclass(frozen=True)
class _Crossing:
    """The loop along which results are neighbours, the one along which `read` tensors have theirs, and these."""

    results: Loop
    operands: Loop
    read: tuple[str, ...]

    def moves(self, loop: Loop) -> bool:
        """True if a loop is one of the two."""
        return loop is self.results or loop is self.operands


def in_squares(
    schedule: Schedule, model: Model, part: Tree, machine: GpuMachine
) -> tuple[Schedule, list[Group]] | Refused | None:
    """A pointwise kernel in squares of blocks; why not, or None where none of its reads goes across."""
    kernel, counts = model.kernel(part), model.counts
    found = None if kernel.around else _crossing(schedule, counts, kernel)
    if found is None:
        return None
    try:
        done = _copied(_placed(schedule, counts, kernel, found), kernel, found)
    except (IllegalSchedule, InvalidSchedule) as error:
        return Refused(Reason.ILLEGAL, str(error))
    read = " and ".join(found.read)
    note = (
        f"results are neighbours along {found.results.name}, elements of {read} along {found.operands.name}: "
        f"squares of {SIDE} × {SIDE} of {read} go through shared memory, so that {SIDE} lanes read and write neighbours"
    )
    sizes = [min(SIDE, e) if found.moves(x) else 1 for x, e in zip(kernel.band, kernel.extents, strict=True)]
    tiling = Tiling(tuple(sizes), tuple(range(len(sizes))))
    cost = cost_of(
        kernel, machine, counts.total_bytes, tiling
    )  # the bytes: what is copied is in no memory between
    return done, [Group(part_with(done, kernel.names[0]).names, cost, (applied(PASS, kernel.names, note),))]


def _crossing(schedule: Schedule, counts: Counts, kernel: Kernel) -> _Crossing | None:
    """The accesses across memory of a kernel whose loops are all in its band, and whose results share one direction."""
    names = kernel.names
    if not is_perfect(schedule, names) or len(schedule.loops(names[0])) != len(kernel.band):
        return None
    own = {use.tensor for use in kernel.uses if use.internal}
    statements = [schedule.nest.statement(name) for name in names]
    writes = [(s.name, s.write) for s in statements if s.write.tensor not in own]
    reads = [(s.name, a) for s in statements for a in s.reads if a.tensor not in own]
    wide = [loop for loop in kernel.band if counts.extent(loop) >= LEAST]
    results = next((loop for loop in wide if all(goes(each, loop, 1) for each in writes)), None)
    if results is None:
        return None
    for loop in (x for x in wide if x is not results):
        across = [a.tensor for n, a in reads if goes((n, a), loop, 1) and goes((n, a), results, 2)]
        if across:
            return _Crossing(results, loop, tuple(dict.fromkeys(across)))
    return None


def _placed(schedule: Schedule, counts: Counts, kernel: Kernel, found: _Crossing) -> Schedule:
    """The kernel's squares on blocks, and their points on threads: neighbouring results on a warp's lanes."""
    name = kernel.names[0]
    across, along = found.operands.name, found.results.name
    for loop in (across, along):
        schedule = schedule.split(name, loop, SIDE)
    rows, lanes = (inside(schedule, name, loop).name for loop in (across, along))
    schedule = schedule.split(name, rows, ROWS)
    warps = inside(schedule, name, rows).name
    rest = [loop.name for loop in kernel.band if loop.name not in (across, along)]
    schedule = reordered(schedule, name, (*rest, across, along, rows, warps, lanes))
    for _ in rest[1:]:
        two = schedule.loops(name)[:2]
        schedule = schedule.collapse(name, two[0].name, two[1].name)
    blocks = schedule.loops(name)[: min(1, len(rest)) + 2]
    places = _grid(blocks, prod(counts.extent(x) for x in kernel.band if x.name in rest), counts, found)
    places |= {warps: "thread.y", lanes: "thread.x"}
    return held_in_registers(schedule.bind(name, **places), kernel, 1)


def _grid(blocks: tuple[Loop, ...], rest: int, counts: Counts, found: _Crossing) -> dict[str, str]:
    """Each loop over blocks with its axis: the longest has x, the only one that takes more than 65535.

    Raises InvalidSchedule if another one has more.
    """
    squares = {loop.name: -(-counts.extent(loop) // SIDE) for loop in (found.results, found.operands)}
    sizes = {loop.name: squares.get(loop.name, rest) for loop in blocks}
    longest = sorted(sizes, key=lambda name: -sizes[name])
    if any(sizes[name] > GRID for name in longest[1:]):
        raise InvalidSchedule(f"two loops over blocks have more than {GRID} values")
    return dict(zip(longest, ("block.x", "block.y", "block.z"), strict=False))


def _copied(schedule: Schedule, kernel: Kernel, found: _Crossing) -> Schedule:
    """The schedule with reads across memory staged in shared memory: lanes copy contiguous elements of rows."""
    name = kernel.names[0]
    for tensor in found.read:
        before, last = schedule, schedule.nest.tensor(tensor).rank - 1
        (user, *_) = (n for n in kernel.names if tensor in schedule.nest.statement(n).tensors)
        at = [loop for loop in schedule.loops(name) if loop.bind in CLUSTERS][-1]
        held = buffer_bytes(schedule, at, tensor, "shared")
        if held is None or held > SIDE * SIDE * schedule.nest.tensor(tensor).itemsize:
            raise InvalidSchedule(f"a block reads more of {tensor} than a square: x[i, j] + x[j, i]")
        panel, longer = (last, SIDE), SmemLayout(SIDE, SIDE, 1, 1, 0)
        schedule = schedule.promote(tensor, user, at.name, "shared", panel=panel, layout=longer)
        for copy in added(before, schedule):
            schedule = _by_warps(schedule, copy)
    return schedule


def _by_warps(schedule: Schedule, copy: str) -> Schedule:
    """A copy of a square by all threads: its rows on warps, four times each."""
    own = [loop for loop in schedule.loops(copy) if [n for n, _ in loop.dates] == [copy]]
    wide = [loop.name for loop in own if constant_extent(schedule, loop) != 1]
    if len(wide) != 2:
        raise InvalidSchedule(f"{copy} copies no square: its loops are {', '.join(wide)}")
    row, lane = wide
    schedule = schedule.split(copy, row, ROWS)
    return schedule.bind(copy, **{inside(schedule, copy, row).name: "thread.y", lane: "thread.x"})

"""The GPU's program: how one group of statements becomes blocks, threads and shared memory, in public verbs.

    for i (block.y): for j (block.x):                   y in a register of each thread
      for i_in (thread.y): for j_in (thread.x): zero
      for k (of 16): copy tiles of x and w to shared memory
        for i_in (thread.y): for j_in (thread.x): for k_in: mac
      for i_in (thread.y): for j_in (thread.x): bias; relu

Every statement of a group maps the same elements to the same threads, so results stay in registers on their way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from polyfuse.analysis.banks import WARP
from polyfuse.analysis.vector_access import ACCESS_BYTES
from polyfuse.ir import Access, Statement
from polyfuse.ir.tree import Loop
from polyfuse.machine import Gpu, GpuMachine
from polyfuse.schedule import Schedule
from polyfuse.sets import IN
from polyfuse.strategy.cost.counts import Counts, dims_of, stride
from polyfuse.strategy.cost.kernel_model import Kernel, internal
from polyfuse.strategy.cost.occupancy import SYSTEM_SHARED
from polyfuse.strategy.cost.roofline import Tiling
from polyfuse.strategy.cuda.transforms.resident_blocks import blocks_at_once
from polyfuse.strategy.cuda.transforms.vector_access import in_vectors_of
from polyfuse.strategy.cuda.transforms.warp_reduce import by_lanes, within
from polyfuse.strategy.match.lane_reductions import lane_loop
from polyfuse.strategy.transforms.band_verbs import (
    buffer_bytes,
    common_loops,
    constant_extent,
    contiguous,
    cut,
    inside,
    is_perfect,
    promoted,
    rejoined,
    reordered,
    separated,
    units,
    users_in,
)

BLOCKS = ("block.x", "block.y", "block.z")
THREADS = ("thread.x", "thread.y", "thread.z")

STEP = 16
"""Steps of a contraction whose operands are in shared memory at a time."""


@dataclass(frozen=True)
class Threads:
    """The mapping of a group's loops to the threads of a block.

    `points` says which axis each loop inside a tile runs on. `across` is the axis left for a statement's own parallel
    loop (None if the points use them all), and `limit` the most threads along it. With
    `lanes` the axis is a row's: the lanes of a warp, or all threads of a block, share reductions along it.
    """

    points: tuple[tuple[str, str], ...]
    across: str | None
    limit: int
    lanes: bool = False


def shaped(
    schedule: Schedule, counts: Counts, kernel: Kernel, tiling: Tiling, machine: GpuMachine
) -> Schedule:
    """One group, tiled, bound to blocks and threads, operands and temporaries in shared memory and registers."""
    names = kernel.names
    start = schedule
    schedule, keep, threads = _in_blocks(start, kernel, tiling, machine)
    if not keep:
        return schedule
    if threads.across is None:
        wider, kept, others = _in_blocks(start, kernel, _wider(kernel, tiling, machine.units), machine)
        done = _in_vectors(wider, counts, units(wider, names, kept), kept, others)
        schedule, keep, threads = (schedule, keep, threads) if done is None else (done, kept, others)
    else:
        schedule = _in_vectors(schedule, counts, units(schedule, names, keep), keep, threads) or schedule
    steps: dict[str, str] = {}
    for unit in units(schedule, names, keep):
        schedule, step = _unit(schedule, counts, unit, keep, threads)
        if step is not None:
            steps[unit[0]] = step
    schedule, room = _temporaries(schedule, kernel, _room(threads, machine.gpu))
    for name, step in steps.items():
        schedule, room = _operands(schedule, kernel, name, step, room)
    return schedule


def _in_blocks(
    schedule: Schedule, kernel: Kernel, tiling: Tiling, machine: GpuMachine
) -> tuple[Schedule, int, Threads]:
    """The group in tiles that are blocks, how many loops these and those around are, and what its threads will run."""
    names = kernel.names
    tiled = cut(schedule, kernel, tiling, bounded=True)
    threads = threads_of(kernel, tiling, tiled.points, machine.gpu)
    if not tiled.tiles:
        return tiled.schedule, 0, threads
    schedule, tiles, more = blocks_at_once(tiled.schedule, kernel, tiled.tiles, machine)
    keep = len(kernel.around) + more + len(tiles)
    schedule = rejoined(separated(schedule, names, keep), names, keep)
    outermost = tiles[: len(BLOCKS)]
    places = dict(zip(outermost, reversed(BLOCKS[: len(outermost)]), strict=True))
    return schedule.bind(names[0], **places), keep, threads


def _wider(kernel: Kernel, tiling: Tiling, blocks: int) -> Tiling:
    """The tiling whose last tile loop has so many values more that each thread may have 16 bytes of them.

    As it was where fewer than so many blocks would be left, unless a block would have less than a warp.
    """
    wide = [position for position, size in enumerate(tiling.sizes) if size > 1]
    if not wide:
        return tiling
    last = wide[-1]
    count = ACCESS_BYTES // max((use.itemsize for use in kernel.uses), default=ACCESS_BYTES)
    size = min(tiling.sizes[last] * count, kernel.extents[last])
    tiles = prod(-(-e // s) for e, s in zip(kernel.extents, tiling.sizes, strict=True))
    if tiles < blocks * count and prod(tiling.sizes) >= count * WARP:
        return tiling
    return replace(tiling, sizes=(*tiling.sizes[:last], size, *tiling.sizes[last + 1 :]))


def _room(threads: Threads, gpu: Gpu) -> int:
    """Shared memory for a block's temporaries: for a long row its part of what an SM has that is full of threads."""
    if not threads.lanes or threads.limit == WARP:
        return gpu.shared_static
    share = gpu.shared_per_sm // (gpu.max_threads_per_sm // threads.limit) - SYSTEM_SHARED
    return min(gpu.shared_per_block, max(gpu.shared_static, share))


def threads_of(kernel: Kernel, tiling: Tiling, points: tuple[str, ...], gpu: Gpu) -> Threads:
    """The last loop inside a tile runs along x, unless statements have parallel loops of their own: these get x."""
    taken = prod(size for size in tiling.sizes if size > 1) if points else 1
    limit = max(1, gpu.max_threads_per_block // taken)
    lanes = any(share.lanes > 1 for share in kernel.shares) and len(points) < 2 and limit >= WARP
    own = any(share.inner > 1 for share in kernel.shares) and len(points) < 2
    axes = THREADS[1:] if own or lanes else THREADS
    placed = tuple(zip(reversed(points[-len(axes) :]), axes, strict=False))
    row = WARP if points else min(limit, max((share.lanes for share in kernel.shares), default=WARP))
    return Threads(placed, THREADS[0] if own or lanes else None, row if lanes else limit, lanes)


def _in_vectors(
    schedule: Schedule, counts: Counts, every: list[tuple[str, ...]], keep: int, threads: Threads
) -> Schedule | None:
    """The loops that will run along thread.x with 16 bytes for each thread; None unless all of them may.

    What one of them leaves in a thread the next one finds there.
    """
    start = schedule
    for unit in every:
        loop = _walking(schedule, counts, unit, keep, threads)
        if loop is None:
            continue
        done = in_vectors_of(schedule, unit, loop.name, ()) if is_perfect(schedule, unit) else None
        size = None if done is None else constant_extent(done, inside(done, unit[0], loop.name))
        if done is None or size is None or (counts.extent(loop) < size * threads.limit and threads.lanes):
            return None
        schedule = done
    return None if schedule is start else schedule


def _walking(
    schedule: Schedule, counts: Counts, unit: tuple[str, ...], keep: int, threads: Threads
) -> Loop | None:
    """The loop of a unit that will run along thread.x; None if none will."""
    placed = dict(threads.points)
    loops = schedule.loops(unit[0])[keep:]
    if threads.across is None:
        return next((loop for loop in loops if placed.get(loop.name) == THREADS[0]), None)
    own = tuple(loop for loop in loops if loop.name not in placed)
    free = tuple(loop for loop in own if counts.parallel(loop))
    if free:
        return contiguous(counts, schedule, unit, free)
    return lane_loop(counts, unit[0], own) if threads.lanes and len(unit) == 1 else None


def _unit(
    schedule: Schedule, counts: Counts, unit: tuple[str, ...], keep: int, threads: Threads
) -> tuple[Schedule, str | None]:
    """One perfect loop nest bound to threads; and the loop over steps of a contraction, if operands may be staged."""
    name = unit[0]
    loops = schedule.loops(name)[keep:]
    placed = dict(threads.points)
    step = None
    if not is_perfect(schedule, unit):
        pass  # a loop in order around several parts: only what is outside it goes to threads
    elif threads.across is None:
        schedule, step = _stepped(schedule, counts, name, loops, placed)
    else:
        own = tuple(x for x in loops if x.name not in placed and x.bind is None and counts.parallel(x))
        if own:
            across = contiguous(counts, schedule, unit, own)
            if threads.lanes and not within(schedule, name, across, threads.limit):
                schedule = schedule.split(name, across.name, threads.limit)
                across = inside(schedule, name, across.name)
            schedule, across_name = _at_most(schedule, name, across, threads.limit)
            placed[across_name] = threads.across
        elif threads.lanes and len(unit) == 1:
            inner = tuple(loop for loop in loops if loop.name not in placed and loop.bind is None)
            schedule = by_lanes(schedule, counts, name, inner, threads.limit)
    around = {loop.name for loop in schedule.loops(name)[keep:]}
    places = {loop: place for loop, place in placed.items() if loop in around}
    return (schedule.bind(name, **places) if places else schedule), step


def _at_most(schedule: Schedule, name: str, loop: Loop, limit: int) -> tuple[Schedule, str]:
    """The loop if it has at most `limit` values, else for j  ->  for j: for j_in, j_in with `limit`."""
    size = constant_extent(schedule, loop)
    if size is not None and size <= limit:
        return schedule, loop.name
    schedule = schedule.split(name, loop.name, limit)
    return schedule, inside(schedule, name, loop.name).name


def _stepped(
    schedule: Schedule, counts: Counts, name: str, loops: tuple[Loop, ...], placed: dict[str, str]
) -> tuple[Schedule, str | None]:
    """for i_in: for j_in: for k  ->  for k (of 16): for i_in: for j_in: for k_in."""
    carried = [loop for loop in loops if loop.name not in placed and not counts.parallel(loop)]
    points = [loop.name for loop in loops if loop.name in placed]
    if not carried or len(points) + len(carried) != len(loops):
        return schedule, None
    last = carried[-1]
    size = constant_extent(schedule, last)
    if size is not None and size <= STEP:
        return schedule, None
    schedule = schedule.split(name, last.name, STEP)
    fine = inside(schedule, name, last.name).name
    order = (*(loop.name for loop in carried), *points, fine)
    return reordered(schedule, name, order), last.name


# -- memory ------------------------------------------------------------------------------------------------------------


def _temporaries(schedule: Schedule, kernel: Kernel, room: int) -> tuple[Schedule, int]:
    """Each temporary of the group in registers if every thread needs one element, its own; else in shared memory."""
    for tensor in internal(kernel):
        users = users_in(schedule, kernel.names, tensor)
        around = common_loops(schedule, users)
        in_block = [loop for loop in around if loop.bind not in THREADS]
        done = None
        if around and _one_each(schedule, users, tensor, around[-1]):
            done = promoted(schedule, tensor, users[0], around[-1].name, "register")
        if done is None and in_block:
            size = buffer_bytes(schedule, in_block[-1], tensor, "shared")
            if size is not None and size <= room:
                done = promoted(schedule, tensor, users[0], in_block[-1].name, "shared")
                room -= size if done is not None else 0
        schedule = done or schedule
    return schedule, room


def _one_each(schedule: Schedule, users: tuple[str, ...], tensor: str, at: Loop) -> bool:
    """True if a thread touches one element in one iteration of a loop: only thread loops inside index the tensor."""
    for name in users:
        s = schedule.nest.statement(name)
        dims = frozenset().union(*(_dims_read(a) for a in s.accesses if a.tensor == tensor))
        loops = schedule.loops(name)
        place = next(p for p, loop in enumerate(loops) if loop is at)
        serial = [loop for loop in loops[place + 1 :] if loop.bind not in THREADS]
        if any(dims & dims_of(loop.date(name)) for loop in serial):
            return False
    return True


def _dims_read(access: Access) -> frozenset[int]:
    """The dimensions of its statement that an access depends on."""
    return frozenset(d for d in range(access.map.dim(IN)) if stride(access, d))


def _operands(schedule: Schedule, kernel: Kernel, name: str, step: str, room: int) -> tuple[Schedule, int]:
    """Stage operands that several threads read in one step of a contraction: all threads copy them first."""
    statement = schedule.nest.statement(name)
    written = {use.tensor for use in kernel.uses if use.written}
    bound = [loop for loop in schedule.loops(name) if loop.bind in THREADS]
    for access in statement.reads:
        dims = _dims_read(access)
        shared = any(not dims & dims_of(loop.date(name)) for loop in bound)
        loop = next(x for x in schedule.loops(name) if x.name == step)
        if access.tensor in written or not shared:
            continue
        size = buffer_bytes(schedule, loop, access.tensor, "shared")
        done = promoted(schedule, access.tensor, name, step, "shared") if size and size <= room else None
        if size is not None and done is not None:
            schedule, room = _copied_by_threads(done, bound), room - size
    return schedule, room


def _copied_by_threads(schedule: Schedule, bound: list[Loop]) -> Schedule:
    """The newest copy's loops over the threads that compute: the last along x, the one before along y."""
    copy = next(s.name for s in reversed(_newest(schedule)))
    limits: dict[str | None, int] = {loop.bind: constant_extent(schedule, loop) or 1 for loop in bound}
    own = [loop for loop in schedule.loops(copy) if [n for n, _ in loop.dates] == [copy]]
    places: dict[str, str] = {}
    for place, loop in zip(THREADS[:2], reversed(own), strict=False):
        if place in limits:
            schedule, across = _at_most(schedule, copy, loop, limits[place])
            places[across] = place
    return schedule.bind(copy, **places) if places else schedule


def _newest(schedule: Schedule) -> list[Statement]:
    """The copy statements of a schedule, oldest first: `promote` names each tensor's buffer last."""
    buffers = [t.name for t in schedule.nest.tensors if t not in schedule.source.tensors]
    writers = {s.write.tensor: s for s in schedule.nest.statements}
    return [writers[buffer] for buffer in buffers]

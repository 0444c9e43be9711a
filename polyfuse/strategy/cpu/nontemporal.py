"""Use nontemporal stores for results that are larger than the caches keep for a reader.

    for i: y[i] = x[i] / s     ->   for i (of 65536): for i_in (vector, streams y): y[…] = x[…] / s

A store reads its line before it changes it, and keeps it where something else was. Where a whole line is overwritten
and will be gone before anybody reads it, both are for nothing: scaling 16M floats took 9.4 ms and 5.0 past the caches
with one thread, 4.4 and 2.6 with two (a Xeon). From when on is the machine's (`CpuMachine.keeps`).
"""

from __future__ import annotations

from dataclasses import replace

from polyfuse.errors import InvalidSchedule
from polyfuse.ir.tree import loops_around
from polyfuse.machine import CpuMachine
from polyfuse.measure import duration
from polyfuse.schedule import Schedule
from polyfuse.schedule.binding import extent
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.kernel_model import LINE, Kernel, internal
from polyfuse.strategy.cost.roofline import KernelCost, Tiling
from polyfuse.strategy.cpu.kernel import shaped
from polyfuse.strategy.transforms.band_verbs import contracted, users_in

BLOCK = 1 << 16
"""Elements of one long row that one core goes through at a time: so many that where it begins and ends, and that a
parallel loop hands it out, costs little."""

EACH = 8
"""Blocks that a core gets at least: others may be slower."""

SHORT = 4 * LINE
"""Bytes of a row whose lines are worth it: the first and the last are stored as always."""


def large_results(kernel: Kernel, counts: Counts, machine: CpuMachine) -> tuple[str, ...]:
    """The kernel's statements that write a result which nobody reads, and which is larger than what caches keep.

    What a sum is added to is read again: for j: y[j] = 0;  for i: for j: y[j] += x[i, j].
    """
    nest, found = counts.nest, []
    for use in kernel.uses:
        users = counts.users[use.tensor]
        alone = nest.tensor(use.tensor).role == "output" and users <= frozenset(kernel.names)
        alone = alone and not any(nest.statement(name).is_reduction for name in users)
        if alone and not use.read and use.elements * use.itemsize > machine.keeps:
            found += [name for name in kernel.names if name in users]
    return tuple(found)


def in_long_blocks(
    schedule: Schedule, kernel: Kernel, counts: Counts, tiling: Tiling, machine: CpuMachine
) -> Schedule | None:
    """A kernel that stores a large result in long blocks, on cores where its tiling has them; None for others.

    for i: S   ->   for i (on cores): for i_in < 65536 (vector): S
    for i (on cores): for j (vector): S   ->   for i (on cores): for i_in < 64: for j (vector): S

    A thread waits for its stores where its block ends.
    """
    large, parallel = large_results(kernel, counts, machine), tiling.parallel
    if not large:
        return None
    if len(kernel.band) == 1 and all(loops_around(schedule.tree, n) == kernel.band for n in kernel.names):
        return _of_one_row(schedule, kernel, parallel is not None, machine)
    if parallel is None:
        return None
    loop, extent = kernel.band[parallel], kernel.extents[parallel]
    written = max(counts.work(name).instances for name in large)
    rows = min(BLOCK * extent // max(1, written), extent // (EACH * machine.units))
    if rows < 2 or tiling.sizes[parallel] > 1:
        return None
    done = shaped(schedule, counts, kernel, replace(tiling, parallel=None), machine)
    return done.split(kernel.names[0], loop.name, rows).bind(kernel.names[0], **{loop.name: "cores"})


def _of_one_row(schedule: Schedule, kernel: Kernel, on_cores: bool, machine: CpuMachine) -> Schedule:
    """for i: { t = …; y[i] = … }   ->   for i (on cores): for i_in < 65536 (vector): { t = …; y[…] = … }"""
    name, (loop,) = kernel.names[0], kernel.band
    blocks = schedule.split(name, loop.name, BLOCK)
    blocks = blocks.vectorize(name, blocks.loops(name)[-1].name)
    if on_cores:
        blocks = blocks.bind(name, **{loop.name: "cores"})
    for tensor in internal(kernel):
        blocks = contracted(blocks, tensor, users_in(blocks, kernel.names, tensor), machine)
    return blocks


def past_caches(
    schedule: Schedule, kernel: Kernel, counts: Counts, cost: KernelCost, machine: CpuMachine
) -> tuple[Schedule, tuple[str, ...]]:
    """A kernel in its final shape with its large results stored past the caches, and a sentence on each."""
    said = []
    for name in large_results(kernel, counts, machine):
        tensor = schedule.nest.statement(name).write.tensor
        use = next(u for u in kernel.uses if u.tensor == tensor)
        nbytes = use.elements * use.itemsize
        sizes = f"its {nbytes} bytes are more than the {machine.keeps} that caches keep for a reader"
        inner = loops_around(schedule.tree, name)[-1:]
        long = [extent(schedule.nest, loop) for loop in inner]
        if long and long[0] is not None and long[0] * use.itemsize < SHORT:
            said.append(f"{tensor} is not stored past the caches: its rows are shorter than {SHORT} bytes.")
            continue
        try:
            schedule = schedule.stream(name)
        except InvalidSchedule as refused:
            said.append(f"{tensor} is not stored past the caches, though {sizes}: {refused}")
            continue
        saved = nbytes / machine.bandwidth(
            machine.level(counts.total_bytes), cost.utilisation * machine.units
        )
        less = f"{duration(saved)} less to read what is overwritten"
        said.append(f"{tensor} is stored past the caches: {sizes}; {less}.")
    return schedule, tuple(said)

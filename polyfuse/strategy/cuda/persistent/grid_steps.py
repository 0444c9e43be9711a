"""Schedule persistent kernels: all blocks run each step of a time loop, with grid barriers between its parts.

    for t: { for i: for j: for k: mac;  for i: for j: gates }
    ->  for t: { mac's blocks, in register tiles;  all blocks meet;  the gates' blocks;  all blocks meet }

Recurrent layers, time steps of stencils, eliminations: the loop that carries the dependences stays in order, and each
part of one of its steps is mapped as it would be alone. That costs one launch, and a meeting of all blocks where the
dependences ask for one (analysis/barriers.py), for each step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise, takewhile
from math import prod

from polyfuse.analysis.bands import facts
from polyfuse.errors import IllegalSchedule, InvalidSchedule, quantity
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.tree import Loop, Sequence, Tree, loops, statements
from polyfuse.machine import GpuMachine
from polyfuse.measure import duration
from polyfuse.schedule import Schedule
from polyfuse.schedule.chains import chain_from
from polyfuse.strategy.candidates import Choose
from polyfuse.strategy.cost.composite import finished_cost
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.kernel_model import Kernel, kernel_of
from polyfuse.strategy.cost.occupancy import occupancy
from polyfuse.strategy.cost.persistent_kernel import grid_meetings, together
from polyfuse.strategy.cost.roofline import KernelCost
from polyfuse.strategy.cuda import time_loops as loops_cuda
from polyfuse.strategy.cuda.persistent.launch_needs import needs_of
from polyfuse.strategy.cuda.persistent.step_choices import decided
from polyfuse.strategy.cuda.persistent.step_parts import Part, mapped, part_of
from polyfuse.strategy.fusion.group_search import aligned, part_with, shared_loops
from polyfuse.strategy.remarks import Reason, Refused
from polyfuse.strategy.transforms.band_verbs import separated
from polyfuse.strategy.transforms.time_loops import Planned

PASS = "grid steps"


def in_order(
    schedule: Schedule, counts: Counts, part: Tree, machine: GpuMachine, choose: Choose
) -> tuple[Planned, KernelCost | None]:
    """A kernel whose outermost loop carries a dependence, by all blocks together or as time_loops.py does it.

    Whichever is cheaper, with its price if that is not the one of a finished kernel.
    """
    names = statements(part)
    usual = loops_cuda.planned(schedule, counts, part, machine)
    if not _waits(counts, _free(schedule, names), part):
        return usual, None
    found = in_grid_steps(schedule, counts, part, machine, choose)
    if isinstance(found, Refused):
        return replace(usual, notes=(*usual.notes, f"not by all blocks together: {found}")), None
    done, cost = found
    own = Counts(usual.schedule.nest)
    kernels = dict.fromkeys(part_with(usual.schedule, name) for name in names)
    alone = sum(finished_cost(own, kernel, machine).total for kernel in kernels)
    if choose.takes(PASS, names, cost.total < alone, "steps", (cost.total, alone)):
        why = f"{duration(alone)} expected, if no block waits for another"
        return replace(done, notes=(*done.notes, why)), cost
    why = f"not by all blocks together: {duration(cost.total)} expected, {duration(alone)} so"
    return replace(usual, notes=(*usual.notes, why)), None


def in_grid_steps(
    schedule: Schedule, counts: Counts, part: Tree, machine: GpuMachine, choose: Choose
) -> tuple[Planned, KernelCost] | Refused:
    """A kernel whose outermost loops run in order, each part of a step on the whole machine; or why not."""
    if machine.gpu.grid_barrier_seconds is None:
        return Refused(
            Reason.OTHER_FORM, "blocks run one after the other here, and none can wait for another"
        )
    names = statements(part)
    schedule, free = _joined(separated(schedule, names, 1), counts, names)
    kernels = tuple(_kernels(counts, free, part_with(schedule, names[0]), ()))
    if not any(kernel.band for kernel in kernels):
        return Refused(Reason.OTHER_FORM, f"nothing runs at once in a step of {kernels[0].around[0].name}")
    alone = len(kernels) == 1
    parts = tuple(part_of(schedule, counts, kernel, alone, machine, choose) for kernel in kernels)
    every = decided(schedule, counts, parts, machine, machine.gpu, choose)
    made = _made(schedule, counts, every, machine)
    usual = tuple(each.unshaped() for each in every)
    if isinstance(made, Refused) and usual != every:
        said = f"in each step factors are read, and parts have blocks of their own: {made}"
        made = _made(schedule, counts, usual, machine)
        if not isinstance(made, Refused):
            made = replace(made[0], notes=(*made[0].notes, said)), made[1]
    return made


def _made(
    schedule: Schedule, counts: Counts, every: tuple[Part, ...], machine: GpuMachine
) -> tuple[Planned, KernelCost] | Refused:
    """All parts of a step on blocks and threads; or why not. What stays is promoted at a loop around all steps."""
    notes: list[str] = []
    costs: list[KernelCost] = []
    around, name = every[0].kernel.around, every[0].kernel.names[0]
    step = next((loop for loop in around if counts.extent(loop) > 1), around[0])
    try:
        if any(part.tile is not None and part.tile.held is not None for part in every):
            whole = part_with(schedule, name)
            run = fresh("run", {loop.name for loop in loops(whole)})
            schedule = schedule.join(name, statements(whole)[-1], loop=run)
            every = tuple(part.inside(schedule.loops(name)[0]) for part in every)
        for part in every:
            schedule, cost, said = mapped(schedule, counts, part, machine)
            costs.append(cost)
            notes += said
        met = schedule.synchronised()
    except (IllegalSchedule, InvalidSchedule) as error:
        return Refused(Reason.ILLEGAL, str(error))
    crowded = _crowded(met, name, every, machine)
    if crowded is not None:
        return crowded
    meetings = grid_meetings(Counts(met.nest), part_with(met, name))
    return _priced(Planned(schedule, tuple(notes)), step.name, meetings, costs, machine)


def _crowded(schedule: Schedule, name: str, every: tuple[Part, ...], machine: GpuMachine) -> Refused | None:
    """The reason why no SM holds a block of the launch, which has the most threads of any part along each axis."""
    needs = needs_of(Counts(schedule.nest), part_with(schedule, name))
    registers = max((part.tile.registers for part in every if part.tile is not None), default=None)
    threads = prod(needs.threads)
    if (
        threads <= machine.gpu.max_threads_per_block
        and occupancy(machine.gpu, threads, registers, needs.shared).blocks
    ):
        return None
    shape = " × ".join(map(str, needs.threads))
    planned = "" if registers is None else f", of {registers} registers each"
    line = f"its parts together need blocks of {shape} threads{planned}, which an SM of {machine.name} cannot hold"
    return Refused(Reason.NO_SIZE, line)


Free = Mapping[int, Loop]
"""Loops whose values may run at once in each value of the loops around them, by identity."""


def _free(schedule: Schedule, names: tuple[str, ...]) -> Free:
    return {id(f.loop): f.loop for f in facts(schedule.nest, part_with(schedule, names[0])) if f.parallel}


def _waits(counts: Counts, free: Free, tree: Tree) -> bool:
    """True if a tree is a loop whose values wait for each other, or that has one only, and something inside is free."""
    if not isinstance(tree, Loop) or (id(tree) in free and counts.extent(tree) > 1):
        return False
    return any(id(loop) in free and counts.extent(loop) > 1 for loop in loops(tree.body))


def _joined(schedule: Schedule, counts: Counts, names: tuple[str, ...]) -> tuple[Schedule, Free]:
    """Neighbours with equal loops over independent values in common ones: what one leaves in a thread others find.

    With the loops that are independent then.
    """
    free = _free(schedule, names)
    for first, second in pairwise(names):
        shared, whole = len(shared_loops(schedule, first, second)), len(schedule.loops(second))
        bands = [_independent(free, schedule.loops(name)[shared:]) for name in (first, second)]
        sizes = [[counts.extent(loop) for loop in band] for band in bands]
        if not sizes[0] or sizes[0] != sizes[1]:
            continue
        done = aligned(schedule, first, second, bands[0][-1].name)
        if not isinstance(done, Schedule) or len(done.loops(second)) != whole:
            continue
        now, common = _free(done, names), shared_loops(done, first, second)[shared:]
        if len(common) == len(bands[0]) and all(id(loop) in now for loop in common):
            schedule, free = done, now
    return schedule, free


def _independent(free: Free, loops: tuple[Loop, ...]) -> tuple[Loop, ...]:
    """The outermost loops whose values may run at once."""
    return tuple(takewhile(lambda loop: id(loop) in free, loops))


def _kernels(counts: Counts, free: Free, tree: Tree, around: tuple[Loop, ...]) -> Iterator[Kernel]:
    """The kernels that steps run in sequence, each inside sequential loops."""
    if isinstance(tree, Sequence):
        for child in tree.children:
            yield from _kernels(counts, free, child, around)
    elif isinstance(tree, Loop) and _waits(counts, free, tree):
        yield from _kernels(counts, free, tree.body, (*around, tree))
    else:
        chain = chain_from(tree) if isinstance(tree, Loop) else ()
        yield replace(kernel_of(counts, tree, _independent(free, chain)), around=around)


def _priced(
    done: Planned, step: str, meetings: int, costs: list[KernelCost], machine: GpuMachine
) -> tuple[Planned, KernelCost]:
    """The kernel with what the model expects of it: its parts', and each meeting of all blocks."""
    total = together([(cost, 1) for cost in costs], meetings, machine)
    several = f", in {len(costs)} parts each" if len(costs) > 1 else ""
    line = (
        f"all blocks take the steps of {step} together{several}: {duration(total.total)} "
        f"expected, {duration(total.meeting_seconds)} of it in {quantity(meetings, 'grid barrier')}"
    )
    return Planned(done.schedule, (line, *done.notes)), total

"""Prefetch rows while the rows before them are computed.

    for i: { for j: m = max(m, x[i, j]);  for j: e[j] = exp(x[i, j] - m), s += e[j];  for j: out[i, j] = e[j] / s }
    ->  the loop with most arithmetic asks for x of the next i, the last one for out of the next i

The first loop over a row waits for memory; the others find the row in L1, and memory has nothing to do meanwhile: the
processor's own prefetchers follow loads, and there are none. Nor do they keep up with a loop whose arithmetic takes
longer than its memory: so few of its loads are on their way at once. One core of a Xeon, ms without and with: softmax
of 4096 × 1024 2.31 and 1.93, layer norm 1.36 and 1.28, a sum of 16M values of ten operations 14.0 and 10.6. Other
processors foresee the next rows (`CpuMachine.foresees`): a Zen 4 takes 1.46 ms for that softmax without, and 1.87 with.
Lines that will be written are what costs most there, and loops of sums in pieces, each of which adds up its lanes.
Overlapping tiles gain on both (Harris' corners 5.1 and 4.5 ms on a Zen 4): they go through several images at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from polyfuse.errors import InvalidSchedule
from polyfuse.ir.scalar import operations
from polyfuse.ir.tree import Leaf, Loop, Tree, loops, parts, statements
from polyfuse.machine import CpuMachine
from polyfuse.measure import duration
from polyfuse.rewrite import Overlapped
from polyfuse.schedule import Schedule
from polyfuse.schedule.binding import extent
from polyfuse.strategy.cost.kernel_model import LINE, Kernel
from polyfuse.strategy.cost.roofline import CACHED, CPU_EXPOSED, KernelCost
from polyfuse.strategy.cost.stencil_stages import StageCost
from polyfuse.strategy.fusion.group_search import part_with

PASS = "prefetch"

ASKING = 0.1e-9
"""Seconds that one such instruction takes: a third of a cycle of the ports for loads."""


SHORT = 64
"""Values of a row that need not be asked for: a few lines."""


def rows_ahead(
    schedule: Schedule, kernel: Kernel, cost: KernelCost, machine: CpuMachine, resident: int
) -> tuple[Schedule, tuple[str, ...]]:
    """A kernel that asks for its next rows, where the model expects that to pay; and a sentence that says so.

    `resident`: bytes of the program. What stays in L2 need not be asked for, nor rows that the machine foresees.
    """
    part = part_with(schedule, kernel.names[0])
    streams = {tensor for loop in loops(part) for tensor in loop.streams}
    outside = tuple(use.tensor for use in kernel.uses if not use.internal and use.tensor not in streams)
    passes = 1 if cost.compute > cost.memory else 2
    rows = _rows(schedule, part, outside, passes)
    asking = kernel.compulsory / LINE * ASKING / (cost.utilisation * machine.units)
    saved = cost.exposed * min(cost.compute, cost.memory) - asking
    if (
        rows is None
        or machine.foresees
        or resident <= machine.levels[CACHED].size
        or saved <= 0
        or not _fits(kernel, rows, machine)
    ):
        return schedule, ()
    tries = {
        tensor: [(name, rows.name) for name in _by_work(schedule, rows, tensor, outside)]
        for tensor in outside
    }
    return _asking(schedule, tries, f"asks for the next {rows.name} while one is computed", saved)


def tiles_ahead(
    schedule: Schedule, made: Overlapped, cost: StageCost, machine: CpuMachine, resident: int
) -> tuple[Schedule, tuple[str, ...]]:
    """Overlapping tiles that ask for the next rows of images while rows are computed, where the model expects a gain.

    Stages that only read temporaries would leave memory with nothing to do; what a pass does with a row takes longer
    than memory takes for it. Harris' corners of 2048² took 5.1 ms without and 4.6 with (one core of a Xeon).
    """
    asking = cost.once / LINE * ASKING / cost.units
    saved = CPU_EXPOSED * min(cost.compute, cost.memory) - asking
    if resident <= machine.levels[CACHED].size or saved <= 0:
        return schedule, ()
    tries: dict[str, list[tuple[str, str]]] = {}
    for name in made.statements:
        inside = schedule.loops(name)[len(made.loops) :]
        for tensor in _tensors(schedule, name) if len(inside) > 1 else ():
            if schedule.nest.tensor(tensor).role != "temporary":
                tries.setdefault(tensor, []).append((name, inside[-2].name))
    return _asking(schedule, tries, "tiles ask for the next rows while some are computed", saved)


def _asking(
    schedule: Schedule, tries: Mapping[str, Sequence[tuple[str, str]]], what: str, saved: float
) -> tuple[Schedule, tuple[str, ...]]:
    """Each tensor asked for ahead at the first (statement, loop) that may; a sentence of those, and why others not."""
    asked, refused = [], []
    for tensor, places in tries.items():
        why = None
        for statement, loop in places:
            try:
                schedule = schedule.prefetch(statement, tensor, loop)
            except InvalidSchedule as error:
                why = str(error)
                continue
            asked.append(f"{statement} for {tensor}")
            break
        else:
            refused += [f"{tensor} is not asked for ahead: {why}"] if why else []
    if not asked:
        return schedule, tuple(refused)
    said = f"{what} ({', '.join(asked)}): {duration(saved)} less waiting for memory."
    return schedule, (said, *refused)


def _rows(schedule: Schedule, tree: Tree, outside: tuple[str, ...], passes: int) -> Loop | None:
    """The loop in which a row of one of the caller's tensors goes by so often, each time in a loop on vector lanes."""
    for loop in loops(tree):
        inside = [part for part in parts(loop.body) if isinstance(part, Loop) and _is_row(schedule, part)]
        touched = [{t for name in statements(part) for t in _tensors(schedule, name)} for part in inside]
        if any(sum(tensor in one for one in touched) >= passes for tensor in outside):
            return loop
    return None


def _is_row(schedule: Schedule, loop: Loop) -> bool:
    size = extent(schedule.nest, loop)
    return loop.bind == "vector" and (size is None or size >= SHORT)


def _tensors(schedule: Schedule, name: str) -> tuple[str, ...]:
    return schedule.nest.statement(name).tensors


def _fits(kernel: Kernel, rows: Loop, machine: CpuMachine) -> bool:
    """True if two rows fit into L1: the current one and the next."""
    names = [loop.name for loop in kernel.band]
    fixed = names.index(rows.name) + 1 if rows.name in names else len(names)
    one = (*(1 for _ in range(fixed)), *kernel.extents[fixed:])
    return 2 * sum(use.bytes_in(one, kernel.extents) for use in kernel.uses) <= machine.levels[0].size


def _by_work(schedule: Schedule, rows: Loop, tensor: str, outside: tuple[str, ...]) -> Iterator[str]:
    """The statements on vector lanes that touch a tensor: first where results stay here, then where work is."""

    def rank(loop: Loop) -> tuple[bool, int]:
        inside = [schedule.nest.statement(name) for name in statements(loop)]
        return any(s.write.tensor in outside for s in inside), -sum(operations(s.body) for s in inside)

    innermost = (x for x in loops(rows) if all(isinstance(part, Leaf) for part in parts(x.body)))
    for loop in sorted((x for x in innermost if _is_row(schedule, x)), key=rank):
        yield from (name for name in statements(loop) if tensor in _tensors(schedule, name))

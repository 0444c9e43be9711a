"""What loops in time cost that run behind each other on cores, step t of each behind the one below."""

from __future__ import annotations

from dataclasses import replace

from polyfuse.analysis.doacross import waiting
from polyfuse.ir.tree import Loop, Tree, children, statements
from polyfuse.machine import CpuMachine
from polyfuse.schedule.sections_verb import parts_of
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.kernel_model import kernel_of
from polyfuse.strategy.cost.read_again import with_again
from polyfuse.strategy.cost.roofline import WAIT_SECONDS, KernelCost, in_blocks


def cost_in_turns(counts: Counts, part: Loop, machine: CpuMachine) -> KernelCost:
    """Each part on one core, the first that is free, a step behind the part before it."""
    alone = [_on_one_core(counts, own, machine) for own in parts_of(part)]
    times = counts.extent(part.body) if isinstance(part.body, Loop) else 1
    seconds = [cost.total - cost.overhead for cost in alone]
    waits = waiting(part, counts.nest.dependences().pairs)
    free = [own * _before(counts, stage, waits) for own, stage in zip(seconds, parts_of(part), strict=True)]
    units = sum(seconds) / _last_end(seconds, free, times, machine.units)
    turns = len(alone) * times * WAIT_SECONDS / machine.units
    return replace(
        alone[0],
        flops=sum(cost.flops for cost in alone),
        compulsory=sum(cost.compulsory for cost in alone),
        again=sum(cost.again for cost in alone),
        utilisation=units / machine.units,
        compute=sum(cost.compute for cost in alone) / units,
        memory=sum(cost.memory for cost in alone) / units,
        overhead=machine.launch_seconds + machine.region_seconds + turns,
    )


def _on_one_core(counts: Counts, part: Tree, machine: CpuMachine) -> KernelCost:
    cost = in_blocks(kernel_of(counts, part, ()), machine, counts.total_bytes, None)
    return with_again(cost, counts, part, (part,), machine) if isinstance(part, Loop) else cost


def _before(counts: Counts, stage: Tree, waits: frozenset[str]) -> float:
    """Which part of a stage's work stands in its steps before anything that waits."""
    steps = children(stage.body) if isinstance(stage, Loop) else ()
    first = next((place for place, part in enumerate(steps) if part.members & waits), 0)
    work = [sum(counts.work(name).operations.effort() for name in statements(part)) for part in steps]
    return sum(work[:first]) / sum(work) if first else 0.0


def _last_end(seconds: list[float], free: list[float], times: int, units: int) -> float:
    """When the last part ends; of each step a part `free` comes before it waits for the part before.

    >>> _last_end([10.0, 10.0], [0, 0], 10, 2), _last_end([10.0] * 3, [0, 0, 0], 10, 2)
    (11.0, 20.0)
    >>> _last_end([10.0, 10.0], [0, 0], 10, 1)
    20.0
    >>> _last_end([10.0, 10.0], [0.0, 5.0], 10, 2)
    10.5
    """
    cores, begun, ended = [0.0] * units, 0.0, 0.0
    for position, own in enumerate(seconds):
        core = min(range(units), key=lambda c: cores[c])
        below, ready = (seconds[position - 1] if position else 0.0) / times, free[position] / times
        begun = max(cores[core], begun + max(0.0, below - ready))
        ended = max(begun + own, ended + (own / times - ready if position else 0.0))
        cores[core] = ended
    return ended

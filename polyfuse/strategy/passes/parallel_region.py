"""Join consecutive kernels into one parallel region with waits between them, for small networks on several cores.

    for i (cores): A;  for j (cores): B;  …   ->   for region in 0: { for i (cores): A;  for j (cores): B;  … }

A region costs microseconds each time that cores are woken for one, a wait less than one (worksharing.py). What
pays in loops over cores depends on that: a layer that is not worth a region may be worth a wait, or two layers that are
one kernel for the sake of its region. So a second plan is made, for a machine on which a region costs what a wait does,
its kernels are joined where cores share out their loops in the way that waiting needs, the others pay for the region
that they have, and the cheaper plan is taken. Kernels that run once for all calls come first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import prod

from polyfuse.analysis.storage import buffers_of, geometry
from polyfuse.errors import quantity
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import ON_CORES, Tree, loops, parts, statements
from polyfuse.machine import CpuMachine
from polyfuse.measure import duration
from polyfuse.schedule import Schedule
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.kernel_model import band_of
from polyfuse.strategy.cost.parallel_regions import is_on_cores, region_cost
from polyfuse.strategy.cost.roofline import REGION_AGAIN, WAIT_SECONDS, KernelCost
from polyfuse.strategy.driver import Start
from polyfuse.strategy.options import PlannerOptions
from polyfuse.strategy.plan import Group, Plan
from polyfuse.strategy.remarks import Remark, weighed

PASS = "parallel region"

LEAST = 0.05
"""The part of the time that has to be saved: machine code for a region of eight layers takes twice as long."""


def in_one_region(start: Start, plan: Plan, again: Callable[[PlannerOptions], Plan]) -> Plan:
    """The plan, or one with runs of kernels in one region each where the regions saved cost more than the waits.

    `again` makes the plan with other options. Forced, it joins what can be joined, whatever that takes.
    """
    machine, apart = _machine(plan), seconds_at_once(plan)
    wanted = start.choose.forces(PASS)
    if machine.units == 1 or not (wanted or at_best(plan) <= (1 - LEAST) * apart):
        return plan
    waiting = again(PlannerOptions(joined_regions=True))
    joined = _in_regions(_early_first(waiting), machine)
    if joined is None or not (wanted or seconds_at_once(joined.plan) <= (1 - LEAST) * apart):
        return plan
    together, names = seconds_at_once(joined.plan), statements(joined.plan.schedule.tree)
    if not start.choose.takes(PASS, (names[0], names[-1]), True, "regions", (together, apart)):
        return plan
    return joined.plan.with_remarks(*joined.remarks(together, apart, wanted))


def _machine(plan: Plan) -> CpuMachine:
    """The CPU that a plan is for."""
    assert isinstance(plan.machine, CpuMachine), "regions are a CPU's"
    return plan.machine


@dataclass(frozen=True)
class Joined:
    """A plan with runs of kernels in one region each, and these runs, the last one first."""

    plan: Plan
    runs: tuple[tuple[Tree, ...], ...]

    def remarks(self, together: float, apart: float, chosen: bool) -> Iterator[Remark]:
        """One for each run, with what the whole plan takes so and `apart`."""
        numbers = f"{duration(together)} so, {duration(apart)} with a region for each kernel."
        for run in self.runs:
            names = tuple(name for kernel in run for name in statements(kernel))
            line = f"{_sentence(run)} {numbers}" if run is self.runs[-1] else _sentence(run)
            yield weighed(PASS, names, True, line, together, apart, chosen)


def seconds_at_once(plan: Plan) -> float:
    """The seconds of a plan's kernels in sequence: threads are awake for all regions but the first."""
    kernels = zip(parts(plan.schedule.tree), plan.once, strict=True)
    regions = sum(is_on_cores(kernel) for kernel, early in kernels if not early)
    return plan.seconds - max(0, regions - 1) * max(0.0, _machine(plan).region_seconds - REGION_AGAIN)


def at_best(plan: Plan) -> float:
    """Seconds that no plan in one region is expected to take less than."""
    return max(_with_all_cores(plan), _with_all_regions_saved(plan))


def _with_all_regions_saved(plan: Plan) -> float:
    """A bound by what was chosen for the sake of regions: one core for a kernel, and each fusion.

    Two that are fused cost more apart, each with its region: with a wait instead they cost so much less at most.
    """
    saved, further = (max(0.0, each - WAIT_SECONDS) for each in (_machine(plan).region_seconds, REGION_AGAIN))
    kernels = zip(parts(plan.schedule.tree), plan.once, strict=True)
    shared = [is_on_cores(kernel) for kernel, early in kernels if not early]
    gains = further * sum(shared) + saved * (len(shared) - sum(shared))
    for each in plan.decisions:
        if each.taken and each.cost_together:
            gains += max(0.0, 2 * saved - (each.cost_apart - each.cost_together))
    return seconds_at_once(plan) - gains


def _with_all_cores(plan: Plan) -> float:
    """A bound by the machine: all cores at work in all that has a band, and nothing read again."""
    machine, counts = _machine(plan), Counts.of(plan.schedule)
    kernels = zip(plan.groups, parts(plan.schedule.tree), plan.once, strict=True)
    least = (_at_work(group.cost, counts, kernel, machine) for group, kernel, early in kernels if not early)
    return machine.launch_seconds + machine.region_seconds + sum(least)


def _at_work(cost: KernelCost, counts: Counts, kernel: Tree, machine: CpuMachine) -> float:
    """The same for one kernel, without its launch and its region; one in order stays so."""
    shared = is_on_cores(kernel)
    if not shared and not band_of(counts, kernel):
        return cost.total - machine.launch_seconds
    again = cost.again / max(1, cost.compulsory + cost.again)
    memory = cost.memory * (1 - again) / (1 if shared else machine.units)
    compute = cost.compute * cost.utilisation
    return cost.waiting + max(compute, memory) + cost.exposed * min(compute, memory)


def _early_first(plan: Plan) -> Plan:
    """The kernels that run once for all calls before all others.

    A, early, B, early  ->  early, early, A, B: first B goes behind the last of them, and then A, so that neither passes
    the other.
    """
    order = sorted(range(len(plan.groups)), key=lambda place: not plan.once[place])
    if order == sorted(order):
        return plan
    schedule, last = plan.schedule, max(place for place, early in enumerate(plan.once) if early)
    first_of = [statements(part)[0] for part in parts(schedule.tree)]
    for place in reversed(range(last)):
        if not plan.once[place]:
            schedule = schedule.move(first_of[place], behind=first_of[last])
    return replace(plan, schedule=schedule, groups=tuple(plan.groups[place] for place in order))


def _in_regions(plan: Plan, machine: CpuMachine) -> Joined | None:
    """The plan for `machine` with each run in one region; None if there is no run."""
    kernels = parts(plan.schedule.tree)
    runs = list(_runs(plan.schedule, plan.once))
    more = machine.region_seconds - _machine(plan).region_seconds
    groups = [
        replace(group, cost=replace(group.cost, overhead=group.cost.overhead + more))
        if is_on_cores(kernel) and not early
        else group
        for group, kernel, early in zip(plan.groups, kernels, plan.once, strict=True)
    ]
    schedule, joined = plan.schedule, list[tuple[Tree, ...]]()
    for start, stop in reversed(runs):
        run, own = kernels[start:stop], groups[start:stop]
        names = tuple(name for kernel in run for name in statements(kernel))
        taken = {loop.name for kernel in run for loop in loops(kernel)}
        schedule = schedule.join(names[0], names[-1], loop=fresh("region", taken))
        joined.append(run)
        cost = region_cost(run, [group.cost for group in own], machine)
        groups[start:stop] = [Group(names, cost, parts=tuple(own))]
    if not runs:
        return None
    return Joined(Plan(schedule, plan.decisions, tuple(groups), machine, plan.remarks), tuple(joined))


def _sentence(run: Sequence[Tree]) -> str:
    saved, waits = sum(map(is_on_cores, run)) - 1, len(run) - 1
    return (
        f"{run[0].names[0]} to {run[-1].names[-1]}: {len(run)} kernels are one parallel region, in which the cores "
        f"wait for each other: {quantity(saved, 'region')} of {duration(REGION_AGAIN)} less, "
        f"{quantity(waits, 'wait')} of {duration(WAIT_SECONDS)} more;"
    )


def _runs(schedule: Schedule, once: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """(the first, the one behind the last) of as many kernels as can be joined, of which the ends are on cores."""
    kernels = parts(schedule.tree)
    able = [
        not early and _may_wait(schedule.nest, kernel) for kernel, early in zip(kernels, once, strict=True)
    ]
    for joins, places in groupby(range(len(kernels)), key=able.__getitem__):
        shared = [place for place in places if is_on_cores(kernels[place])]
        if joins and len(shared) > 1:
            yield shared[0], shared[-1] + 1


def _may_wait(nest: Nest, kernel: Tree) -> bool:
    """True if a kernel can be a part of a region: no values handed out one by one, no variable for all cores."""
    if any(loop.bind in ON_CORES and loop.bind != "cores" for loop in loops(kernel)):
        return False
    own = {id(inside) for loop in loops(kernel) if loop.bind == "cores" for inside in loops(loop)}
    return all(
        id(loop) in own or prod(geometry(nest, kernel, loop, buffer).shape) > 1
        for loop, buffer in buffers_of(kernel)
    )

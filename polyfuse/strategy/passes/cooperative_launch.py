"""Join consecutive kernels of few blocks into one cooperative launch with grid barriers, for deep networks on a GPU.

    for blocks: A;  for blocks: B;  …   ->   for launch in 0: { for blocks: A;  grid barrier;  for blocks: B;  … }

A launch costs more than a grid barrier does, and a layer of few rows takes about as long as its launch. All blocks have
to be on the GPU at once, with what every part needs: the longest block along each axis, the shared memory of all parts
together, and registers that only the compiler knows, so the most that a thread may have are counted. Kernels are taken
in order as long as they fit, eight at most; what does not is a launch of its own, or begins the next one.

Blocks with a warp that only copies meet nobody, and have a launch of their own. So where some have one, the plan is
made without such warps too, and what costs less is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod

from polyfuse.analysis.across_blocks import is_resident
from polyfuse.analysis.producer_consumer import in_own_warps
from polyfuse.errors import quantity
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.tree import Tree, loops, parts, statements
from polyfuse.machine import GpuMachine
from polyfuse.measure import duration
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.persistent_kernel import together
from polyfuse.strategy.cost.roofline import KernelCost
from polyfuse.strategy.cuda.persistent.launch_needs import Needs, needs_of
from polyfuse.strategy.driver import Start
from polyfuse.strategy.options import PlannerOptions
from polyfuse.strategy.plan import Group, Plan
from polyfuse.strategy.remarks import Remark, weighed

PASS = "cooperative launch"

FEWEST = 4
"""Kernels that are worth one launch. What a launch costs in a graph is not measured, perhaps a fifth of what the model
counts, and a kernel of many parts compiles longer: two or three launches saved are not worth the doubt."""

MOST = 8
"""Kernels in one launch. numba takes time quadratic in what a kernel holds: 0.5 s for one layer of 512 at batch 64, 1.8
for 4, 4.6 for 8 and 11 for 12 (one Zen 5 core)."""


@dataclass(frozen=True)
class Run:
    """Kernels from the one at `start` on, and what one launch of them needs."""

    start: int
    kernels: tuple[Tree, ...]
    needs: Needs

    @property
    def stop(self) -> int:
        """The place behind the last one."""
        return self.start + len(self.kernels)


def in_one_launch(start: Start, plan: Plan, again: Callable[[PlannerOptions], Plan]) -> Plan:
    """The plan with runs of kernels in one launch each, where the launches saved cost more than the grid barriers.

    `again` makes the plan with other options.
    """
    machine, wanted = plan.machine, start.choose.forces(PASS)
    assert isinstance(machine, GpuMachine), "launches are a GPU's"
    joined = _in_one_launch(plan, machine, wanted)
    if plan.schedule.nest.params or not in_own_warps(plan.schedule.tree):
        return joined
    longest = max((len(run.kernels) for run in _runs(plan, machine, meeting=True)), default=0)
    if longest < (2 if wanted else FEWEST):
        return joined
    others = replace(again(PlannerOptions(copying_warps=False)), machine=plan.machine)
    able = [each for each in (joined, others) if _has_one_launch(each)] if wanted else []
    return min(able or [joined, others], key=lambda each: sum(group.cost.total for group in each.groups))


def _has_one_launch(plan: Plan) -> bool:
    """True if kernels of a plan are one launch."""
    return any(remark.pass_ == PASS and remark.taken for remark in plan.remarks)


def _in_one_launch(plan: Plan, machine: GpuMachine, wanted: bool) -> Plan:
    """The plan with the runs that are worth it in one launch each; all of them if that is `wanted`."""
    fewest = 2 if wanted else FEWEST
    if plan.schedule.nest.params or len(plan.groups) < fewest:
        return plan
    if not wanted and machine.gpu.meeting_seconds(1) >= machine.launch_seconds:
        return plan
    runs = _runs(plan, machine, meeting=False)
    for run in reversed([run for run in runs if len(run.kernels) >= fewest]):
        plan = _joined(plan, run, machine, wanted)
    return plan


def _joined(plan: Plan, run: Run, machine: GpuMachine, chosen: bool) -> Plan:
    first, last = run.kernels[0].names[0], run.kernels[-1].names[-1]
    taken = {loop.name for kernel in run.kernels for loop in loops(kernel)}
    schedule = plan.schedule.join(first, last, loop=fresh("launch", taken))
    own = plan.groups[run.start : run.stop]
    waits = len(own) - 1
    cost = together([(group.cost, 1) for group in own], waits, machine)
    names = tuple(name for kernel in run.kernels for name in statements(kernel))
    remark = _remark(run, names, cost, sum(group.cost.total for group in own), machine, chosen)
    groups = (*plan.groups[: run.start], Group(names, cost, parts=own), *plan.groups[run.stop :])
    return replace(plan, schedule=schedule, groups=groups).with_remarks(remark)


def _remark(
    run: Run, names: tuple[str, ...], cost: KernelCost, apart: float, machine: GpuMachine, chosen: bool
) -> Remark:
    count, blocks = len(run.kernels), prod(run.needs.blocks)
    line = (
        f"{run.kernels[0].names[0]} to {run.kernels[-1].names[-1]}: {count} kernels are one launch of {blocks} blocks "
        f"that wait for each other ({machine.name} holds {run.needs.held(machine)} at once): "
        f"{quantity(count - 1, 'launch', 'launches')} of {duration(machine.launch_seconds)} less, "
        f"{quantity(cost.meetings, 'grid barrier')} of {duration(machine.gpu.meeting_seconds(1))} more; "
        f"{duration(cost.total)} so, {duration(apart)} apart."
    )
    return weighed(PASS, names, True, line, cost.total, apart, chosen)


def _runs(plan: Plan, machine: GpuMachine, meeting: bool) -> Iterator[Run]:
    """Kernels that follow each other and fit into one launch, as many as possible, from the first on.

    `meeting`: as if those with a warp that only copies could meet others.
    """
    counts = Counts(plan.schedule.nest)
    open_: Run | None = None
    for place, (kernel, early) in enumerate(zip(parts(plan.schedule.tree), plan.once, strict=True)):
        apart = early or is_resident(kernel) or (in_own_warps(kernel) and not meeting)
        needs = None if apart else needs_of(counts, kernel)
        if open_ is not None and needs is not None and len(open_.kernels) < MOST:
            both = open_.needs.beside(needs)
            if both is not None and prod(both.blocks) <= both.held(machine):
                open_ = Run(open_.start, (*open_.kernels, kernel), both)
                continue
        if open_ is not None:
            yield open_
        fits = needs is not None and prod(needs.blocks) <= needs.held(machine)
        open_ = Run(place, (kernel,), needs) if needs is not None and fits else None
    if open_ is not None:
        yield open_

"""The strategy as one function: nest and machine in, finished schedule and the reasons for it out."""

from __future__ import annotations

from polyfuse.analysis.storage import BLOCKS
from polyfuse.ir import Nest
from polyfuse.ir.tree import Loop, Tree, statements
from polyfuse.machine import Machine
from polyfuse.schedule import Schedule
from polyfuse.schedule.chains import chain_from
from polyfuse.strategy import cpu, cuda
from polyfuse.strategy.cost import KernelCost, Model, Tiling, cost_of
from polyfuse.strategy.counts import Counts
from polyfuse.strategy.decisions import Group, Plan
from polyfuse.strategy.fusion import parts_of, search
from polyfuse.strategy.kernel import band_of, kernel_of


def plan_for(nest: Nest, machine: Machine, fuse: bool = True) -> Plan:
    """The schedule that the cost model finds best for a machine, by public verbs only.

    `fuse=False` is the baseline: every statement is a kernel, but a reduction's first value belongs with it, and each
    kernel is tiled and bound as the same kernel would be in a fused plan.
    """
    counts = Counts(nest)
    model = Model(counts, machine)
    schedule, decisions = search(nest, model, fuse)
    program = cpu.shaped if machine.kind == "cpu" else cuda.shaped
    groups = []
    for part in parts_of(schedule):
        kernel, cost = model.kernel(part), model.cost(part)
        groups.append(Group(statements(part), cost))
        if not any(counts.work(name).instances for name in kernel.names):
            continue  # a batch of size 0: there is nothing to tile
        schedule = program(schedule, counts, kernel, cost.tiling, machine)
    return Plan(schedule, decisions, tuple(groups), machine)


def schedule_costs(schedule: Schedule, machine: Machine) -> tuple[KernelCost, ...]:
    """What the model expects of each kernel of a schedule as it stands, in order."""
    counts = Counts(schedule.nest)
    costs = []
    for part in parts_of(schedule):
        kernel = kernel_of(counts, part, band_as_bound(counts, part, machine.kind))
        sizes, order = (1,) * len(kernel.band), tuple(range(len(kernel.band)))
        parallel = next((p for p, loop in enumerate(kernel.band) if loop.bind == "cores"), None)
        costs.append(cost_of(kernel, machine, counts.total_bytes, Tiling(sizes, order, parallel)))
    return tuple(costs)


def band_as_bound(counts: Counts, part: Tree, kind: str) -> tuple[Loop, ...]:
    """The loops whose values are a finished kernel's tasks: those on blocks; on a CPU, down to the vector loop."""
    if kind == "cuda":
        return (
            tuple(loop for loop in chain_from(part) if loop.bind in BLOCKS) if isinstance(part, Loop) else ()
        )
    band = band_of(counts, part)
    inner = next((p for p, loop in enumerate(band) if loop.bind in ("vector", "unroll")), len(band))
    return band[:inner]

"""The strategy as one function: nest and machine in, finished schedule and the reasons for it out."""

from __future__ import annotations

from polyfuse.ir import Nest
from polyfuse.ir.tree import statements
from polyfuse.machine import Machine
from polyfuse.strategy import cpu, cuda
from polyfuse.strategy.cost import Model
from polyfuse.strategy.counts import Counts
from polyfuse.strategy.decisions import Group, Plan
from polyfuse.strategy.fusion import parts_of, search


def plan(nest: Nest, machine: Machine, fuse: bool = True) -> Plan:
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
        schedule = program(schedule, counts, kernel, cost.tiling, machine)
    return Plan(schedule, decisions, tuple(groups), machine)

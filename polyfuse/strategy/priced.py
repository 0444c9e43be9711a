"""What a whole nest costs by the model, for the choice between a nest and a rewritten one."""

from __future__ import annotations

from polyfuse.ir import Nest
from polyfuse.ir.tree import parts, statements
from polyfuse.machine import Machine
from polyfuse.schedule import Schedule
from polyfuse.strategy.cost import Model
from polyfuse.strategy.counts import Counts
from polyfuse.strategy.fusion import early_statements, search


def price(nest: Nest, machine: Machine) -> float:
    """Seconds of a call's kernels after the search for groups, each in its best tiling.

    On a CPU kernels that depend on constants alone run once for all calls, and count nothing.
    """
    model = Model(Counts(nest), machine)
    schedule, _ = search(Schedule(nest), model, fuse=True)
    early = early_statements(nest, nest.order)
    calls = (part for part in parts(schedule.tree) if early.isdisjoint(statements(part)))
    return sum(model.cost(part).total for part in calls)

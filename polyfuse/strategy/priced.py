"""What a whole nest costs by the model, for the choice between a nest and a rewritten one."""

from __future__ import annotations

from polyfuse.ir import Nest
from polyfuse.ir.tree import parts
from polyfuse.machine import Machine
from polyfuse.schedule import Schedule
from polyfuse.strategy.cost import Model
from polyfuse.strategy.counts import Counts
from polyfuse.strategy.fusion import search


def price(nest: Nest, machine: Machine) -> float:
    """Seconds of a nest's kernels after the search for groups, each in its best tiling."""
    model = Model(Counts(nest), machine)
    schedule, _ = search(Schedule(nest), model, fuse=True)
    return sum(model.cost(part).total for part in parts(schedule.tree))

"""Run time loops as a wavefront on cores: the layers of a recurrent network, each step after the layer below's.

    x @ w0 of all times;  for t: layer 0;  h0 @ w1 of all times;  for t: layer 1
    ->  for l (pipeline): for t: { l = 0: x[t] @ w0; layer 0's step    l = 1: h0[t] @ w1; layer 1's step }

Apart, each layer's rows are shared out: no core waits for another one, but few rows are no full tiles, a single row
is one core's alone, and every core reads every layer's weights. Behind each other a core has whole steps and the
weights of its own layer. What that costs is waiting: a layer begins one step after the one below, and a layer without a
core until one is free. A layer's product with its own state does not need the one below: it comes first, and a layer
then waits in the middle of its step, half a step behind.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from polyfuse.analysis.doacross import waiting
from polyfuse.errors import IllegalSchedule, InvalidSchedule
from polyfuse.ir import Nest
from polyfuse.ir.tree import SHARED, Loop, Tree, loops, parts, statements
from polyfuse.machine import CpuMachine, Machine
from polyfuse.measure import duration
from polyfuse.schedule import Schedule
from polyfuse.strategy.candidates import Choose
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.kernel_model import kernel_of
from polyfuse.strategy.cost.read_again import with_again
from polyfuse.strategy.cost.roofline import Model
from polyfuse.strategy.cpu.gemm.recurrence import each_alone, stepped
from polyfuse.strategy.fusion.group_search import part_with
from polyfuse.strategy.match.gemm import products_among
from polyfuse.strategy.options import PlannerOptions
from polyfuse.strategy.plan import Plan
from polyfuse.strategy.remarks import Reason, Refused, weighed
from polyfuse.strategy.transforms.band_verbs import where_legal
from polyfuse.strategy.transforms.time_loops import Planned

PASS = "wavefront"

NOT_BEHIND = "loops in time do not run behind each other on cores"

LAYER = "layer"
"""The name of the loop over such parts."""


@dataclass(frozen=True)
class Stage:
    """A loop in order with products in it, and the kernels of products that nobody else reads."""

    part: Loop
    feeding: tuple[Tree, ...]

    @property
    def product(self) -> str:
        """The first statement, by which verbs find the loop."""
        return self.part.names[0]


def stages(schedule: Schedule, model: Model) -> tuple[Stage, ...]:
    """The loops in time of a schedule, in order."""
    found, open_ = [], []
    for part in parts(schedule.tree):
        products = products_among(schedule.nest, statements(part))
        if not products or not isinstance(part, Loop) or not isinstance(model.machine, CpuMachine):
            continue
        if model.kernel(part).band:
            open_.append(part)
        elif len(part.names) > 1:
            feeding = tuple(other for other in open_ if _readers(schedule, other) <= part.members)
            found.append(Stage(part, feeding))
    return tuple(found)


def _readers(schedule: Schedule, part: Tree) -> frozenset[str]:
    """The statements outside of a part that read what it writes."""
    pairs = schedule.nest.dependences().pairs
    sinks = frozenset(p.sink for p in pairs if p.kind == "flow" and p.source in part.members)
    return sinks - part.members


@dataclass(frozen=True)
class Behind:
    """The loops in time as one kernel: as it is to be shaped with the others, and already in shape."""

    grouped: Schedule
    names: tuple[str, ...]
    stages: tuple[Stage, ...]
    shaped: Planned


def may_run_behind(nest: Nest, machine: Machine) -> bool:
    """True if a nest has two loops around products and other statements at all, and the machine two cores."""
    around = (part for part in parts(nest.order) if isinstance(part, Loop) and len(part.names) > 1)
    if not isinstance(machine, CpuMachine) or machine.units < 2:
        return False
    return sum(bool(products_among(nest, part.names)) for part in around) > 1


def behind_each_other(schedule: Schedule, model: Model, choose: Choose) -> Behind | Refused | None:
    """All loops in time in one pipeline, its products in blocks for one core; why not, or None without two of them."""
    found, machine = stages(schedule, model), model.machine
    if len(found) < 2 or not isinstance(machine, CpuMachine):
        return None
    try:
        grouped = _in_one_loop(schedule, found)
        grouped.bind(found[0].product, **{LAYER: "pipeline"})  # refused before anything is in blocks
        grouped = _waiting_late(grouped, found)
        part = part_with(grouped, found[0].product)
        kernel, alone = kernel_of(model.counts, part, ()), PlannerOptions(one_core=True).on(machine)
        products = tuple(choices[0] for choices in products_among(grouped.nest, kernel.names))
        done = stepped(grouped, model.counts, kernel, products, alone, choose, rows=True)
        if isinstance(done, Refused):
            return Refused(done.reason, f"{NOT_BEHIND}: {done}")
        bound = done.schedule.bind(kernel.names[0], **{LAYER: "pipeline"})
    except (IllegalSchedule, InvalidSchedule) as error:
        return Refused(Reason.ILLEGAL, f"{NOT_BEHIND}: {error}")
    return Behind(grouped, kernel.names, found, replace(done, schedule=bound))


def _in_one_loop(schedule: Schedule, found: tuple[Stage, ...]) -> Schedule:
    """for t: A;  for t: B   ->   for l: for t: { A at l = 0; B at l = 1 }, each with the products that feed it."""
    for stage in found:
        for other in reversed(stage.feeding):
            name = products_among(schedule.nest, statements(other))[0][0].statement
            schedule = schedule.fuse(stage.product, name, at=stage.part.name)
    schedule = schedule.sections(*(stage.product for stage in found), loop=LAYER)
    for stage in found[1:]:
        schedule = schedule.fuse(found[0].product, stage.product, at=found[0].part.name)
    return schedule


def _waiting_late(schedule: Schedule, found: tuple[Stage, ...]) -> Schedule:
    """for t: { z += below[t] @ w;  z += h[t] @ u }  ->  for t: { z += h[t] @ u;  z += below[t] @ w }, where legal.

    A stage's products that need nothing of the stage before come before those that do: only these wait.
    """
    part = part_with(schedule, found[0].product)
    assert isinstance(part, Loop), "sections have made it"
    schedule = each_alone(schedule, part.names)
    waits = waiting(part, schedule.nest.dependences().pairs)
    for stage in found:
        members = stage.part.members.union(*(other.members for other in stage.feeding))
        products = [own[0].statement for own in products_among(schedule.nest, part.names)]
        own = [name for name in products if name in members]
        ready = [place for place, name in enumerate(own) if name not in waits]
        last = own[ready[-1]] if ready else ""
        for name in own[: own.index(last) if ready else 0]:
            if name in waits:
                schedule = where_legal(schedule, "move", name, last)
    return schedule


def cheaper_in_turns(usual: Plan, other: Plan, behind: Behind, counts: Counts, choose: Choose) -> Plan:
    """The cheaper of two plans, the `other` one with loops behind each other, and what the model says of both."""
    apart = usual.seconds + sum(_reading_again(usual, stage, counts) for stage in behind.stages)
    together = other.seconds
    pays = choose.takes(PASS, behind.names, together < apart)
    cost = next(group.cost for group in other.groups if set(behind.names) <= set(group.statements))
    before, after = (sum(g.cost.compulsory for g in plan.groups) for plan in (usual, other))
    kept = f"{abs(before - after)} bytes {'less' if after <= before else 'more'} between kernels and memory"
    layers = ", ".join(stage.product for stage in behind.stages)
    form = "run behind each other on cores" if pays else "do not run behind each other on cores"
    line = (
        f"the loops of {layers} {form}: {duration(together)} "
        f"for all kernels with {cost.utilisation:.0%} of the cores at work and {kept}, {duration(apart)} with each "
        "loop by itself."
    )
    chosen = other if pays else usual
    return chosen.with_remarks(
        weighed(PASS, behind.names, pays, line, together, apart, choose.wished(PASS, behind.names))
    )


def _reading_again(plan: Plan, stage: Stage, counts: Counts) -> float:
    """The extra seconds of a loop with its products alone: prices in blocks do not include data that is read again."""
    known, own = {}, Counts.of(plan.schedule)
    for name in (stage.product, *(other.names[-1] for other in stage.feeding)):
        part = part_with(plan.schedule, name)
        if isinstance(part, Loop) and any(loop.bind == "microkernel" for loop in loops(part)):
            at, seen = (stage.part, counts) if name == stage.product else (part, own)
            cost = next(group.cost for group in plan.groups if name in group.statements)
            shared = plan.machine.units if at is part and part.bind in SHARED else 1
            known[id(part)] = with_again(cost, seen, at, (at,), plan.machine, shared).total - cost.total
    return sum(known.values())

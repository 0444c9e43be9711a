"""What the model expects of kernels as they stand, once their loops are cut and bound."""

from __future__ import annotations

from collections.abc import Iterator

from polyfuse.analysis.across_blocks import is_resident
from polyfuse.analysis.storage import BLOCKS
from polyfuse.ir.tree import SHARED, Loop, Tree, parts, statements
from polyfuse.ir.tree import loops as loops_of
from polyfuse.machine import Machine
from polyfuse.schedule import Schedule
from polyfuse.schedule.chains import chain_from
from polyfuse.schedule.sections_verb import values_of
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.cpu_loops import Estimator
from polyfuse.strategy.cost.factorization_cost import in_tiles, panel_cost, panels_beside
from polyfuse.strategy.cost.kernel_model import band_of, kernel_of
from polyfuse.strategy.cost.load_balance import cores_at_work
from polyfuse.strategy.cost.parallel_regions import joined_kernels, region_cost
from polyfuse.strategy.cost.persistent_kernel import resident_cost, with_meetings
from polyfuse.strategy.cost.roofline import KernelCost, Tiling, cost_of, in_blocks
from polyfuse.strategy.passes.wavefront import cost_in_turns
from polyfuse.strategy.plan import Group
from polyfuse.strategy.transforms import time_loops as loops


def kernels_of(schedule: Schedule, names: tuple[str, ...], machine: Machine) -> Iterator[Group]:
    """The kernels of these statements alone, in order."""
    counts = Counts(schedule.nest)
    for part in parts(schedule.tree):
        if set(statements(part)) <= set(names):
            yield Group(statements(part), finished_cost(counts, part, machine))


def finished_cost(counts: Counts, part: Tree, machine: Machine) -> KernelCost:
    """What the model expects of one kernel as it stands."""
    if isinstance(part, Loop) and part.bind == "pipeline" and values_of(part):
        return cost_in_turns(counts, part, machine)
    if machine.kind == "cuda" and is_resident(part):
        return resident_cost(counts, part, machine, lambda inside: finished_cost(counts, inside, machine))
    joined = joined_kernels(counts.nest, part) if machine.kind == "cpu" else ()
    if joined:
        return region_cost(joined, [finished_cost(counts, each, machine) for each in joined], machine)
    band = band_as_bound(counts, part, machine.kind)
    places = {loop.bind: loop for loop in loops_of(part)}
    tiled = in_tiles(part) if machine.kind == "cpu" else frozenset[str]()
    panels = panels_beside(counts.nest, statements(part), tiled)
    if panels and isinstance(part, Loop):
        return panel_cost(counts, part, panels, machine)
    if "microkernel" in places:
        cores = next((places[place] for place in SHARED if place in places), None)
        at_work = cores_at_work(counts, cores, machine.units) if cores is not None else None
        at_work = machine.units if machine.kind == "cuda" else at_work
        return in_blocks(kernel_of(counts, part, ()), machine, counts.total_bytes, at_work)
    if machine.kind == "cpu" and not band:
        return loops.cost_from(counts, part, Estimator(counts, machine).of(part), machine)
    kernel = kernel_of(counts, part, band)
    sizes, order = (1,) * len(kernel.band), tuple(range(len(kernel.band)))
    parallel = next((p for p, loop in enumerate(kernel.band) if loop.bind in SHARED), None)
    return cost_of(kernel, machine, counts.total_bytes, Tiling(sizes, order, parallel))


def schedule_costs(schedule: Schedule, machine: Machine) -> tuple[KernelCost, ...]:
    """What the model expects of each kernel of a schedule as it stands, in order."""
    counts = Counts(schedule.nest)
    return tuple(finished_cost(counts, part, machine) for part in parts(schedule.tree))


def band_as_bound(counts: Counts, part: Tree, kind: str) -> tuple[Loop, ...]:
    """The loops whose values are a finished kernel's tasks: those on blocks; on a CPU, down to the vector loop."""
    if kind == "cuda":
        return (
            tuple(loop for loop in chain_from(part) if loop.bind in BLOCKS) if isinstance(part, Loop) else ()
        )
    band = band_of(counts, part)
    inner = next((p for p, loop in enumerate(band) if loop.bind in ("vector", "unroll")), len(band))
    return band[:inner]


def planned_costs(groups: tuple[Group, ...], schedule: Schedule, machine: Machine) -> tuple[KernelCost, ...]:
    """What the plan expects of each kernel, with the grid barriers that the synchronised schedule has."""
    counts = Counts(schedule.nest)
    kernels = zip(groups, parts(schedule.tree), strict=True)
    return tuple(with_meetings(group.cost, counts, kernel, machine) for group, kernel in kernels)

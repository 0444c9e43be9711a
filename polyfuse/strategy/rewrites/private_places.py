"""On a CPU, sums into places that data name get an array for each core, where the arrays are small beside the loop.

    for i: h[idx[i]] += w[i]   ->   for b: p[b, :] = 0
                                    for b (on cores): for i < N / 2: p[b, idx[b N / 2 + i]] += w[b N / 2 + i]
                                    for b: h[:] += p[b, :]

Which element an update changes is not known, so that all of them are in order on one core. Arrays of their own make the
cores independent. They are cleared and added up in the end, which costs an update for each of their elements.
"""

from __future__ import annotations

from polyfuse.ir import Nest
from polyfuse.ir.masks import compared_dims, named_dims
from polyfuse.ir.tree import parts, statements
from polyfuse.machine import CpuMachine, Machine
from polyfuse.measure import duration
from polyfuse.rewrite.reductions.split_reduction import split_reduction, why_not_split_reduction
from polyfuse.sets import SET, bounding_count
from polyfuse.strategy.candidates import Choose, cheapest
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.remarks import Remark, weighed
from polyfuse.strategy.rewrites.split_reduction import reduced_dims

PASS = "private places"

UPDATE = 0.7e-9
"""Seconds of an update of a place in L1: 0.65 to 0.75 ns in 10**6 updates of 100 float64 (one core of a Zen 5)."""


def with_private_places(
    nest: Nest, machine: Machine, choose: Choose = cheapest
) -> tuple[Nest, tuple[Remark, ...]]:
    """The nest with sums into named places split by cores, where that is expected to take less time; the decisions."""
    said: list[Remark] = []
    if nest.params or not isinstance(machine, CpuMachine) or machine.units < 2:
        return nest, ()
    for name in _candidates(nest):
        if not choose.asks(PASS, (name,)):
            continue
        extents = reduced_dims(nest, name)
        dim = max(extents, key=lambda d: extents[d], default="")
        size = -(-extents.get(dim, 0) // machine.units)
        if not dim or why_not_split_reduction(nest, name, dim, size=size) is not None:
            continue
        so, otherwise = _seconds(nest, name, machine)
        numbers = f"{duration(so)} with arrays for {machine.units} cores, {duration(otherwise)} on one"
        chosen = choose.wished(PASS)
        taken = choose.takes(PASS, (name,), so < otherwise)
        text = f"{name}: {numbers}."
        if taken:
            made = split_reduction(nest, name, dim, size=size)
            nest, text = made.nest, f"{made}: {numbers}."
        said.append(weighed(PASS, (name,), taken, text, so, otherwise, chosen))
    return nest, tuple(said)


def _candidates(nest: Nest) -> list[str]:
    """Reductions alone in their loops, of which data name the place, and say nothing else."""
    alone = (statements(part) for part in parts(nest.order))
    found = [nest.statement(names[0]) for names in alone if len(names) == 1]
    return [
        s.name
        for s in found
        if s.is_reduction and named_dims(nest, s) and set(compared_dims(nest, s)) == set(named_dims(nest, s))
    ]


def _seconds(nest: Nest, name: str, machine: CpuMachine) -> tuple[float, float]:
    """(the time with an array for each core, that on one core): every iteration is an update of one place."""
    s, counts = nest.statement(name), Counts(nest)
    places, named = nest.domains[name], named_dims(nest, s)
    for d in reversed(range(len(s.dims))):
        places = places if s.dims[d] in named else places.project_out(SET, d, 1)
    updates = counts.work(name).instances / bounding_count(places, {})
    results = counts.footprint(name, 0)
    launches = machine.region_seconds + 2 * machine.launch_seconds
    apart = UPDATE * (updates / machine.units + 2 * machine.units * results) + launches
    return apart, UPDATE * updates

"""Multicast: boxes that all blocks of a cluster copy alike; each block requests a part, and all receive it.

    for c of 2 (cluster.y): for k: { for e0 (bulk.warp, of 64): x_shared[e0, …] = x[i + e0, k + …];  use }
    ->  block c asks for rows 32 * c … 32 * c + 31 of the box, for itself and for the other one, at the same place

The box is the same for all blocks along c iff it does not depend on c, which isl is asked of the access relations:

    { [loops around, but c] -> element of x }  and  { [loops around, but c] -> place in x_shared }  are functions,

and iff all of them copy it: where the copy runs for one value of c it runs for all (analysis/clusters.py), and so does
an iteration of the loop that hands over, since a slot is free once all blocks have used it.

What a block gets from others it waits for as for its own part: its slot is full once the bytes of all parts have come.
Others write to its slot once it is free in all blocks: they wait for one arrival of each warp of the cluster.
"""

from __future__ import annotations

from polyfuse.analysis.clusters import around_everything, is_whole, running
from polyfuse.analysis.producer_consumer import handing_over
from polyfuse.analysis.storage import Geometry, prefix_of
from polyfuse.analysis.vector_access import agrees
from polyfuse.ir.nest import Nest
from polyfuse.ir.statement import Statement
from polyfuse.ir.tree import CLUSTER, OWN_WARP, Loop, Tree, loops_around
from polyfuse.schedule.binding import extent


def shared_among(
    nest: Nest, part: Tree, top: Loop, s: Statement, held: Geometry
) -> tuple[tuple[str, int], ...]:
    """The axes of a cluster along which all blocks copy what a loop of a copy does, and how many there are along each.

    None but where a warp only copies: others would have to meet the whole cluster in each iteration.
    """
    place = handing_over(part) if top.bind == OWN_WARP else None
    if place is None:
        return ()
    found = {}
    for loop in around_everything(part):
        count = extent(nest, loop) if loop.bind in CLUSTER else None
        if loop.bind is None or count is None or count == 1:
            continue
        if _is_same(nest, part, loop, s, held) and _all_run(nest, part, loop, s, place):
            found[loop.bind] = count
    return tuple((axis, found[axis]) for axis in CLUSTER if axis in found)


def _is_same(nest: Nest, part: Tree, loop: Loop, s: Statement, held: Geometry) -> bool:
    """True if neither the copied element nor its destination depends on a loop around."""
    domain, element = nest.domains[s.name], s.reads[0].subscripts()
    others = [x.date(s.name) for x in loops_around(part, s.name) if x is not loop]
    values = [element.get_pw_aff(axis) for axis in range(nest.tensor(s.reads[0].tensor).rank)]
    return all(agrees(domain, others, value) for value in (*values, *held.cell(s.name, s.write)))


def _all_run(nest: Nest, part: Tree, loop: Loop, s: Statement, place: Loop) -> bool:
    """True if a copy, and an iteration of the pipelined loop, runs for all values of a loop around, or for none."""
    copies, inside = loops_around(part, s.name), prefix_of(part, place, s.name)
    depth = next(p for p, x in enumerate(copies) if x is loop)
    return is_whole(running(nest, (s.name,), copies), depth) and is_whole(
        running(nest, place.names, inside), depth
    )

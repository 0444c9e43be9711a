"""Chains of values: the directions along which a statement's instances need values of earlier ones.

    for t, i: A[t+1, i] = f(A[t, i-1], A[t, i], A[t, i+1])          directions (1, 1), (1, 0), (1, -1)

Take the instances E of a statement that run between two points of time. Along a direction b they lie on lines. The
first instance of E on a line needs, along its chain, a value that was not computed in between, unless the chain begins
there. That value was in fast memory at the start, or was loaded, and different lines need different values. So the
projection of E along b has at most as many elements as there are such values: with several directions a Brascamp–Lieb
inequality bounds |E| (Elango, Rastello, Pouchet, Ramanujam, Sadayappan 2015; Olivry et al. 2020, arXiv:1911.06664).

A chain may lead through other statements: B[t, i] = f(A[t, …]); A[t+1, i] = f(B[t, …]). Each step is a flow dependence
between points at a constant distance, and a chain passes each statement once, so that lines have no value in common.

Of a sum that is read between its updates, a step comes from the last update before the read. An element then stands
for one line at most: of two reads of it the earlier one precedes the later one's last update, which has run before the
first point of time. The statements of a chain write different tensors, therefore.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from fractions import Fraction

import islpy as isl

from polyfuse.ir.access import Access
from polyfuse.ir.nest import Nest
from polyfuse.lower_bounds.accesses import needed
from polyfuse.lower_bounds.cardinality import cardinality
from polyfuse.lower_bounds.subspaces import span
from polyfuse.sets import IN, OUT, PARAM, SET, bounding_box, volume

LONGEST = 3
"""Statements of a chain at most."""

STEPS = 27
"""Accesses of a statement that are followed at most: those of a stencil of 3 × 3 × 3."""

Distance = tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """A flow dependence between points at a constant distance, by one access of the later statement."""

    source: str
    sink: str
    distance: Distance
    map: isl.Map
    read: Access


@dataclass(frozen=True)
class Chain:
    """A direction of a statement, and the instances at which chains begin without a value that only they need.

    Attributes:
        direction: The distance of two instances of the statement.
        through: The statements on the way, the statement itself included.
        begins: The number of instances without an earlier one on their chain, or an upper bound on it; less those
            that read an element of the caller each.
    """

    direction: Distance
    through: frozenset[str]
    begins: int


def chains(nest: Nest, name: str, inside: Collection[str]) -> tuple[Chain, ...]:
    """Return as many independent directions as a statement has dimensions, those that begin in few instances first.

    Args:
        nest: A nest without sizes.
        name: The statement.
        inside: The statements that chains may lead through.
    """
    domain = nest.domains[name]
    dim = domain.dim(SET)
    found: dict[Distance, list[Step]] = {}
    for route in sorted(_routes(nest, name, inside), key=_length):
        total = tuple(map(sum, zip(*(step.distance for step in route), strict=True)))
        if any(total):
            found.setdefault(total, route)
    order = sorted(found, key=lambda d: (sum(map(bool, d)), sum(map(abs, d)), d))
    chosen: list[Chain] = []
    for direction in order:
        basis = [list(map(Fraction, chain.direction)) for chain in chosen]
        if len(span([*basis, direction])) > len(chosen):
            route = found[direction]
            begins = _begins(nest, name, route)
            chosen.append(Chain(direction, frozenset(step.source for step in route), begins))
        if len(chosen) == dim:
            break
    return tuple(chosen)


def _length(route: list[Step]) -> tuple[int, int]:
    """Routes of few and of short steps come first: their chains begin in few instances."""
    return len(route), sum(abs(part) for step in route for part in step.distance)


def _routes(nest: Nest, name: str, inside: Collection[str]) -> Iterator[list[Step]]:
    """Steps from a statement back to itself that pass each statement once."""
    known: dict[str, list[Step]] = {}

    def steps(source: str) -> list[Step]:
        if source not in known:
            known[source] = list(_steps(nest, source, inside))
        return known[source]

    open_: list[list[Step]] = [[step] for step in steps(name)]
    while open_:
        route = open_.pop(0)
        last = route[-1].sink
        if last == name:
            yield route
        elif len(route) < LONGEST and nest.statement(last).write.tensor not in _written(nest, route):
            open_ += [[*route, step] for step in steps(last)]


def _written(nest: Nest, route: list[Step]) -> set[str]:
    """The tensors that the statements of a route write."""
    return {nest.statement(step.source).write.tensor for step in route}


def _steps(nest: Nest, source: str, inside: Collection[str]) -> Iterator[Step]:
    """The flow from a statement's write to single accesses, where it spans a constant distance."""
    dim, write = nest.domains[source].dim(SET), nest.statement(source).write
    for pair in nest.dependences().after(source):
        if pair.kind != "flow" or pair.sink not in inside or nest.domains[pair.sink].dim(SET) != dim:
            continue
        reads = [read for read in needed(nest.statement(pair.sink)) if read.tensor == write.tensor]
        for read in reads[:STEPS]:
            same = pair.map.intersect(write.map.apply_range(read.map.reverse()))
            if nest.statement(source).is_reduction:
                same = _last(nest, source, same)
            distance = _distance(same)
            if distance is not None:
                yield Step(source, pair.sink, distance, same, read)


def _last(nest: Nest, source: str, pairs: isl.Map) -> isl.Map:
    """The pairs with the last update of an element before a read of it; all earlier ones are in the value too."""
    dates = isl.Map.from_union_map(
        nest.dates_of([source]).intersect_domain(nest.domains[source].to_union_set())
    )
    last = pairs.reverse().apply_range(dates).lexmax().apply_range(dates.reverse())
    return pairs.intersect(last.reverse())


def _distance(relation: isl.Map) -> Distance | None:
    """The distance of all pairs of a relation; None if there are none, or if it differs."""
    if relation.is_empty():
        return None
    alone = relation.project_out(PARAM, 0, relation.dim(PARAM))
    same = alone.set_tuple_name(IN, "S").set_tuple_name(OUT, "S")
    deltas = same.deltas()
    if not deltas.is_singleton():
        return None
    point = deltas.sample_point()
    return tuple(int(point.get_coordinate_val(SET, d).to_python()) for d in range(deltas.dim(SET)))


def _begins(nest: Nest, name: str, route: list[Step]) -> int:
    """The instances at which a chain begins, less those of which each needs an element of the caller for itself.

    Each chain is followed backwards, step by step: { instance -> point of the chain }.
    """
    domain = nest.domains[name]
    back = isl.Map.identity(isl.Space.map_from_set(domain.get_space())).intersect_domain(domain)
    begins = isl.Set.empty(domain.get_space())
    own: dict[str, isl.Map] = {}
    for step in reversed(route):
        ending = back.subtract_range(step.map.range())
        begins = begins.union(ending.domain().subtract(_with_own_element(nest, step, ending, own)))
        back = back.intersect_range(step.map.range()).apply_range(step.map.reverse())
    return most(begins)


def _with_own_element(nest: Nest, step: Step, ending: isl.Map, own: dict[str, isl.Map]) -> isl.Set:
    """The instances whose chain ends at a point that reads an element of the caller, which no other chain's end does.

    `own` has { instance -> element } of those that were found before, by tensor, and gets these.
    """
    read = step.read
    found = isl.Set.empty(ending.domain().get_space())
    if nest.tensor(read.tensor).role != "inout":
        return found
    left = ending
    for writer in nest.writers(read.tensor):
        through = writer.write.map.apply_range(read.map.reverse())
        flows = (
            p.map for p in nest.dependences().after(writer.name) if p.sink == step.sink and p.kind == "flow"
        )
        for flow in flows:
            left = left.subtract_range(flow.intersect(through).range())
    elements = left.apply_range(read.map)
    for piece in left.domain().make_disjoint().get_basic_sets():
        here = elements.intersect_domain(isl.Set.from_basic_set(piece))
        every = own[read.tensor].union(here) if read.tensor in own else here
        if every.is_injective():
            own[read.tensor] = every
            found = found.union(here.domain())
    return found


def most(set_: isl.Set) -> int:
    """An upper bound on the number of points: the number, or a box's where it is not counted."""
    found = cardinality(set_)
    return volume(bounding_box(set_)) if found is None else found

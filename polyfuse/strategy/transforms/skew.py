"""Find a permutable order for the statements of a time loop by skewing each loop and shifting statements.

    for t: { for i: S; for i: R }  ->  for t: for i: { S at i + 2t; R at i + 2t + 1 }

Loop by loop, from the outside in: date(s) = i + f*(dates around it) + c(s). Every dependence s -> r that runs forward
asks for c(s) - c(r) <= least(f), the least of its distance along i + f*(…), which isl finds. For fixed factors these
are difference constraints, solved by shortest paths (Bellman & Ford; Cormen et al., "Introduction to Algorithms",
24.4); of the weights i + f*(…) that have a solution those with the least sum are taken. As exact as isl's scheduler
where statements only need shifts and skews (Feautrier 1992 asks for all coefficients at once, by Farkas' lemma), and
quick for any number of loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush

import islpy as isl

from polyfuse.analysis.bands import LARGEST_SKEW, among
from polyfuse.ir import Nest
from polyfuse.ir.dependences import Pairs
from polyfuse.ir.tree import Tree, date_map, loops_around, statements
from polyfuse.sets import IN, PARAM, constant, expression_text


@dataclass(frozen=True)
class _Edge:
    """A dependence by its distances along the loops as written: { [t, i, j] } for any sizes."""

    source: str
    sink: str
    distances: isl.Set

    def least(self, weights: Sequence[int]) -> int | None:
        """The least of a weighted sum of the distances; None if there is none."""
        value = self.distances.min_val(self.form(weights))
        return int(value.to_python()) if value.is_int() else None

    def form(self, weights: Sequence[int]) -> isl.Aff:
        """The weighted sum of the distances."""
        form = isl.Aff.zero_on_domain(isl.LocalSpace.from_space(self.distances.get_space()))
        for position, weight in enumerate(weights):
            form = form.set_coefficient_val(IN, position, isl.Val(weight))
        return form


@dataclass(frozen=True)
class _Loops:
    """The new loops found so far: the weights of each, and what each statement is shifted by."""

    weights: tuple[tuple[int, ...], ...] = ()
    shifts: tuple[Mapping[str, int], ...] = ()


def shifted_order(nest: Nest, part: Tree) -> dict[str, str] | None:
    """Dates for `affine` that make all loops of a part permutable; None if no small shifts and skews do."""
    names = statements(part)
    dates = _aligned(nest, part, names)
    depth = len(dates[names[0]])
    if depth < 2:
        return None
    edges = tuple(_edge(nest, pair, dates) for pair in among(nest, part) if pair.kind != "reduction")
    found = _Loops()
    for _ in range(depth):
        step = _next(names, edges, found, depth)
        if step is None:
            return None
        found = step
    order = _order(names, edges, found)
    if order is None:
        return None
    last = {name: [str(order.index(name))] if len(names) > 1 else [] for name in names}
    return {name: f"[{', '.join([*_texts(nest, name, dates[name], found), *last[name]])}]" for name in names}


def _aligned(nest: Nest, part: Tree, names: tuple[str, ...]) -> dict[str, list[isl.PwAff]]:
    """The dates of each statement, all of one length: 0 between the loops that all share and a shallow one's own."""
    chains = {name: loops_around(part, name) for name in names}
    depth = max(map(len, chains.values()))
    shared = sum(all(a is b for b in same) for a, *same in zip(*chains.values(), strict=False))
    found = {}
    for name, chain in chains.items():
        dates = [loop.date(name) for loop in chain]
        zeros = [constant(nest.domains[name], 0)] * (depth - len(dates))
        found[name] = dates[:shared] + zeros + dates[shared:]
    return found


def _edge(nest: Nest, pair: Pairs, dates: Mapping[str, list[isl.PwAff]]) -> _Edge:
    first, last = (date_map(nest.domains[name], [*dates[name]]) for name in (pair.source, pair.sink))
    distances = pair.map.apply_domain(first).apply_range(last).deltas()
    return _Edge(pair.source, pair.sink, distances.project_out(PARAM, 0, distances.dim(PARAM)))


def _next(names: tuple[str, ...], edges: tuple[_Edge, ...], found: _Loops, depth: int) -> _Loops | None:
    """One more loop, with the least skew by those before it; None if none up to LARGEST_SKEW will do."""
    for weights in _skewed(found, depth):
        least = [(edge.source, edge.sink, edge.least(weights)) for edge in edges]
        bounds = [(source, sink, value) for source, sink, value in least if value is not None]
        shifts = _shifts(names, bounds) if len(bounds) == len(least) else None
        if shifts is not None:
            return _Loops((*found.weights, weights), (*found.shifts, shifts))
    return None


def _skewed(found: _Loops, depth: int) -> Iterator[tuple[int, ...]]:
    """The candidate weights of the next loop, the least skew first: its own loop's, and some of the loops before.

    One more of a loop before only adds to the weights, so that what follows a candidate stands behind it.
    """
    at = len(found.weights)
    own = tuple(int(d == at) for d in range(depth))
    waiting, seen = [(1, own)], {own}
    while waiting:
        _, weights = heappop(waiting)
        yield weights
        for before in found.weights:
            more = tuple(w + b for w, b in zip(weights, before, strict=True))
            if more not in seen and max(more) <= LARGEST_SKEW:
                seen.add(more)
                heappush(waiting, (sum(more), more))


def _shifts(names: tuple[str, ...], bounds: list[tuple[str, str, int]]) -> dict[str, int] | None:
    """The smallest shifts >= 0 with shift(sink) - shift(source) + least >= 0 for all; None if there are none."""
    shifts = dict.fromkeys(names, 0)
    for _ in range(len(names) + 1):
        late = [
            (sink, shifts[source] - least)
            for source, sink, least in bounds
            if shifts[sink] < shifts[source] - least
        ]
        if not late:
            return shifts
        for sink, wanted in late:
            shifts[sink] = max(shifts[sink], wanted)
    return None


def _order(names: tuple[str, ...], edges: tuple[_Edge, ...], found: _Loops) -> list[str] | None:
    """The statements as they follow each other where all dates agree; None if they wait for one another."""
    before: dict[str, set[str]] = {name: set() for name in names}
    for edge in edges:
        if edge.source == edge.sink:
            continue
        together = edge.distances
        for weights, shifts in zip(found.weights, found.shifts, strict=True):
            form = edge.form(weights).add_constant_val(isl.Val(shifts[edge.sink] - shifts[edge.source]))
            together = together.intersect(isl.PwAff.from_aff(form).zero_set())
        if not together.is_empty():
            before[edge.sink].add(edge.source)
    sorter = TopologicalSorter(before)
    try:
        return list(sorter.static_order())
    except CycleError:
        return None


def _texts(nest: Nest, name: str, dates: list[isl.PwAff], found: _Loops) -> list[str]:
    """The dates of a statement in the new loops, as `affine` reads them."""
    texts = []
    for weights, shifts in zip(found.weights, found.shifts, strict=True):
        total = constant(nest.domains[name], shifts[name])
        for date, weight in zip(dates, weights, strict=True):
            total = total.add(date.scale_val(isl.Val(weight)))
        texts.append(expression_text(total))
    return texts

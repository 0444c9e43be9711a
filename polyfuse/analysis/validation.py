"""Translation validation: is a finished schedule still the program it came from?

It trusts nothing of how the schedule was made. From the finished tree alone it asks isl:

    cover      every instance of every statement runs exactly once
    copies     the statements that `promote` and `pack` added compute parts of the source's bodies: with these put back
               where they are read, every statement is the source's again (copies.py)
    places     blocks, threads, cores and shared memory are where hardware can have them
    order      every dependence of the source keeps its order, and no two parallel instances depend on each other
    storage    the dataflow, computed anew for the new order with every access in the buffer cell it really uses, is the
               source's dataflow: nothing live is overwritten
    barriers   threads of a block that depend on each other meet in between
    arena      temporaries that share memory are never needed by one kernel, or across one

A failure is a bug of the compiler (or a schedule broken by hand) and raises ValidationFailure with a witness.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import islpy as isl

from polyfuse.analysis.barriers import unsynchronised
from polyfuse.analysis.copies import check_copies
from polyfuse.analysis.legality import Broken, first_broken
from polyfuse.analysis.liveness import LiveRange, live_ranges
from polyfuse.analysis.once import refusal
from polyfuse.analysis.places import misplaced
from polyfuse.analysis.storage import BLOCKS, PRIVATE, THREADS, Geometry, buffers_of, geometry
from polyfuse.errors import ValidationFailure
from polyfuse.ir.access import Access
from polyfuse.ir.dependences import AccessRelations, flow_and_reduction
from polyfuse.ir.nest import Nest
from polyfuse.ir.statement import Statement
from polyfuse.ir.tree import Buffer, Loop, Tree, date_map, dates, loops_around, restrict, statements
from polyfuse.sets import IN, OUT, first_pair, maps_of, tuple_names, union_map


@dataclass(frozen=True)
class Checked:
    """One check that passed, and how long it took."""

    name: str
    seconds: float


@dataclass(frozen=True)
class Validation:
    """The checks that passed; there is no Validation with one that did not."""

    checks: tuple[Checked, ...]

    @property
    def seconds(self) -> float:
        """Time for all checks together."""
        return sum(check.seconds for check in self.checks)

    def __str__(self) -> str:
        return "validated: " + ", ".join(f"{c.name} {1e3 * c.seconds:.1f} ms" for c in self.checks)


Spans = Mapping[str, tuple[int, int]]
"""For each temporary in the arena the bytes [start, stop) it occupies."""


def validate(
    source: Nest,
    nest: Nest,
    tree: Tree,
    arenas: tuple[Spans, ...] = (),
    early: tuple[bool, ...] | None = None,
) -> Validation:
    """Check a finished tree over `nest` (the source with copies) against the source. Raises ValidationFailure.

    `early` says of each kernel whether it runs once for all calls.
    """
    checks: list[tuple[str, Callable[[], None]]] = [
        ("cover", lambda: _cover(nest, tree)),
        ("copies", lambda: check_copies(source, nest)),
        ("places", lambda: _places(tree)),
        ("order", lambda: _no("order", first_broken(tree, nest.dependences().pairs))),
        ("storage", lambda: _storage(nest, tree)),
        ("barriers", lambda: _no("barriers", unsynchronised(nest, tree))),
        ("once", lambda: _once(nest, tree, early)),
        ("arena", lambda: _arena(nest, tree, arenas)),
    ]
    passed = []
    for name, check in checks:
        start = time.perf_counter()
        check()
        passed.append(Checked(name, time.perf_counter() - start))
    return Validation(tuple(passed))


def _no(check: str, broken: Broken | None) -> None:
    if broken is None:
        return
    found = first_pair(broken.pairs)
    source, sink = tuple_names(broken.pairs)
    assert found is not None, "a broken dependence has a pair"
    sizes, first, second = found
    where = f" with {sizes}" if sizes else ""
    raise ValidationFailure(
        f"validation of {check} failed: the {broken.kind} dependence {source}{list(first)} -> {sink}{list(second)}"
        f"{where} is broken: {broken.why}"
    )


def _cover(nest: Nest, tree: Tree) -> None:
    if sorted(statements(tree)) != sorted(s.name for s in nest.statements):
        raise ValidationFailure(f"validation of cover failed: the tree runs {statements(tree)}")
    for name in statements(tree):
        domain = nest.domains[name]
        when = date_map(domain, [loop.date(name) for loop in loops_around(tree, name)])
        missing = domain.subtract(when.domain())
        if not missing.is_empty():
            raise ValidationFailure(f"validation of cover failed: {missing} never run")
        if not when.is_injective():
            raise ValidationFailure(f"validation of cover failed: instances of {name} share a date")


def _places(tree: Tree) -> None:
    fault = misplaced(tree)
    if fault is not None:
        raise ValidationFailure(f"validation of places failed: {fault}")


def _storage(nest: Nest, tree: Tree) -> None:
    proven: set[str] = set()
    for loop, buffer in buffers_of(tree):
        touching = tuple(s for s in nest.statements if buffer.tensor in s.tensors)
        _all_inside(nest, loop, buffer, touching)
        g = geometry(nest, tree, loop, buffer)
        if buffer.spread is not None:
            # elements that have cells of their own meet where they met before: the question without divisions
            if not g.layout().is_injective():
                raise ValidationFailure(f"validation of storage failed: elements of {buffer} share a cell")
            g = g.plain()
        # dates among these statements alone are the same order with fewer dimensions
        here = restrict(tree, frozenset(s.name for s in touching))
        assert here is not None, "a buffer's tensor is touched"
        cells = AccessRelations(
            reads=_cells(nest, tree, g, [(s, a) for s in touching for a in s.reads]),
            assigns=_cells(nest, tree, g, [(s, s.write) for s in touching if not s.is_reduction]),
            accumulates=_cells(nest, tree, g, [(s, s.write) for s in touching if s.is_reduction]),
        )
        order = dates(here, nest.domains)
        before = union_map(p.map for p in nest.flow_through(buffer.tensor) if p.kind == "flow")
        names = [buffer.tensor, *(s.name for s in touching)]
        question = _unnamed(names, (cells.reads, cells.assigns, cells.accumulates, order, before))
        if question in proven:
            continue  # the layer before asked the same of isl, under other names
        proven.add(question)
        back = order.domain().identity()
        if any(x.bind in THREADS for s in touching for x in loops_around(tree, s.name)):
            cells, order, before, back = _by_date(cells, order, before)
        now, _ = flow_and_reduction(cells, order)
        for kind, pairs in (("lose", before.subtract(now)), ("invent", now.subtract(before))):
            _same_flow(buffer.tensor, kind, pairs.apply_domain(back).apply_range(back))


def _by_date(
    cells: AccessRelations, order: isl.UnionMap, before: isl.UnionMap
) -> tuple[AccessRelations, isl.UnionMap, isl.UnionMap, isl.UnionMap]:
    """The same question with instances named by their dates, and the map back: { S[i] -> … }  ->  { S[date] -> … }.

    Blocks and threads are dates then, and no longer quotients and remainders: 30 ms where it took isl 18 s.
    """
    named = union_map(m.set_tuple_name(OUT, m.get_tuple_name(IN)) for m in maps_of(order))
    dated = AccessRelations(
        reads=cells.reads.apply_domain(named),
        assigns=cells.assigns.apply_domain(named),
        accumulates=cells.accumulates.apply_domain(named),
    )
    return (
        dated,
        order.apply_domain(named),
        before.apply_domain(named).apply_range(named),
        named.reverse(),
    )


def _all_inside(nest: Nest, loop: Loop, buffer: Buffer, touching: tuple[Statement, ...]) -> None:
    """What touches a tensor kept in a buffer lies inside the buffer's loop."""
    inside = set(statements(loop))
    for pair in nest.flow_through(buffer.tensor):
        if not {pair.source, pair.sink} <= inside:
            _same_flow(buffer.tensor, "lose", isl.UnionMap.from_map(pair.map))
    outside = [s.name for s in touching if s.name not in inside]
    if outside:
        raise ValidationFailure(
            f"validation of storage failed: {outside[0]} touches {buffer.tensor} outside its loop {loop.name}"
        )


def _unnamed(names: list[str], relations: tuple[isl.UnionMap, ...]) -> str:
    """Relations as text in which the n-th name is written #n: equal text is the same mathematics."""
    number = {name: f"#{position}" for position, name in enumerate(names)}
    texts = ("; ".join(sorted(_renamed(str(part), number) for part in maps_of(r))) for r in relations)
    return " | ".join(texts)


def _renamed(text: str, number: Mapping[str, str]) -> str:
    return re.sub(r"[A-Za-z_]\w*", lambda found: number.get(found[0], found[0]), text)


def _same_flow(tensor: str, kind: str, pairs: isl.UnionMap) -> None:
    for part in maps_of(pairs):
        found = first_pair(part)
        if found is not None:
            source, sink = tuple_names(part)
            raise ValidationFailure(
                f"validation of storage failed: the buffer of {tensor} would {kind} the flow "
                f"{source}{list(found[1])} -> {sink}{list(found[2])}"
            )


def _cells(nest: Nest, tree: Tree, g: Geometry, accesses: list[tuple[Statement, Access]]) -> isl.UnionMap:
    """Instances -> the buffer cell they touch; cells of different blocks, or threads, are different ones."""
    union = isl.UnionMap("{ }")
    for s, access in accesses:
        if access.tensor != g.buffer.tensor:
            continue
        parts: list[isl.PwAff | int] = [*g.cell(s.name, access)]
        owners = (
            BLOCKS
            if g.buffer.memory == "shared"
            else (*BLOCKS, *THREADS)
            if g.buffer.memory in PRIVATE
            else ()
        )
        around = {loop.bind: loop.date(s.name) for loop in loops_around(tree, s.name)}
        parts += [around.get(place, 0) for place in owners]
        parts += [around["cores"]] if "cores" in around and _inside_cores(tree, g, s.name) else []
        cell = date_map(nest.domains[s.name], parts).set_tuple_name(OUT, access.tensor)
        union = union.union(isl.UnionMap.from_map(cell))
    return union


def _inside_cores(tree: Tree, g: Geometry, statement: str) -> bool:
    """Whether every core has its own copy of the buffer: the cores' loop is the buffer's, or around it."""
    for loop in loops_around(tree, statement):
        if loop.bind == "cores":
            return True
        if loop is g.loop:
            return False
    return False


def _once(nest: Nest, tree: Tree, early: tuple[bool, ...] | None) -> None:
    found = None if early is None else refusal(nest, tree, early)
    if found is not None:
        raise ValidationFailure(f"validation of once failed: {found} depends on more than constants")


def _arena(nest: Nest, tree: Tree, arenas: tuple[Spans, ...]) -> None:
    live = {r.tensor: r for r in live_ranges(nest, tree)}
    for spans in arenas:
        _apart(live, spans)


def _apart(live: Mapping[str, LiveRange], spans: Spans) -> None:
    for name, (start, stop) in spans.items():
        for other, (begin, end) in spans.items():
            apart = stop <= begin or end <= start
            if name < other and not apart and live[name].overlaps(live[other]):
                raise ValidationFailure(
                    f"validation of arena failed: {name} and {other} share bytes {max(start, begin)}…{min(stop, end)} "
                    f"and are both needed by kernel {max(live[name].first, live[other].first)}"
                )

"""Translation validation: check that a finished schedule computes the program that it came from.

It trusts nothing of how the schedule was made. From the finished tree alone it asks isl:

    cover      every instance of every statement runs exactly once
    copies     the statements that `promote` and `pack` added compute parts of the source's bodies: with these put back
               where they are read, every statement is the source's again (copies.py)
    places     blocks, threads, cores and shared memory are where hardware can have them
    order      every dependence of the source keeps its order, and no two parallel instances depend on each other
    storage    every flow through a buffer stays in one place, and elements have cells of their own: nothing live is
               overwritten
    barriers   threads of a block that depend on each other meet in between, and blocks of a kernel at a grid barrier
    arena      temporaries that share memory are never needed by one kernel, or across one

Parts that are equal to an earlier one but for names, such as a network's layers, are asked about once (ir/form.py).

A failure is a bug of the compiler (or a schedule broken by hand) and raises ValidationFailure with a witness. A check
that isl cannot answer within its budget raises BudgetExceeded: what is not proven does not run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import dataclass
from functools import reduce

import islpy as isl

from polyfuse.analysis.barriers import unsynchronised
from polyfuse.analysis.clusters import unfit_clusters
from polyfuse.analysis.copies import check_copies
from polyfuse.analysis.digits import EVERY, left_out
from polyfuse.analysis.hardware_bindings import misplaced
from polyfuse.analysis.lanes import unfit_lanes
from polyfuse.analysis.legality import Broken, first_broken
from polyfuse.analysis.liveness import LiveRange, live_ranges
from polyfuse.analysis.once import refusal
from polyfuse.analysis.stages import crowded, near
from polyfuse.analysis.storage import (
    PRIVATE,
    Geometry,
    block_ids,
    buffers_of,
    geometry,
    same_value,
    thread_ids,
)
from polyfuse.errors import BudgetExceeded, ValidationFailure
from polyfuse.errors.budget import at_most, stopped
from polyfuse.errors.proving import proving
from polyfuse.ir.dependences import Pairs
from polyfuse.ir.form import repeated
from polyfuse.ir.nest import Nest
from polyfuse.ir.statement import Statement
from polyfuse.ir.tree import Buffer, Loop, Tree, date_map, loops_around, statements
from polyfuse.sets import OUT, first_pair, point_of, tuple_names

OPERATIONS = 20_000_000
"""isl operations for one check: about ten seconds."""


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
    operations: int = OPERATIONS,
) -> Validation:
    """Check a finished tree over `nest` (the source with copies) against the source. Raises ValidationFailure.

    `early` says of each kernel whether it runs once for all calls. Raises BudgetExceeded if a check needs more than
    `operations` of isl (0: as many as it takes).
    """
    again = repeated(nest, tree)
    home = {name: place for place, members in enumerate(again) for name in members}
    pairs = tuple(p for p in nest.pairs_in_order.pairs if home.get(p.source, -1) != home.get(p.sink, -2))
    checks: list[tuple[str, Callable[[], None]]] = [
        ("cover", lambda: _cover(nest, tree, home)),
        ("copies", lambda: check_copies(source, nest, tree)),
        ("places", lambda: _places(nest, tree)),
        ("order", lambda: _no("order", first_broken(tree, pairs))),
        ("storage", lambda: _storage(nest, tree, again)),
        ("barriers", lambda: _no("barriers", unsynchronised(nest, tree))),
        ("once", lambda: _once(nest, tree, early)),
        ("arena", lambda: _arena(nest, tree, arenas)),
    ]
    passed = []
    for name, check in checks:
        start = time.perf_counter()
        _in_budget(name, check, nest.context.get_ctx(), operations)
        passed.append(Checked(name, time.perf_counter() - start))
    return Validation(tuple(passed))


def _in_budget(name: str, check: Callable[[], None], context: isl.Context, operations: int) -> None:
    with proving(f"validation of {name}"):
        try:
            with at_most(context, operations):
                check()
        except isl.Error as error:
            if not stopped(error):
                raise
            raise BudgetExceeded(
                f"validation of {name} needs more than {operations} operations of isl; a schedule of fewer loops, or "
                "one that promotes less, may need fewer"
            ) from error


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


def _cover(nest: Nest, tree: Tree, again: Container[str]) -> None:
    """All instances run, each once; of statements that are there `again` that is known."""
    if sorted(statements(tree)) != sorted(s.name for s in nest.statements):
        raise ValidationFailure(f"validation of cover failed: the tree runs {statements(tree)}")
    for name in statements(tree):
        if name in again:
            continue
        domain = nest.domains[name]
        when = date_map(domain, [loop.date(name) for loop in loops_around(tree, name)])
        missing = domain.subtract(when.domain())
        if not missing.is_empty():
            raise ValidationFailure(f"validation of cover failed: {missing} never run")
        if not when.is_injective():
            raise ValidationFailure(f"validation of cover failed: instances of {name} share a date")


def _places(nest: Nest, tree: Tree) -> None:
    fault = misplaced(tree) or unfit_lanes(nest, tree) or unfit_clusters(nest, tree)
    if fault is not None:
        raise ValidationFailure(f"validation of places failed: {fault}")


def _storage(nest: Nest, tree: Tree, again: Collection[frozenset[str]]) -> None:
    """Buffers hold what flows through them; those of parts that are there `again` do if nobody else accesses them.

    The theorem:

    The place of an instance is what picks a buffer's memory for it: the values of the loops down to the buffer's and,
    where blocks, threads or cores have memories of their own, which of them runs it. With
      - every read of the tensor, and every accumulation on it, having a source (reads: flow from an assignment),
      - both ends of each flow in one place, { S[x] -> T[y] : place(x) = place(y) },
      - different elements in different cells, for one place,
    no write comes between a flow's ends in the buffer that does not in the tensor: what runs between them in order is
    in their place, since the loops' values are the first dates, and what meets there in a cell meets in its element.
    The tensor's own flow is the source's, because its anti and output dependences are kept in order (`order`).

    for i: S[i]: t[i] = …;  R[i]: … t[i]      one place for S[i] and R[i], if i is the buffer's loop
    for i: S[i]: t[i] = …;  R[i]: … t[i-1]    R[i+1] is in another place than S[i]: lost

    A buffer of several stages is one place for the iterations of its loop that are less than so many apart; that no
    live element's cell is written there is the theorem of analysis/stages.py.
    """
    for loop, buffer in buffers_of(tree):
        role = nest.tensor(buffer.tensor).role
        if role != "temporary":
            raise ValidationFailure(
                f"validation of storage failed: the {role} {buffer.tensor} is in a buffer only"
            )
        touching = tuple(s for s in nest.statements if buffer.tensor in s.tensors)
        _all_inside(nest, loop, buffer, touching)
        if any(loop.members <= part for part in again):
            continue
        g = geometry(nest, tree, loop, buffer)
        if buffer.panel is not None and not g.layout().is_injective():
            raise ValidationFailure(f"validation of storage failed: elements of {buffer} share a cell")
        _all_apart(nest, g, touching)
        flow = [p for p in nest.flow_through(buffer.tensor) if p.kind == "flow"]
        _all_written(nest, buffer, touching, flow)
        place = {s.name: (*_functions(g.prefix[s.name]), *_owners(tree, g, s)) for s in touching}
        for pair in flow:
            kept = pair.map
            for depth, (mine, other) in enumerate(zip(place[pair.source], place[pair.sink], strict=True)):
                if depth == g.depth and mine is not None and other is not None:
                    kept = kept.intersect(near(mine, other, buffer.stages))
                else:
                    kept = kept.intersect(same_value(mine, other, pair.map))
            _lost(buffer.tensor, pair.map.subtract(kept))
        _no("storage", crowded(nest, loop, buffer))


def _all_apart(nest: Nest, g: Geometry, touching: tuple[Statement, ...]) -> None:
    """Elements that a buffer leaves out, between those that it holds, are accessed by nobody."""
    held = [(d, digits) for d, digits in enumerate(g.held) if digits != EVERY]
    for s in touching if held else ():
        for access in s.accesses:
            if access.tensor != g.buffer.tensor:
                continue
            element = access.subscripts()
            for d, digits in held:
                place = element.get_pw_aff(d).sub(g.corner[d].pullback_pw_multi_aff(g.prefix[s.name]))
                between = left_out(place, digits).intersect(nest.domains[s.name])
                found = point_of(between)
                if found is not None:
                    raise ValidationFailure(
                        f"validation of storage failed: {s.name}{list(found[1])} touches {g.buffer.tensor} between "
                        f"elements {digits[-1].divisor} apart"
                    )


def _functions(prefix: isl.PwMultiAff) -> tuple[isl.PwAff, ...]:
    return tuple(prefix.get_pw_aff(d) for d in range(prefix.dim(OUT)))


def _owners(tree: Tree, g: Geometry, s: Statement) -> tuple[isl.PwAff | None, ...]:
    """Return the block, thread or core that runs an instance, if each has its own memory; None stands for 0."""
    memory = g.buffer.memory
    blocks = block_ids(tree, s) if memory in ("shared", *PRIVATE) else ()
    return (*blocks, *thread_ids(tree, s, g.buffer.tensor)) if memory in PRIVATE else blocks


def _all_written(nest: Nest, buffer: Buffer, touching: tuple[Statement, ...], flow: list[Pairs]) -> None:
    """Every element that is read or accumulated on in a buffer was assigned: some flow brings it."""
    for s in touching:
        into = [(p, nest.statement(p.source)) for p in flow if p.sink == s.name]
        fed = [p.map.reverse().apply_range(source.write.map) for p, source in into if not source.is_reduction]
        for access in (*s.reads, *((s.write,) if s.is_reduction else ())):
            if access.tensor == buffer.tensor:
                found = first_pair(
                    reduce(isl.Map.subtract, fed, access.map.intersect_domain(nest.domains[s.name]))
                )
                if found is not None:
                    raise ValidationFailure(
                        f"validation of storage failed: {s.name}{list(found[1])} finds no value of "
                        f"{buffer.tensor}{list(found[2])}"
                    )


def _all_inside(nest: Nest, loop: Loop, buffer: Buffer, touching: tuple[Statement, ...]) -> None:
    """Check that all accesses to a promoted tensor lie inside the buffer's loop."""
    inside = set(statements(loop))
    for pair in nest.flow_through(buffer.tensor):
        if not {pair.source, pair.sink} <= inside:
            _lost(buffer.tensor, pair.map)
    outside = [s.name for s in touching if s.name not in inside]
    if outside:
        raise ValidationFailure(
            f"validation of storage failed: {outside[0]} touches {buffer.tensor} outside its loop {loop.name}"
        )


def _lost(tensor: str, pairs: isl.Map) -> None:
    found = first_pair(pairs)
    if found is not None:
        source, sink = tuple_names(pairs)
        raise ValidationFailure(
            f"validation of storage failed: the buffer of {tensor} would lose the flow "
            f"{source}{list(found[1])} -> {sink}{list(found[2])}"
        )


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

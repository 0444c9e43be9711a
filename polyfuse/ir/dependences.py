"""Dependences, instance by instance and exact: which pairs of instances must keep their order.

Every relation holds pairs source -> sink: in the nest's original order the source runs before the sink.

    for i: S[i]: a[i] = x[i]
    for i: T[i]: y[i] = a[i]          flow = { S[i] -> T[i] }

Flow is value-based (the last write before a read; Feautrier 1991). A reduction's writes do not hide earlier ones:
every instance of `s += v` contributes to the value a later read of s sees. Hence, once the pairs among updates by one
operator are set apart as `reduction`, these may be reordered freely and everything else still holds, whether they are
instances of one statement or of several:

    for i: { U[i]: s += a[i]; V[i]: s += b[i] }      reduction = { U[i] -> U[j], V[j]; V[i] -> U[j], V[j] : i < j; … }

What reads s in between still has its place: flow brings it the updates before, anti keeps it before those after.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import islpy as isl

from polyfuse.errors import quantity
from polyfuse.errors.viewed import Viewed
from polyfuse.ir.access import Access
from polyfuse.ir.statement import Statement
from polyfuse.sets import (
    OUT,
    Alike,
    Comparison,
    coalesced,
    fix_params,
    maps_of,
    meeting,
    named,
    numbered,
    pairs_where,
    tuple_names,
    union_map,
)

K = TypeVar("K")
V = TypeVar("V")


def grouped(items: Iterable[tuple[K, V]]) -> dict[K, tuple[V, ...]]:
    """The values of each key, in order: what is asked for by name again and again is found once.

    >>> grouped([("a", 1), ("b", 2), ("a", 3)])
    {'a': (1, 3), 'b': (2,)}
    """
    found: dict[K, list[V]] = {}
    for key, value in items:
        found.setdefault(key, []).append(value)
    return {key: tuple(values) for key, values in found.items()}


@dataclass(frozen=True)
class Pairs:
    """One relation source -> sink between the instances of two statements, and its kind."""

    kind: str
    source: str
    sink: str
    map: isl.Map

    def inside(self, source: isl.PwAff, sink: isl.PwAff) -> Pairs:
        """The pairs that one iteration of a loop holds, from the loop's function of each statement."""
        return self.where(source, "=", sink)

    def where(self, source: isl.PwAff, how: Comparison, sink: isl.PwAff) -> Pairs:
        """The pairs whose source has a less, an equal or a greater value of a loop, from its function of each end.

        A schedule is proven after each verb, and most loops are those of the proof before: the last answers are kept.
        """
        key = id(source), how, id(sink)
        if key not in self._kept:
            if len(self._kept) == KEPT:
                del self._kept[next(iter(self._kept))]
            some = self.map.intersect(pairs_where(source, how, sink))
            self._kept[key] = source, sink, Pairs(self.kind, self.source, self.sink, some)
        return self._kept[key][2]

    def differs(self, source: isl.PwAff, sink: isl.PwAff) -> bool:
        """True if some pair's ends have different values of a loop, from its function of each end."""
        return not (self.where(source, ">", sink).is_empty and self.where(source, "<", sink).is_empty)

    def last_source(self, date: isl.PwAff) -> isl.Map:
        """{ sink -> the greatest value of a function of its sources }; asked again for each depth of a fusion."""
        return self._best(date, "last source", lambda: self.map.reverse().apply_range(date.as_map()).lexmax())

    def first_sink(self, date: isl.PwAff) -> isl.Map:
        """{ source -> the least value of a function of its sinks }."""
        return self._best(date, "first sink", lambda: self.map.apply_range(date.as_map()).lexmin())

    def _best(self, date: isl.PwAff, what: str, ask: Callable[[], isl.Map]) -> isl.Map:
        key = id(date), what
        if key not in self._bests:
            if len(self._bests) == KEPT:
                del self._bests[next(iter(self._bests))]
            self._bests[key] = date, ask()
        return self._bests[key][1]

    @cached_property
    def _bests(self) -> dict[tuple[int, str], tuple[isl.PwAff, isl.Map]]:
        """A cache keyed by the functions' identities, which are kept alive beside it."""
        return {}

    @property
    def is_value(self) -> bool:
        """True for flow and reduction dependences, along which a value is passed on."""
        return self.kind in ("flow", "reduction")

    @property
    def writer(self) -> str:
        """The statement that writes the tensor which the pairs are about."""
        return self.sink if self.kind == "anti" else self.source

    @cached_property
    def form(self) -> str:
        """The kind and the relation as a text without the statements' names."""
        return f"{self.kind} {numbered(str(self.map), {self.source: 0, self.sink: 1})}"

    @cached_property
    def is_empty(self) -> bool:
        """True if there are no pairs."""
        return bool(self.map.is_empty())

    @cached_property
    def _kept(self) -> dict[tuple[int, Comparison, int], tuple[isl.PwAff, isl.PwAff, Pairs]]:
        """A cache keyed by the functions' identities, which are kept alive beside it."""
        return {}


KINDS = ("flow", "anti", "output", "reduction")
"""The kinds of dependences, in the order in which pairs are listed."""

KEPT = 24
"""Answers kept of one relation: trees that are proven one after the other differ in few loops."""


@dataclass(frozen=True)
class Dependences(Viewed):
    """A nest's dependences, as relations from the earlier instance to the later one.

    Updates of one element by one associative operator form a group; pairs inside a group are `reduction`, whichever
    statements they belong to.

    Attributes:
        pairs: The relations, one for each kind and pair of statements.
    """

    pairs: tuple[Pairs, ...]

    @cached_property
    def flow(self) -> isl.UnionMap:
        """Return the pairs of a write and a read of the same value."""
        return self._of_kind("flow")

    @cached_property
    def anti(self) -> isl.UnionMap:
        """Return the pairs of a read and the write that overwrites the value."""
        return self._of_kind("anti")

    @cached_property
    def output(self) -> isl.UnionMap:
        """Return the pairs of a write and the next write of the same element."""
        return self._of_kind("output")

    @cached_property
    def reduction(self) -> isl.UnionMap:
        """Return the pairs of updates of a group: any order is legal, running them at the same time is not."""
        return self._of_kind("reduction")

    def _of_kind(self, kind: str) -> isl.UnionMap:
        return union_map(pair.map for pair in self.pairs if pair.kind == kind)

    @property
    def ordering(self) -> isl.UnionMap:
        """The union of flow, anti and output dependences: all pairs whose order must be kept."""
        return self.flow.union(self.anti).union(self.output)

    def kinds(self) -> tuple[tuple[str, isl.UnionMap], ...]:
        """The four relations with their names, as (name, relation)."""
        return (
            ("flow", self.flow),
            ("anti", self.anti),
            ("output", self.output),
            ("reduction", self.reduction),
        )

    def between(self, first: str, second: str) -> tuple[Pairs, ...]:
        """Return the dependences between two statements, in either direction.

        Args:
            first: The name of a statement.
            second: The name of a statement.

        Returns:
            One relation per kind and direction that has pairs.
        """
        return self._by_ends.get(frozenset((first, second)), ())

    @cached_property
    def _by_ends(self) -> Mapping[frozenset[str], tuple[Pairs, ...]]:
        return grouped((frozenset((pair.source, pair.sink)), pair) for pair in self.pairs)

    def after(self, statement: str) -> tuple[Pairs, ...]:
        """Return the dependences whose source is a statement.

        Args:
            statement: The name of a statement.

        Returns:
            One relation per kind and sink.
        """
        return self._by_source.get(statement, ())

    @cached_property
    def _by_source(self) -> Mapping[str, tuple[Pairs, ...]]:
        return grouped((pair.source, pair) for pair in self.pairs)

    def before(self, statement: str) -> tuple[Pairs, ...]:
        """The pairs whose sink is a statement."""
        return self._by_sink.get(statement, ())

    @cached_property
    def _by_sink(self) -> Mapping[str, tuple[Pairs, ...]]:
        return grouped((pair.sink, pair) for pair in self.pairs)

    def among(self, statements: Collection[str]) -> tuple[Pairs, ...]:
        """The pairs with both ends among some statements, in order."""
        found = (place for name in statements for place in self._places.get(name, ()))
        inside = frozenset(statements)
        pairs = (self.pairs[place] for place in sorted({*found}))
        return tuple(pair for pair in pairs if pair.source in inside and pair.sink in inside)

    def touching(self, statements: Iterable[str]) -> tuple[Pairs, ...]:
        """The pairs with an end among some statements, in order."""
        found = {place for name in statements for place in self._places.get(name, ())}
        return tuple(self.pairs[place] for place in sorted(found))

    @cached_property
    def _places(self) -> Mapping[str, list[int]]:
        """For each statement the positions of its pairs."""
        found: dict[str, list[int]] = {}
        for place, pair in enumerate(self.pairs):
            found.setdefault(pair.source, []).append(place)
            if pair.sink != pair.source:
                found.setdefault(pair.sink, []).append(place)
        return found

    def at_sizes(self, sizes: Mapping[str, int], context: isl.Set) -> Dependences:
        """The dependences with numbers for some sizes, as those of the nest with these numbers are.

        Which write is the last before a read is said for each value of the sizes, so that nothing is found anew:

            { S[i] -> T[i] : i < N }  at N = 4   ->   { S[i] -> T[i] : i < 4 }
        """
        fixed = ((p.kind, fix_params(p.map, sizes).intersect_params(context)) for p in self.pairs)
        kinds = grouped(fixed)
        unions = ((kind, coalesced(union_map(kinds.get(kind, ())))) for kind in KINDS)
        return Dependences(tuple(split(kind, one) for kind, union in unions for one in maps_of(union)))

    def __repr__(self) -> str:
        counts = Counter(pair.kind for pair in self.pairs)
        kinds = ", ".join(f"{counts[kind]} {kind}" for kind in KINDS if counts[kind]) or "none"
        ends = {name for pair in self.pairs for name in (pair.source, pair.sink)}
        return f"<Dependences: {kinds}; relations between {quantity(len(ends), 'statement')}>"

    def __str__(self) -> str:
        lines = []
        for name, relation in self.kinds():
            lines += [f"{name}:", *(f"  {m}" for m in maps_of(relation.coalesce()))]
        return "\n".join(lines)


def split(kind: str, relation: isl.Map) -> Pairs:
    """A map between two statements' instances as Pairs."""
    return Pairs(kind, *tuple_names(relation), relation)


def relation_of(accesses: Iterable[tuple[Statement, Access]]) -> isl.UnionMap:
    """The accesses of many statements as one relation from instances to elements, limited to the domains."""
    return union_map(access.map.intersect_domain(statement.domain) for statement, access in accesses)


@dataclass(frozen=True)
class AccessRelations:
    """The accesses of some statements: instances -> elements, by kind; `operators` are those of accumulating ones."""

    reads: isl.UnionMap
    assigns: isl.UnionMap
    accumulates: isl.UnionMap
    operators: Mapping[str, str]

    @property
    def writes(self) -> isl.UnionMap:
        """Assignments and accumulations."""
        return self.assigns.union(self.accumulates)


def access_relations(
    readers: Iterable[Statement], writers: Iterable[Statement], tensors: Container[str] | None = None
) -> AccessRelations:
    """Return the reads, assignments and accumulations of some statements: of all tensors, or of some."""
    chosen = tuple(s for s in writers if tensors is None or s.write.tensor in tensors)
    return AccessRelations(
        reads=relation_of((s, a) for s in readers for a in s.reads if tensors is None or a.tensor in tensors),
        assigns=relation_of((s, s.write) for s in chosen if not s.is_reduction),
        accumulates=relation_of((s, s.write) for s in chosen if s.is_reduction),
        operators={s.name: s.op for s in chosen if s.is_reduction},
    )


def merged(old: Dependences, lost: Iterable[Pairs], fresh: Dependences) -> Dependences:
    """`old` with `fresh` pairs in place of those that are `lost`, by kind."""
    gone = {id(p) for p in lost}
    both = [*[p for p in old.pairs if id(p) not in gone], *fresh.pairs]
    # torch.compile watches each frame while a backend runs: a list has one, a generator or a key one for each pair
    return Dependences(tuple([p for kind in KINDS for p in both if p.kind == kind]))


def dependences(accesses: AccessRelations, order: isl.UnionMap) -> Dependences:
    """The dependences of statements with these accesses when they run in this order (instances -> dates)."""
    pairs = _EarlierPairs(accesses, order)
    overwritten = pairs.unhidden(pairs.of_writes, pairs.of_writes)
    gathered = ending_in(overwritten, accesses.operators)
    own = among_groups(gathered, accesses.operators)
    flow = pairs.unhidden(pairs.to_reads, pairs.to_reads).union(gathered.subtract(own))
    output = overwritten.subtract(own)
    anti = pairs.unhidden(pairs.to_writes, pairs.of_writes)
    kinds = zip(KINDS, (flow, anti, output, own), strict=True)
    return Dependences(
        tuple(split(kind, relation) for kind, union in kinds for relation in maps_of(coalesced(union)))
    )


def no_fewer_pairs(accesses: AccessRelations, order: isl.UnionMap) -> Dependences:
    """The dependences and more pairs, found with little work: where isl does not find the dependences themselves.

    for i: a[(5i) mod 7] = …      { S[i] -> S[j] : i < j }, not { S[i] -> S[i + 7] }

    Every quotient and remainder in an access may be any number here, and no write hides another. What keeps the order
    of all these pairs keeps that of the dependences, and a reduction's pairs are still pairs of one reduction. But a
    flow among them need not carry a value, so that no rewrite, no buffer and no bound may be derived from them.
    """
    reads, assigns, accumulates = map(
        _without_divisors, (accesses.reads, accesses.assigns, accesses.accumulates)
    )
    writes = assigns.union(accumulates)
    dates = DateOrder(order)
    own = among_groups(dates.earlier(accumulates, accumulates), accesses.operators)
    overwritten = dates.earlier(writes, writes).subtract(own)
    gathered = dates.earlier(writes, accumulates).subtract(own)
    flow = dates.earlier(writes, reads).union(gathered)
    kinds = zip(KINDS, (flow, dates.earlier(reads, writes), overwritten, own), strict=True)
    return Dependences(tuple(split(kind, relation) for kind, union in kinds for relation in maps_of(union)))


def _without_divisors(accesses: isl.UnionMap) -> isl.UnionMap:
    """The accesses with every element that an instance could access if a quotient or remainder were any number."""
    return union_map(one.remove_divs() for one in maps_of(accesses))


class _EarlierPairs:
    """The pairs (instance, later instance) on one element: of two writes, a write and a read, a read and a write.

    Each is asked of isl once, and the pairs that hide others are parts of them: a statement either assigns or
    accumulates, so the names of two statements say which pairs begin or end with an assignment.
    """

    def __init__(self, accesses: AccessRelations, order: isl.UnionMap) -> None:
        writes, dates = accesses.writes, DateOrder(order)
        self.alike = dates.alike
        self.of_writes = dates.earlier(writes, writes)
        self.to_reads = dates.earlier(writes, accesses.reads)
        self.to_writes = dates.earlier(accesses.reads, writes)
        self.accumulating = accesses.operators

    def unhidden(self, pairs: isl.UnionMap, behind: isl.UnionMap) -> isl.UnionMap:
        """Pairs on one element with no assignment to it in between; `behind` are those that may follow the assignment.

        An assignment has one element, so two pairs that meet in it are about the same element. Written out because
        isl's own dataflow (islpy 2026.2.2, with the dates as a map and as a tree) names writes that are not the last:
        given { A[i] -> [i, 0] : 0 <= i <= 1; B[] -> [0, 2]; C[] -> [1, 1] }, A and B writing and C reading element 0,
        it finds A[0] -> C[] although B[] comes between. This is also the faster way, here by a factor of three.
        """
        to_assigns = self.to_writes if pairs is self.to_writes else self.of_writes
        left = {tuple_names(pair): self.alike.nameless(pair) for pair in maps_of(pairs)}
        for one, other in meeting(self._assigning(to_assigns, 1), self._assigning(behind, 0)):
            ends = tuple_names(one)[0], tuple_names(other)[1]
            if ends in left:  # what is hidden already is not asked about again
                through = self.alike.asked(isl.Map.apply_range, one, other)
                left[ends] = self.alike.asked(isl.Map.subtract, left[ends], through)
                if left[ends].is_empty():
                    del left[ends]
        return union_map(named(pair, *ends) for ends, pair in left.items())

    def _assigning(self, pairs: isl.UnionMap, end: int) -> isl.UnionMap:
        """The pairs whose source (end 0) or sink (end 1) is an assignment."""
        return union_map(part for part in maps_of(pairs) if tuple_names(part)[end] not in self.accumulating)


def ending_in(pairs: isl.UnionMap, names: Container[str]) -> isl.UnionMap:
    """The pairs whose sinks are instances of some statements."""
    return union_map(part for part in maps_of(pairs) if tuple_names(part)[1] in names)


def earlier(first: isl.UnionMap, second: isl.UnionMap, order: isl.UnionMap) -> isl.UnionMap:
    """Pairs (instance of `first`, instance of `second`) that access one element, the first at an earlier date."""
    return DateOrder(order).earlier(first, second)


class DateOrder:
    """The dates of statements, and which instances of one run before those of another, asked once for two statements.

    Where the first dates that differ are numbers, such as places in a sequence, they decide for all instances that
    agree in the dates before, and no date behind them matters:

        S[i, j] -> [0, i, 0, j],  T[i, j] -> [0, i, 1, j]      S[i, j] is before T[k, l] if i <= k
    """

    def __init__(self, order: isl.UnionMap) -> None:
        self.alike = Alike()
        self.dates = {tuple_names(part)[0]: part for part in maps_of(order)}
        self.places = {name: _places(part) for name, part in self.dates.items()}
        self._before: dict[tuple[str, str], isl.Map | bool] = {}
        self._some: dict[tuple[str, tuple[int, ...]], isl.Map] = {}

    def earlier(self, first: isl.UnionMap, second: isl.UnionMap) -> isl.UnionMap:
        """Pairs (instance of `first`, instance of `second`) that access one element, the first at an earlier date."""
        found = []
        for one, other in meeting(first, second.reverse()):
            early, late = tuple_names(one)[0], tuple_names(other)[1]
            if early not in self.dates or late not in self.dates:
                continue
            before = self.before(early, late)
            if isinstance(before, isl.Map):
                same = self.alike.asked(isl.Map.apply_range, one, other)
                found.append(named(self.alike.asked(isl.Map.intersect, same, before), early, late))
            elif before:
                same = one.intersect_domain(self.dates[early].domain()).apply_range(other)
                found.append(same.intersect_range(self.dates[late].domain()))
        return union_map(found)

    def before(self, early: str, late: str) -> isl.Map | bool:
        """The instances of one statement and those of another that run later, without names; True for all of them."""
        key = early, late
        if key not in self._before:
            self._before[key] = self._compared(early, late)
        return self._before[key]

    def _compared(self, early: str, late: str) -> isl.Map | bool:
        differ, places = [], zip(self.places[early], self.places[late], strict=True)
        decided = False
        for axis, (one, other) in enumerate(places):
            if one is None or other is None:
                differ.append(axis)
            elif one != other:
                decided = one < other
                break
        if not differ:
            return decided
        one, other = (self._at(name, tuple(differ)) for name in (early, late))
        return self.alike.asked(isl.Map.lex_le_map if decided else isl.Map.lex_lt_map, one, other)

    def _at(self, name: str, axes: tuple[int, ...]) -> isl.Map:
        """Some of a statement's dates: { S[i, j] -> [0, i, 0, j] } at (1, 3) is { S[i, j] -> [i, j] }."""
        key = name, axes
        if key not in self._some:
            some, end = self.dates[name], self.dates[name].dim(OUT)
            for axis in (*reversed(axes), -1):
                some = some.project_out(OUT, axis + 1, end - axis - 1)
                end = axis
            self._some[key] = some
        return self._some[key]


def _places(dates: isl.Map) -> tuple[int | None, ...]:
    """The dates that are the same number for every instance, from outside; None for others."""
    found = (dates.plain_get_val_if_fixed(OUT, axis) for axis in range(dates.dim(OUT)))
    return tuple(value.to_python() if value.is_int() else None for value in found)


def among_groups(pairs: isl.UnionMap, operators: Mapping[str, str]) -> isl.UnionMap:
    """Return the pairs that lie between two updates of one element by one operator."""
    own = []
    for pair in maps_of(pairs):
        first, second = (operators.get(name) for name in tuple_names(pair))
        if first is not None and first == second:
            own.append(pair)
    return union_map(own)

"""The traffic of a schedule between slow memory and a fast one of some bytes, counted.

A part of the tree is a loop's body, a loop or a statement, at one value of each loop around it. Its footprint is what
it touches. The largest parts whose footprint fits are found from the root down, and the tree's traffic is the sum of
theirs:

    part    loads what it reads and did not make, stores what it made and others read
    loop    whose body fits: of each iteration, the elements that the iteration before has not touched
    a part that fits, beside a loop that does not: with its first iteration, or its last one

    for i (tiles): for j (tiles): for k (tiles): C[i, j] += A[i, k] B[k, j], of which a tile each fits
        A, B: (tiles of i, j, k) × (elements of a tile);   C: once, as it stays while k runs

Elements are counted exactly, at all borders: the pairs { [values of the loops around] -> element } are a set of isl,
and `cardinality` counts it, or `swept` where tiles are skewed. What is counted can be done with this fast memory, and
the best replacement may do better.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import TypeVar

import islpy as isl

from polyfuse.ir.access import Access
from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import Leaf, Loop, Sequence, Tree, date_map, sequence, statements
from polyfuse.lower_bounds.cardinality import cardinality
from polyfuse.lower_bounds.compulsory import Moved
from polyfuse.lower_bounds.swept import swept
from polyfuse.sets import PARAM, SET

Dates = tuple[Loop, ...]
Relation = TypeVar("Relation", isl.Set, isl.Map)


@dataclass(frozen=True)
class Traffic:
    """What a part of a schedule moves.

    Attributes:
        moved: By tensor, elements loaded and stored.
    """

    moved: Mapping[str, Moved]

    def __add__(self, other: Traffic) -> Traffic:
        both = {**self.moved}
        for tensor, one in other.moved.items():
            was = both.get(tensor, Moved(0, 0))
            both[tensor] = Moved(was.loads + one.loads, was.stores + one.stores)
        return Traffic(both)


class Counter:
    """Counts the traffic of trees over one nest."""

    def __init__(self, nest: Nest, sizes: isl.Set, memory: int) -> None:
        """Counts for these values of sizes, and a fast memory of some bytes."""
        self.nest, self.sizes, self.memory = nest, sizes, memory

    def of(self, tree: Tree, around: Dates = ()) -> Traffic:
        """The traffic of all iterations of a part.

        Raises:
            NotCounted: if a set has no form in which its points are counted.
        """
        if isinstance(tree, Leaf) or self.footprint(tree, around) <= self.memory:
            return self._part(tree, around)
        if isinstance(tree, Sequence):
            apart = self._sum(tree.children, around)
            joined = self._joined(tree, around)
            return apart if joined is None else min(self._sum(joined, around), apart, key=self.bytes_of)
        inside = (*around, tree)
        if self.footprint(tree.body, inside) <= self.memory:
            return self._part(tree.body, inside, kept=True)
        return self.of(tree.body, inside)

    def bytes_of(self, traffic: Traffic) -> int:
        """Bytes that are loaded and stored."""
        return sum(moved.elements * self.nest.tensor(t).itemsize for t, moved in traffic.moved.items())

    def _sum(self, trees: tuple[Tree, ...], around: Dates) -> Traffic:
        total = Traffic({})
        for tree in trees:
            total = total + self.of(tree, around)
        return total

    def _joined(self, tree: Sequence, around: Dates) -> tuple[Tree, ...] | None:
        """The parts of a sequence, with small ones in the first iteration of the loop after them; None without any.

        { zero; for k: mac; relu }  ->  for k: { zero at the first k; mac; relu at the last k }
        """
        waiting: list[Tree] = []
        found: list[Tree] = []
        for child in tree.children:
            if self.footprint(child, around) <= self.memory:
                waiting.append(child)
            elif isinstance(child, Loop):
                found.append(self._inside(child, waiting, around, first=True))
                waiting = []
            else:
                found += [*waiting, child]
                waiting = []
        if waiting and found and isinstance(found[-1], Loop):
            found[-1] = self._inside(found[-1], waiting, around, first=False)
        elif waiting:
            found += waiting
        return None if len(found) == len(tree.children) else tuple(found)

    def _inside(self, loop: Loop, parts: list[Tree], around: Dates, first: bool) -> Loop:
        """A loop with parts in its first or last iteration; at values of the loops around where it has none, at 0."""
        if not parts:
            return loop
        inside = (*around, loop)
        values = isl.Set.empty(isl.Space.set_alloc(isl.DEFAULT_CONTEXT, 0, len(inside)))
        for name in statements(loop):
            values = values.union(self._when(name, inside).range())
        pairs = isl.Map.from_range(values).move_dims(isl.dim_type.in_, 0, isl.dim_type.out, 0, len(around))
        ends = pairs.lexmin() if first else pairs.lexmax()
        dates = dict(loop.dates)
        for name in (name for part in parts for name in statements(part)):
            when = self._when(name, around)
            missing = when.range().subtract(ends.domain())
            zero = isl.Map.from_domain_and_range(missing, isl.Set("{ [0] }"))
            found = isl.PwMultiAff.from_map(when.apply_range(ends.union(zero)))
            dates[name] = found.get_pw_aff(0)
        body = sequence((*parts, loop.body) if first else (loop.body, *parts))
        return Loop(loop.name, tuple(dates.items()), body)

    def footprint(self, tree: Tree, around: Dates) -> int:
        """The bytes that a part touches at one value of each loop around it, at most: boxes around what lies together.

        A[i, k] and A[i, k + 1] lie together, A[i, k] and A[k, j] do not.
        """
        total = 0
        for tensor, several in self._accessed(tree, around).items():
            groups: list[tuple[isl.Map, int]] = []
            for touched in several:
                group = touched, _width(touched)
                for other in list(groups):
                    joined = group[0].union(other[0])
                    if (width := _width(joined)) <= group[1] + other[1]:
                        groups.remove(other)
                        group = joined, width
                groups.append(group)
            total += sum(width for _, width in groups) * self.nest.tensor(tensor).itemsize
        return total

    def _accessed(self, tree: Tree, around: Dates) -> dict[str, list[isl.Map]]:
        """By tensor, { [values of the loops around] -> element touched } of each access."""
        found: dict[str, list[isl.Map]] = {}
        for name in statements(tree):
            when = self._when(name, around).reverse()
            for access in self.nest.statement(name).accesses:
                if self.nest.tensor(access.tensor).role != "gathered":
                    found.setdefault(access.tensor, []).append(when.apply_range(self._plain(access.map)))
        return found

    def _part(self, tree: Tree, around: Dates, kept: bool = False) -> Traffic:
        """What the iterations of a part move; if `kept`, those of the last loop around keep what the one before had."""
        moved = {}
        for tensor, several in self._accessed(tree, around).items():
            touched = _union(several)
            loads, stores = self._loaded(tree, around, tensor), self._stored(tree, around, tensor)
            counts = [_count(each) for each in (loads, stores)]
            if kept:
                step = _next(touched.domain())
                counts[0] -= _count(loads.intersect(step.reverse().apply_range(touched)))
                counts[1] -= _count(stores.intersect(step.apply_range(touched)))
            moved[tensor] = Moved(*counts)
        return Traffic(moved)

    def _loaded(self, tree: Tree, around: Dates, tensor: str) -> isl.Map:
        """{ [values of the loops around] -> element whose value was made elsewhere, or at other values }."""
        parts = []
        for name in statements(tree):
            for access in self._needed(name, tensor):
                needed = self._plain(access.map).intersect_domain(self._plain(self.nest.domains[name]))
                for writer, relation in self._values(tree, around, tensor, sink=name):
                    made = relation.reverse().apply_range(self._plain(self.nest.statement(writer).write.map))
                    needed = needed.subtract(made)
                parts.append(self._when(name, around).reverse().apply_range(needed))
        return _union(parts) if parts else self._nothing(around, tensor)

    def _needed(self, name: str, tensor: str) -> list[Access]:
        if self.nest.tensor(tensor).role == "temporary" and not self.nest.writers(tensor):
            return []
        statement = self.nest.statement(name)
        own = (statement.write,) if statement.is_reduction else ()
        return [access for access in (*own, *statement.reads) if access.tensor == tensor]

    def _stored(self, tree: Tree, around: Dates, tensor: str) -> isl.Map:
        """{ [values of the loops around] -> element whose new value is a result, or is read elsewhere }."""
        parts = []
        for name in statements(tree):
            statement = self.nest.statement(name)
            if statement.write.tensor != tensor:
                continue
            leaving = self._plain(self.nest.domains[name])
            if self.nest.tensor(tensor).role == "temporary":
                leaving = self._read_elsewhere(tree, around, name)
            write = self._plain(statement.write.map).intersect_domain(leaving)
            parts.append(self._when(name, around).reverse().apply_range(write))
        return _union(parts) if parts else self._nothing(around, tensor)

    def _read_elsewhere(self, tree: Tree, around: Dates, name: str) -> isl.Set:
        """The instances of a statement whose value another part reads, or this one at other values of the loops."""
        found = isl.Set.empty(self._plain(self.nest.domains[name]).get_space())
        for pair in self.nest.dependences().after(name):
            if pair.is_value:
                relation = self._plain(pair.map)
                if pair.sink in tree.members:
                    relation = relation.subtract(self._together(relation, around, name, pair.sink))
                found = found.union(relation.domain())
        return found

    def _values(self, tree: Tree, around: Dates, tensor: str, sink: str) -> Iterator[tuple[str, isl.Map]]:
        """The values of a tensor that an instance reads and the same iteration of the part made, by statement."""
        for writer in self.nest.writers(tensor):
            if writer.name in tree.members:
                for pair in self.nest.dependences().after(writer.name):
                    if pair.sink == sink and pair.is_value:
                        yield writer.name, self._together(self._plain(pair.map), around, writer.name, sink)

    def _together(self, pairs: isl.Map, around: Dates, source: str, sink: str) -> isl.Map:
        """The pairs at the same values of the loops around."""
        same = self._when(source, around).apply_range(self._when(sink, around).reverse())
        return pairs.intersect(same)

    def _when(self, name: str, around: Dates) -> isl.Map:
        """{ instance -> [values of the loops around] }."""
        return self._plain(date_map(self.nest.domains[name], [loop.date(name) for loop in around]))

    def _nothing(self, around: Dates, tensor: str) -> isl.Map:
        """The empty relation from the values of loops to a tensor's elements."""
        space = isl.Space.alloc(isl.DEFAULT_CONTEXT, 0, len(around), self.nest.tensor(tensor).rank)
        return isl.Map.empty(space.set_tuple_name(isl.dim_type.out, tensor))

    def _plain(self, relation: Relation) -> Relation:
        """A relation at these sizes, of numbers alone."""
        count = relation.dim(PARAM)
        return relation.intersect_params(self.sizes).project_out(PARAM, 0, count) if count else relation


def _union(parts: list[isl.Map]) -> isl.Map:
    """The union of relations, of which there is one at least."""
    whole = parts[0]
    for more in parts[1:]:
        whole = whole.union(more)
    return whole.coalesce()


def _width(touched: isl.Map) -> int:
    """The points in a box around what a relation reaches from one value, at most."""
    together = touched.reverse().apply_range(touched).deltas()
    if together.is_empty():
        return 0
    return prod(int(together.dim_max_val(d).to_python()) + 1 for d in range(together.dim(SET)))


class NotCounted(Exception):
    """A set has no form in which its points are counted."""


def _count(relation: isl.Map) -> int:
    """The number of pairs."""
    pairs = relation.wrap().flatten()
    found = cardinality(pairs)
    if found is None:
        found = swept(pairs)
    if found is None:
        raise NotCounted
    return found


def _next(values: isl.Set) -> isl.Map:
    """{ [i, j] -> [i, j + 1] }."""
    rank = values.dim(SET)
    given = ", ".join(f"d{d}" for d in range(rank))
    after = ", ".join([*(f"d{d}" for d in range(rank - 1)), f"d{rank - 1} + 1"])
    return isl.Map(f"{{ [{given}] -> [{after}] }}")

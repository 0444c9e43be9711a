"""The least traffic of some statements: bounds of single statements, taken together where that is sound.

Bounds of two statements add up where no value that enters counts for both:

    no tensor in common                                                     nothing enters for both
    one updates t, the other reads it, and all of the first runs before     an element of t that enters once for both
                                                                            counts once too often, at most

What enters is loaded or born, and what is born was not loaded. So for the tensors of a group of bounds

    loads  >=  sum of the bounds - values born - elements in common,   and   loads >= what has to be loaded once

Stores are those of results. Tensors that are in no bound are loaded and stored once at least.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import ceil

from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import Loop, path_to
from polyfuse.lower_bounds.accesses import updates
from polyfuse.lower_bounds.chains import most
from polyfuse.lower_bounds.compulsory import Moved, compulsory
from polyfuse.lower_bounds.statement_bound import CHAIN, StatementBound, births, statement_bounds


@dataclass(frozen=True)
class Group:
    """Bounds of statements whose tensors are connected, and what is taken off their sum.

    Attributes:
        bounds: The bounds.
        tensors: All of their tensors.
        born: Values of these tensors that are computed without a predecessor in the same place.
        shared: Elements that may have entered for two of the bounds at once.
        itemsize: Bytes of the smallest of the tensors' elements.
    """

    bounds: tuple[StatementBound, ...]
    tensors: frozenset[str]
    born: int
    shared: int
    itemsize: int

    def loads(self, memory: int) -> int:
        """Return the least number of elements that are loaded."""
        total = sum(bound.entering(memory // self.itemsize) for bound in self.bounds)
        return max(0, ceil(total - self.born - self.shared))


@dataclass(frozen=True)
class ProgramBound:
    """The least traffic of some statements.

    Attributes:
        moved: By tensor, what is loaded and stored once at least.
        itemsizes: By tensor, the bytes of an element.
        groups: Bounds that depend on the size of fast memory.
        others: Bounds that are nothing beside what is moved once, or that another statement's leaves no room for.
    """

    moved: Mapping[str, Moved]
    itemsizes: Mapping[str, int]
    groups: tuple[Group, ...]
    others: tuple[StatementBound, ...] = ()

    @property
    def compulsory(self) -> int:
        """Bytes that are loaded and stored once at least."""
        return sum(moved.elements * self.itemsizes[t] for t, moved in self.moved.items())

    def _once(self, group: Group) -> int:
        return sum(self.moved[t].loads * self.itemsizes[t] for t in group.tensors)

    def applies(self, group: Group, memory: int) -> bool:
        """True if a group's bound is above what its tensors are loaded once."""
        return group.loads(memory) * group.itemsize > self._once(group)

    def least(self, memory: int) -> int:
        """Return the bytes that any order moves at least between slow memory and a fast one of some bytes."""
        more = (group.loads(memory) * group.itemsize - self._once(group) for group in self.groups)
        return self.compulsory + sum(max(0, each) for each in more)


def program_bound(nest: Nest, inside: Collection[str], memory: int) -> ProgramBound:
    """Return the least traffic of some statements of a nest, in any order that is legal.

    Args:
        nest: A nest without sizes.
        inside: The statements.
        memory: Bytes of fast memory, for which bounds are chosen.
    """
    moved = compulsory(nest, inside)
    itemsizes = {tensor: nest.tensor(tensor).itemsize for tensor in moved}
    born = births(nest, inside)
    elements = memory // min(itemsizes.values(), default=1)
    best: dict[str, StatementBound] = {}
    for name in inside:
        for bound in statement_bounds(nest, name, inside, elements, born):
            if name not in best or _worth(bound, elements, born) > _worth(best[name], elements, born):
                best[name] = bound
    chosen: list[StatementBound] = []
    others: list[StatementBound] = []
    shared: dict[tuple[str, str], int] = {}
    for bound in sorted(best.values(), key=lambda each: -_worth(each, elements, born)):
        common = [_common(nest, bound, other) for other in chosen]
        if _worth(bound, elements, born) > 0 and all(each is not None for each in common):
            shared.update(
                {(bound.statement, o.statement): c or 0 for o, c in zip(chosen, common, strict=True)}
            )
            chosen.append(bound)
        else:
            others.append(bound)
    groups = _grouped(chosen, shared, born, itemsizes)
    return ProgramBound(moved, itemsizes, tuple(groups), tuple(others))


def _worth(bound: StatementBound, elements: int, born: Mapping[str, int]) -> float:
    """Values that are loaded for a statement alone."""
    return bound.entering(elements) - _born(bound.tensors, born, bound)


def _born(tensors: Collection[str], born: Mapping[str, int], *bounds: StatementBound) -> int:
    """Values of tensors that are born and count as entering; those on chains do not."""
    counted = {t for bound in bounds for t in bound.tensors if all(f.tensor != CHAIN for f in bound.factors)}
    return sum(born.get(tensor, 0) for tensor in tensors if tensor in counted)


def _common(nest: Nest, one: StatementBound, other: StatementBound) -> int | None:
    """The elements that may enter for two bounds at once; None if these are not known to be few."""
    total = 0
    for tensor in one.tensors & other.tensors:
        if any(factor.tensor == CHAIN for bound in (one, other) for factor in bound.factors):
            return None
        names = one.statement, other.statement
        writes = [
            nest.statement(name).write.tensor == tensor and updates(nest.statement(name)) for name in names
        ]
        if writes.count(True) != 1 or not _one_after_the_other(nest, *names):
            return None
        reader = names[writes.index(False)]
        reads = (a.map for a in nest.statement(reader).accesses if a.tensor == tensor)
        total += sum(most(nest.domains[reader].apply(read)) for read in reads)
    return total


def _one_after_the_other(nest: Nest, one: str, other: str) -> bool:
    """True if no loop is around both statements in the nest's order."""
    around = path_to(nest.order, one)
    return not any(isinstance(node, Loop) and other in node.members for node in around)


def _grouped(
    bounds: list[StatementBound],
    shared: Mapping[tuple[str, str], int],
    born: Mapping[str, int],
    itemsizes: Mapping[str, int],
) -> list[Group]:
    """Bounds in groups that have no tensor in common."""
    groups: list[list[StatementBound]] = []
    for bound in bounds:
        near = [group for group in groups if any(bound.tensors & other.tensors for other in group)]
        joined = [each for group in near for each in group]
        groups = [group for group in groups if group not in near] + [[*joined, bound]]
    found = []
    for group in groups:
        tensors = frozenset(t for bound in group for t in bound.tensors)
        names = {bound.statement for bound in group}
        common = sum(count for (a, b), count in shared.items() if a in names and b in names)
        itemsize = min(itemsizes[t] for t in tensors)
        found.append(Group(tuple(group), tensors, _born(tensors, born, *group), common, itemsize))
    return found

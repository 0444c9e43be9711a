"""Groups of a statement's accesses to one tensor that share few elements, so that each counts its own.

    S[k, i, j], k < i, j:   A[i, j] -= A[i, k] * A[k, j]

Two accesses may be in different groups if their elements are different ones: A[i, k] is left of the diagonal, A[k, j]
is not. So may the write of an update and a read, if each element is updated for the last time before it is read for the
first time, or the other way round: the read of A[i, k] needs the final value. In a segment of time an element may then
be in both groups only if it passes from one to the other, which each does once: these passings count as entering.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import islpy as isl

from polyfuse.ir.access import Access
from polyfuse.ir.nest import Nest
from polyfuse.ir.statement import Statement
from polyfuse.lower_bounds.accesses import updates
from polyfuse.lower_bounds.chains import most


@dataclass(frozen=True)
class AccessGroups:
    """Accesses in groups.

    Attributes:
        numbers: The number of each access's group; different tensors may have the same.
        passing: By tensor, the elements that pass from one group to another, at most.
    """

    numbers: tuple[int, ...]
    passing: Mapping[str, int]


def access_groups(nest: Nest, statement: Statement, accesses: Sequence[Access]) -> AccessGroups:
    """Return the groups of a statement's accesses.

    Args:
        nest: A nest without sizes.
        statement: The statement.
        accesses: Its accesses, of which the first is the write if it updates what it writes.
    """
    domain = nest.domains[statement.name]
    maps = [access.map.intersect_domain(domain) for access in accesses]
    numbers = list(range(len(accesses)))
    passing: list[tuple[int, bool, isl.Set]] = []
    for one, access in enumerate(accesses):
        for other in range(one):
            if accesses[other].tensor != access.tensor:
                continue
            shared = maps[one].range().intersect(maps[other].range())
            if shared.is_empty():
                continue
            final = _final(nest, statement, maps[0], maps[one]) if other == 0 and updates(statement) else None
            if final is None:
                numbers = [numbers[other] if number == numbers[one] else number for number in numbers]
            else:
                passing.append((one, final, shared))
    alike: dict[tuple[str, int, bool], isl.Set] = {}
    for one, final, shared in passing:
        key = accesses[one].tensor, numbers[one], final
        alike[key] = alike[key].union(shared) if key in alike else shared
    counts = dict.fromkeys((access.tensor for access in accesses), 0)
    for (tensor, _, _), elements in alike.items():
        counts[tensor] += most(elements)
    return AccessGroups(tuple(numbers), counts)


def _final(nest: Nest, statement: Statement, write: isl.Map, read: isl.Map) -> bool | None:
    """True if each element is read after its last update, False if before its first; None if neither is so."""
    dates = isl.Map.from_union_map(
        nest.dates_of([statement.name]).intersect_domain(write.domain().to_union_set())
    )
    pairs = write.apply_range(read.reverse())
    early, late = pairs.intersect(dates.lex_lt_map(dates)), pairs.intersect(dates.lex_ge_map(dates))
    return True if late.is_empty() else False if early.is_empty() else None

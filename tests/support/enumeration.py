"""The instances of small nests one by one, in their order: what proofs are checked against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import islpy as isl

from polyfuse.ir import Nest, Statement
from polyfuse.sets import IN, fix_params, maps_of, points

Element = tuple[str, tuple[int, ...]]
Instance = tuple[str, tuple[int, ...]]


@dataclass(frozen=True)
class Step:
    """One instance: the elements it reads (in the order of the statement's reads) and the one it writes."""

    statement: Statement
    point: tuple[int, ...]
    date: tuple[int, ...]
    reads: tuple[Element, ...]
    write: Element

    @property
    def instance(self) -> Instance:
        return self.statement.name, self.point


def pairs(relation: isl.Map, sizes: Mapping[str, int]) -> dict[tuple[int, ...], tuple[int, ...]]:
    """A single-valued relation as a dictionary."""
    return dict(all_pairs(relation, sizes))


def all_pairs(relation: isl.Map, sizes: Mapping[str, int]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Every pair of a relation at these sizes."""
    rank = relation.dim(IN)
    flat = fix_params(relation.wrap().flatten(), dict(sizes))
    return [(point[:rank], point[rank:]) for point in points(flat)]


def steps(nest: Nest, sizes: Mapping[str, int]) -> list[Step]:
    """All instances, earliest first."""
    found = []
    dates = {m.get_tuple_name(IN): m for m in maps_of(nest.original_dates())}
    for s in nest.statements:
        domain = s.domain
        when = pairs(dates[s.name].intersect_domain(domain), sizes) if s.name in dates else {}
        elements = [(a.tensor, pairs(a.map.intersect_domain(domain), sizes)) for a in (s.write, *s.reads)]
        for point, date in when.items():
            write, *reads = ((tensor, where[point]) for tensor, where in elements)
            found.append(Step(s, point, date, tuple(reads), write))
    return sorted(found, key=lambda step: step.date)

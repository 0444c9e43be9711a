"""The theorem for rewrites that only rename and reorder a nest's instances."""

from __future__ import annotations

import islpy as isl

from polyfuse.errors import ValidationFailure
from polyfuse.ir import Nest
from polyfuse.sets import IN, OUT, maps_of, union_set


def turned_round(nest: Nest, result: Nest, origins: isl.UnionMap) -> isl.Map | None:
    """Pairs of the nest's instances that depend on each other and run the other way round in the result; None: no pair.

    `origins`: { new instance -> the instance of the nest that it is }. The result computes what the nest did if
    { source of a dependence -> its sink } under the new names is part of the new order's "before". A declared reduction
    may add in any order. Raises ValidationFailure if not every instance of the nest runs once, which would be a bug.
    """
    every = union_set(nest.domains.values()), union_set(result.domains.values())
    ran = origins.range().is_equal(every[0]) and origins.domain().is_equal(every[1])
    if not (ran and origins.is_bijective()):
        raise ValidationFailure(f"{result.name}: not every instance of the nest runs once in its rewrite")
    renamed = origins.reverse()
    for pair in nest.dependences().pairs:
        if pair.kind == "reduction":
            continue
        new = isl.UnionMap.from_map(pair.map).apply_domain(renamed).apply_range(renamed)
        for one in maps_of(new):
            for late in maps_of(isl.UnionMap.from_map(one).subtract(_forward(result, one))):
                old = isl.UnionMap.from_map(late).apply_domain(origins).apply_range(origins)
                return maps_of(old.intersect(isl.UnionMap.from_map(pair.map)))[0]
    return None


def _forward(nest: Nest, between: isl.Map) -> isl.UnionMap:
    """{ instance -> a later one }, of the statements that a relation is between: of all it would be as many squared."""
    order = nest.dates_of({between.get_tuple_name(IN), between.get_tuple_name(OUT)})
    return order.lex_lt_union_map(order)

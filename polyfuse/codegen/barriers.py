"""Barriers as statements of their own, so that isl generates them where every thread of the block gets to them.

    for t: { S[t] if t >= 2;  barrier;  T[t] }      the barrier runs in every iteration, also where S does not

A barrier runs once for each value of the loops around it for which any statement of its sequence (or loop) runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce

import islpy as isl

from polyfuse.ir.tree import Leaf, Loop, Sequence, Tree, date_map, sequence, statements
from polyfuse.sets import SET, dimension

Domains = Mapping[str, isl.Set]


def with_barrier_statements(tree: Tree, domains: Domains) -> tuple[Tree, Domains]:
    """The tree with a leaf for each barrier, and what these leaves' instances are: their domains, by name."""
    found: dict[str, isl.Set] = {}
    return _explicit(tree, (), domains, found), found


def _explicit(tree: Tree, around: tuple[Loop, ...], domains: Domains, found: dict[str, isl.Set]) -> Tree:
    match tree:
        case Leaf():
            return tree
        case Loop():
            inside = (*around, tree)
            body = _explicit(tree.body, inside, domains, found)
            if tree.barrier:
                body = sequence((body, _leaf(tree, inside, domains, found)))
            added = [name for name in statements(body) if name in found]
            dates = [(name, dimension(found[name], len(around))) for name in added]
            return replace(tree, body=body, dates=(*tree.dates, *dates), barrier=False)
        case Sequence():
            parts: list[Tree] = []
            for position, child in enumerate(tree.children):
                parts.append(_explicit(child, around, domains, found))
                if position in tree.barriers:
                    parts.append(_leaf(tree, around, domains, found))
            return Sequence(tuple(parts))


def _leaf(node: Tree, around: tuple[Loop, ...], domains: Domains, found: dict[str, isl.Set]) -> Leaf:
    """A new barrier under the loops `around`, for all that run in `node`."""
    runs = (
        date_map(domains[name], [loop.date(name) for loop in around]).range() for name in statements(node)
    )
    name = next(
        f"barrier{n}"
        for n in range(len(found), len(found) + len(domains) + 1)
        if f"barrier{n}" not in domains
    )
    domain = reduce(isl.Set.union, runs).coalesce()
    assert domain.dim(SET) == len(around), "one dimension for each loop"
    found[name] = domain.set_tuple_name(name)
    return Leaf(name)

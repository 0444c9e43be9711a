"""Represent barriers as statements, so that isl generates them where every thread of the block reaches them.

    for t: { S[t] if t >= 2;  barrier;  T[t] }      the barrier runs in every iteration, also where S does not

A barrier runs once for each value of the loops around it for which any statement of its sequence (or loop) runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce

import islpy as isl

from polyfuse.codegen.looptree.nodes import Node
from polyfuse.ir.tree import Leaf, Loop, Sequence, Tree, date_map, sequence, statements
from polyfuse.sets import SET, dimension

Domains = Mapping[str, isl.Set]


@dataclass(frozen=True)
class Barriers:
    """The leaves that are barriers: their instances, whose loop's iterations each one ends, if any's, those of the
    grid, at which all blocks meet, and those at which a warp that only copies and the others wait for each other.
    """

    domains: dict[str, isl.Set] = field(default_factory=dict)
    ends: dict[str, Loop] = field(default_factory=dict)
    grid: set[str] = field(default_factory=set)
    handed: dict[str, Node] = field(default_factory=dict)


def with_barrier_statements(tree: Tree, domains: Domains) -> tuple[Tree, Barriers]:
    """The tree with a leaf for each barrier, and what these leaves are."""
    found = Barriers()
    return _explicit(tree, (), domains, found), found


def _explicit(tree: Tree, around: tuple[Loop, ...], domains: Domains, found: Barriers) -> Tree:
    match tree:
        case Leaf():
            return tree
        case Loop():
            inside = (*around, tree)
            body = _explicit(tree.body, inside, domains, found)
            if tree.barrier:
                added = leaf(tree, inside, domains, found)
                body = sequence((body, added))
                found.ends[added.statement] = tree
                found.grid.update(added.names if tree.grid else ())
            own = [name for name in statements(body) if name in found.domains]
            dates = [(name, dimension(found.domains[name], len(around))) for name in own]
            return replace(tree, body=body, dates=(*tree.dates, *dates), barrier=False, grid=False)
        case Sequence():
            parts: list[Tree] = []
            for position, child in enumerate(tree.children):
                parts.append(_explicit(child, around, domains, found))
                if position in tree.barriers:
                    added = leaf(tree, around, domains, found)
                    found.grid.update(added.names if position in tree.grid else ())
                    parts.append(added)
            return Sequence(tuple(parts))


def leaf(node: Tree, around: tuple[Loop, ...], domains: Domains, found: Barriers) -> Leaf:
    """A new barrier under the loops `around`, for all that run in `node`."""
    runs = (
        date_map(domains[name], [loop.date(name) for loop in around]).range() for name in statements(node)
    )
    name = next(
        f"barrier{n}"
        for n in range(len(found.domains), len(found.domains) + len(domains) + 1)
        if f"barrier{n}" not in domains
    )
    domain = reduce(isl.Set.union, runs).coalesce()
    assert domain.dim(SET) == len(around), "one dimension for each loop"
    found.domains[name] = domain.set_tuple_name(name)
    return Leaf(name)

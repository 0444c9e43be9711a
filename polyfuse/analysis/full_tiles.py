"""Find full tiles: those in which no loop is cut short by the border of a domain.

    for i = 0 … ceil(N/32) - 1: for i_in = 0 … min(32, N - 32i) - 1: S      full:  { [i] : 0 <= i and 32i + 31 < N }

A tile is one value of the loops around some loop. What it could hold is what it would hold if the domains had no
border: the same dates for every integer vector. Loops that have no bounds of their own then (a contraction that is not
cut) have no range to be cut from, and are not asked about.

Goumas, Athanasaki, Koziris, An efficient code generation technique for tiled iteration spaces (2003), section 4;
Verdoolaege et al., Polyhedral parallel code generation for CUDA (2013), section 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

import islpy as isl

from polyfuse.ir.tree import Loop, date_map, loops_around, statements
from polyfuse.sets import PARAM, SET


@dataclass(frozen=True)
class Tiles:
    """The tiles below some loops, as sets of these loops' values: those with anything to run, those that are full."""

    every: isl.Set
    full: isl.Set

    @property
    def differ(self) -> bool:
        """True if some tiles are full and others are partial."""
        return not self.full.is_empty() and not self.every.is_subset(self.full)


def tiles(domains: Mapping[str, isl.Set], around: tuple[Loop, ...], top: Loop) -> Tiles:
    """The tiles that `top` and the loops below it run through, one for each value of the loops around it."""
    every = reduce(isl.Set.union, (_prefixes(domains[name], around, name) for name in statements(top)))
    cut = [part for name in statements(top) for part in _cut(domains[name], around, top, name)]
    return Tiles(every.coalesce(), reduce(isl.Set.subtract, cut, every).coalesce())


def is_point_loop(loop: Loop) -> bool:
    """True if a loop's bounds do not depend on the domains: { S[i] -> [i mod 32] } yes, { S[i] -> [i] } no."""
    ranges = (date.as_map().range() for _, date in loop.dates)
    return all(values.project_out(PARAM, 0, values.dim(PARAM)).is_bounded() for values in ranges)


def _cut(domain: isl.Set, around: tuple[Loop, ...], top: Loop, name: str) -> list[isl.Set]:
    """The tiles in which a point loop lacks a value that it would have without the domain's border, for each loop.

    The values it lacks: { [t, p] : [t] runs, [t, p] is a date of some integer vector } - { [t, p] : [t, p] runs }.
    Where all loops are point loops, these are the tiles of what lies beyond the domain: no set is subtracted, which
    takes isl long where tiles are cut again (4 s for 608 columns a core, 256 a block, 32 a tile).
    """
    inside = loops_around(top, name)
    beyond = _beyond(domain) if all(map(is_point_loop, inside)) else None
    if beyond is not None:
        return [_prefixes(part, around, name) for part in beyond]
    anywhere = isl.Set.universe(domain.get_space())
    found = []
    for depth, loop in enumerate(inside):
        if not is_point_loop(loop):
            continue
        outer, both = (*around, *inside[:depth]), (*around, *inside[: depth + 1])
        running = _prefixes(domain, outer, name).insert_dims(SET, len(outer), 1)
        lacking = running.intersect(_prefixes(anywhere, both, name)).subtract(_prefixes(domain, both, name))
        found.append(lacking.project_out(SET, len(around), depth + 1))
    return found


def _beyond(domain: isl.Set) -> list[isl.Set] | None:
    """All integer vectors outside of a domain, one part for each of its borders; None if it is not a polyhedron.

    { S[i, j] : 0 <= i and j <= i }   ->   { S[i, j] : i < 0 }, { S[i, j] : j > i }
    """
    pieces = domain.coalesce().get_basic_sets()
    if len(pieces) != 1 or pieces[0].dim(isl.dim_type.div) > 0:
        return None
    borders = pieces[0].remove_redundancies().get_constraints()
    if any(border.is_equality() for border in borders):
        return None
    sizes = domain.params()
    halves = (isl.Set.from_basic_set(border.get_aff().neg_basic_set()) for border in borders)
    parts = (half.set_tuple_id(domain.get_tuple_id()) for half in halves)
    limited = (part.intersect_params(sizes) for part in parts)
    return [part for part in limited if not part.is_empty()]


def _prefixes(domain: isl.Set, outer: tuple[Loop, ...], name: str) -> isl.Set:
    """The values of some outer loops at which a statement runs."""
    return date_map(domain, [loop.date(name) for loop in outer]).range()

"""Partition loops with separated full tiles into two copies of the tree, which isl bounds independently.

    for i: for i_in (apart): S   ->   for i: { for i_in: full0_S;  for i_in: S }

The instances of full0_S are those of S in full tiles; S keeps all of its own, so that its loops have the bounds they
would have without the other, and code generation leaves it out where a tile is full. A loop inside that is apart too is
asked about in the second copy alone: in the first it is full already. So k loops apart, one inside the other, make
k + 1 copies and not 2^k.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce

import islpy as isl

from polyfuse.analysis.full_tiles import tiles
from polyfuse.ir.tree import (
    Leaf,
    Loop,
    Sequence,
    Tree,
    children,
    date_map,
    loops,
    loops_around,
    replace_node,
    statements,
    with_children,
)
from polyfuse.sets import IN, SET, union_set


@dataclass(frozen=True)
class Copies:
    """Copied statements: their instances and their originals.

    `elsewhere` has the loops, by id(), that run where no copy does, and the instances that copies run in their place.
    """

    domains: dict[str, isl.Set] = field(default_factory=dict)
    originals: dict[str, str] = field(default_factory=dict)
    elsewhere: dict[int, isl.UnionSet] = field(default_factory=dict)


def with_full_tiles(tree: Tree, domains: Mapping[str, isl.Set], once: Container[str]) -> tuple[Tree, Copies]:
    """The tree with two copies of each loop that is apart and has full tiles and others.

    What holds a statement of `once` (a barrier, which all threads must meet at one place) is not copied.
    """
    copies = Copies()
    return _with_copies(tree, (), domains, once, copies), copies


def _with_copies(
    tree: Tree, around: tuple[Loop, ...], domains: Mapping[str, isl.Set], once: Container[str], copies: Copies
) -> Tree:
    inside = (*around, tree) if isinstance(tree, Loop) else around
    below = tuple(_with_copies(child, inside, domains, once, copies) for child in children(tree))
    every = with_children(tree, below)
    if not isinstance(every, Loop) or not isinstance(tree, Loop):
        return every
    added = [name for name in statements(every) if name in copies.originals]
    dates = (_of_copy(copies.domains[name], tree.date(copies.originals[name])) for name in added)
    every = replace(every, dates=(*tree.dates, *dates)) if added else every
    if not tree.apart or any(name in once for name in statements(tree)):
        return every
    found = tiles(domains, around, tree)
    if not found.differ:
        return every
    full, renamed = {}, {}
    for name in statements(tree):
        copy = f"full{len(copies.elsewhere)}_{name}"
        assert copy not in domains, "statements are not named after copies"
        tile = date_map(domains[name], [loop.date(name) for loop in around])
        full[name] = tile.intersect_range(found.full).domain().coalesce()
        renamed[name] = full[name].set_tuple_name(copy)
        copies.domains[copy], copies.originals[copy] = renamed[name], name
    copies.elsewhere[id(every)] = union_set(
        full[copies.originals.get(name, name)].set_tuple_name(name) for name in statements(every)
    )
    return Sequence((_renamed(tree, renamed), every))


def _renamed(tree: Tree, full: Mapping[str, isl.Set]) -> Tree:
    """The tree over the copies of its statements."""
    match tree:
        case Leaf(name):
            return Leaf(full[name].get_tuple_name())
        case Loop():
            dates = tuple(_of_copy(full[name], date) for name, date in tree.dates)
            return replace(tree, dates=dates, body=_renamed(tree.body, full))
        case Sequence():
            return with_children(tree, tuple(_renamed(child, full) for child in tree.children))


def _of_copy(domain: isl.Set, date: isl.PwAff) -> tuple[str, isl.PwAff]:
    """{ full0_S[i] : … }, { S[i] -> [i] }  ->  "full0_S", { full0_S[i] -> [i] }."""
    return domain.get_tuple_name(), date.set_tuple_id(IN, domain.get_tuple_id())


def full_steps(tree: Tree, domains: Mapping[str, isl.Set], operations: Container[str]) -> dict[int, isl.Set]:
    """The values of the loops of steps, by id(), at which no operation inside lacks a step.

    for k: { copy; for k_in < min(16, K - 16k): … }   ->   for k < K // 16: { copy; for k_in < 16: … };  the rest

    Barriers lie inside, which all threads must meet at one place. They do: the loop's values are a block's. A loop with
    buffers of several stages has its first and last iterations apart too, which use or copy nothing.
    """
    found = dict(_steady(tree, domains))
    for loop in loops(tree):
        names = statements(loop)
        if loop.bind != "microkernel" or len(names) != 1 or names[0] not in operations:
            continue
        around = loops_around(tree, names[0])
        around = around[: next(depth for depth, x in enumerate(around) if x is loop)]
        serial = [depth for depth, x in enumerate(around) if x.bind is None]
        seen = tiles(domains, around, loop)
        if not serial or not seen.differ or id(around[serial[-1]]) in found:
            continue
        every, full = (_values_of(values, serial[-1]) for values in (seen.every, seen.full))
        if not every.is_subset(full) and full.n_basic_set() == 1:
            found[id(around[serial[-1]])] = full.insert_dims(SET, 0, serial[-1])
    return found


def _steady(tree: Tree, domains: Mapping[str, isl.Set]) -> Iterator[tuple[int, isl.Set]]:
    """For each loop with stages, by id(), the iterations that lack nothing of what any other one has.

    for k = -1 … K - 1: { copy x[k + 1] if k < K - 1;  use x[k] if 0 <= k }      ->  0 <= k < K - 1
    """
    for loop in loops(tree):
        if all(buffer.stages == 1 for buffer in loop.buffers):
            continue
        names = [
            name for name in statements(loop) if name in domains
        ]  # a copy's instances are its original's
        depth = next(d for d, x in enumerate(loops_around(tree, names[0])) if x is loop)
        inside = {name: loops_around(tree, name)[depth:] for name in names}
        runs = {
            name: date_map(domains[name], [x.date(name) for x in below]).range().coalesce()
            for name, below in inside.items()
        }
        every = reduce(
            isl.Set.union, (r.project_out(SET, 1, r.dim(SET) - 1) for r in runs.values())
        ).coalesce()
        full = reduce(isl.Set.subtract, (_lacking(every, r) for r in runs.values()), every).coalesce()
        if full.n_basic_set() == 1 and not full.is_empty() and not every.is_subset(full):
            yield id(loop), full.insert_dims(SET, 0, depth)


def _lacking(every: isl.Set, runs: isl.Set) -> isl.Set:
    """The first dimension's values that some vector of the others goes with, but not all that go with any value."""
    width = runs.dim(SET) - 1
    others = runs.project_out(SET, 0, 1).insert_dims(SET, 0, 1)
    whole = every.insert_dims(SET, 1, width).intersect(others)
    return whole.subtract(runs).project_out(SET, 1, width)


def _values_of(values: isl.Set, depth: int) -> isl.Set:
    """{ [i, k, t] : … }  ->  { [k] : … }."""
    inner = values.project_out(SET, depth + 1, values.dim(SET) - depth - 1)
    return inner.project_out(SET, 0, depth).coalesce()


def in_one_piece(tree: Tree, operations: frozenset[str]) -> Tree:
    """The tree without full tiles apart where the operation runs tiles that are cut as well as full ones."""
    for loop in loops(tree):
        names = statements(loop)
        if loop.bind == "microkernel" and loop.apart and len(names) == 1 and names[0] in operations:
            return in_one_piece(replace_node(tree, loop, replace(loop, apart=False)), operations)
    return tree

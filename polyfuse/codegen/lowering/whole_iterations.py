"""Keep iterations of parallel loops whole where isl would split them: each core's buffers last a whole iteration.

    for i < 2 (cores): { full0_S if i = 0;  S if i = 1;  T }        full0_S, S fill a buffer that T reads
    ->  for i < 2 (cores): { begin;  full0_S if i = 0;  S if i = 1;  T;  end }

What runs for a loop's first value alone runs before all else in it, so that isl puts it before the loop: in order, but
in another core's buffer, or none. With something that begins each value and something that ends it nothing does. Both
are statements that nothing is printed for; only where isl may split a value are they there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from itertools import permutations

import islpy as isl

from polyfuse.analysis.storage import buffers_of
from polyfuse.ir.tree import (
    ON_CORES,
    Leaf,
    Loop,
    Tree,
    children,
    date_map,
    sequence,
    statements,
    with_children,
)
from polyfuse.sets import SET, dimension

Domains = Mapping[str, isl.Set]


def with_whole_values(
    tree: Tree, domains: Domains, around: tuple[Loop, ...] = ()
) -> tuple[Tree, dict[str, isl.Set]]:
    """The tree with a statement at either end of each value that isl might split, and what these statements are."""
    inside = (*around, tree) if isinstance(tree, Loop) else around
    found = [with_whole_values(child, domains, inside) for child in children(tree)]
    below = tuple(part for part, _ in found)
    ends = {name: domain for _, own in found for name, domain in own.items()}
    if isinstance(tree, Loop) and tree.bind in ON_CORES and any(buffers_of(tree)):
        runs = [_dates(domains[name], name, inside) for name in statements(tree)]
        if _may_be_split(runs):
            every = reduce(isl.Set.union, runs).coalesce()
            names = [f"{end}{len(around)}_{statements(tree)[0]}" for end in ("begin", "end")]
            assert not {*names} & {*domains, *ends}, "statements are not named after the ends of values"
            ends |= {name: every.set_tuple_name(name) for name in names}
            below = (sequence((Leaf(names[0]), *below, Leaf(names[1]))),)
    if not ends:
        return tree, ends
    changed = with_children(tree, below)
    if isinstance(changed, Loop):
        own = tuple((name, dimension(domain, len(around))) for name, domain in ends.items())
        changed = replace(changed, dates=(*changed.dates, *own))
    return changed, ends


def _dates(domain: isl.Set, name: str, loops: tuple[Loop, ...]) -> isl.Set:
    """The values of loops for which a statement runs."""
    return date_map(domain, [loop.date(name) for loop in loops]).range()


def _may_be_split(runs: list[isl.Set]) -> bool:
    """True if a statement is over before another one is, with a value that they share: isl would run it before.

    runs: the values of the loops for each statement, of which the last is the one over cores.
    """
    every = reduce(isl.Set.union, runs)
    if all(every.is_subset(own) for own in runs):
        return False
    last = every.dim(SET) - 1
    return any(_meet_at_an_end(first, second, last) for first, second in permutations(runs, 2))


def _meet_at_an_end(first: isl.Set, second: isl.Set, last: int) -> bool:
    """first {0}, second {0, 1, 2}: the first is over where the second begins, and they share a value.

    With one value each isl makes no loop of either, and what is outside of loops has one buffer.
    """
    if first.is_disjoint(second):
        return False
    pairs = isl.Map.from_domain_and_range(first, second)
    for d in range(last):
        pairs = pairs.equate(isl.dim_type.in_, d, isl.dim_type.out, d)
    later = pairs.order_gt(isl.dim_type.in_, last, isl.dim_type.out, last)
    return bool(later.is_empty()) and not first.is_equal(second)

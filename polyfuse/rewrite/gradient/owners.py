"""Invert an access relation, so that each element of the target has one owner.

    S[i, k]: xb[2i + k - 1] += yb[i] * w[k]      ->      S[h, k]: xb[h] += yb[(h - k + 1) / 2] * w[k]

The theorem. Let r take an instance to the element that it writes, and let q choose some of its dimensions such that
i -> (r(i), q(i)) is injective. Calling the instances by these values is a renaming: the same instances run, each with
the accesses that it had, and the element is read off the first dimensions. So all terms of one element's sum are the
instances of one point of the outer loops, which are parallel (the gather of Hückelheim et al., PerforAD, 2019). isl
inverts the map; the new domain is its range, with a divisibility condition where r has a stride.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import islpy as isl

from polyfuse.ir import Access
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.tree import date_map
from polyfuse.sets import IN, OUT, SET, dim_names, dimension, on_domain


@dataclass(frozen=True)
class Instances:
    """Instances of a statement by other names.

    Attributes:
        domain: The new domain.
        origin: { new instance -> the instance that it was }.
    """

    domain: isl.Set
    origin: isl.Map

    def access(self, access: Access) -> Access:
        """An access of the old instances as one of the new ones."""
        moved = on_domain(self.origin.apply_range(access.map), self.domain)
        for d, name in enumerate(dim_names(self.domain)):
            moved = moved.set_dim_name(IN, d, name)
        return Access(access.tensor, moved)

    def date(self, value: isl.PwAff) -> isl.PwAff:
        """A function of the old instances as one of the new ones."""
        return value.pullback_pw_multi_aff(isl.PwMultiAff.from_map(self.origin))


def same(domain: isl.Set) -> Instances:
    """The instances as they are."""
    return Instances(domain, isl.Map.identity(domain.get_space().map_from_set()).intersect_domain(domain))


def owned(
    domain: isl.Set, write: isl.Map, kept: Sequence[int] = (), used: frozenset[str] = frozenset()
) -> Instances:
    """Return the instances by the element that they write.

    Args:
        domain: The statement's instances.
        write: { instance -> element }.
        kept: Dimensions that stay, outermost: those of loops which the statement shares with others.
        used: Dimensions that the body uses as numbers; they stay too.

    Returns:
        The instances: kept dimensions, the coordinates of the element, and the other dimensions that tell instances of
        one element apart.

    >>> conv = isl.Set("{ S[i, k] : 0 <= i < 4 and 0 <= k < 3 }")
    >>> owned(conv, isl.Map("{ S[i, k] -> x[i + k] }")).origin.range().is_equal(conv)
    True
    """
    names = dim_names(domain)
    at = write.intersect_domain(domain)
    chosen: list[tuple[str, isl.PwAff]] = [(names[d], dimension(domain, d)) for d in kept]
    left = [d for d in range(len(names)) if d not in kept]
    for o in range(write.dim(OUT)):
        if at.plain_get_val_if_fixed(OUT, o).is_int():
            continue
        equal = (d for d in range(len(names)) if _is_dimension(at, d, o))
        d = next(equal, None)
        if d is None:
            value = isl.PwMultiAff.from_map(at).get_pw_aff(o)
            chosen.append((fresh(f"e{o}", [*names, *(name for name, _ in chosen)]), value))
        elif d in left:
            chosen.append((names[d], dimension(domain, d)))
            left.remove(d)
    for d in tuple(left):
        if names[d] not in used and _map(domain, chosen, names, [x for x in left if x != d]).is_injective():
            left.remove(d)
    renaming = _map(domain, chosen, names, left).set_tuple_name(OUT, domain.get_tuple_name())
    found = renaming.range().coalesce()
    for position, name in enumerate([*(name for name, _ in chosen), *(names[d] for d in left)]):
        found = found.set_dim_name(SET, position, name)
    return Instances(found, renaming.reverse().coalesce())


def _is_dimension(at: isl.Map, d: int, o: int) -> bool:
    return bool(at.is_subset(isl.Map.universe(at.get_space()).equate(IN, d, OUT, o)))


def _map(
    domain: isl.Set, chosen: Sequence[tuple[str, isl.PwAff]], names: Sequence[str], rest: Sequence[int]
) -> isl.Map:
    return date_map(domain, [*(value for _, value in chosen), *(dimension(domain, d) for d in rest)])

"""Invert an access relation, so that each element of the target has one owner.

    S[i, k]: xb[2i + k - 1] += yb[i] * w[k]      ->      S[h, k]: xb[h] += yb[(h - k + 1) / 2] * w[k]

The theorem. Let r take an instance to the element that it writes, and let q choose some of its dimensions such that
i -> (r(i), q(i)) is injective. Calling the instances by these values is a renaming: the same instances run, each with
the accesses that it had, and the element is read off the first dimensions. So all terms of one element's sum are the
instances of one point of the outer loops, which are parallel (the gather of Hückelheim et al., PerforAD, 2019). isl
inverts the map; the new domain is its range.

Where r has a stride, the range has a divisibility condition: 2i + k = h. Then the elements 2q and 2q + 1 are apart:
each of these phases meets every second k, and is a domain without gaps in q and k' (Dumoulin and Visin, 2016).

    S[h, k]: (h - k) mod 2 = 0      ->      S0[q, k']: h = 2q, k = 2k'      S1[q, k']: h = 2q + 1, k = 2k' + 1
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import gcd, prod

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

    def element(self, access: Access) -> Access:
        """`access` for what an instance writes: an axis of one element is that of a dimension with one value, too.

        x[0, e]  ->  x[i, e], where i is 0: sums and their first value then have the same loops.
        """
        moved = self.access(access)
        places = [moved.subscripts().get_pw_aff(o) for o in range(moved.map.dim(OUT))]
        for o, place in enumerate(places):
            still = (
                d for d in range(self.domain.dim(SET)) if self.domain.plain_get_val_if_fixed(SET, d).is_int()
            )
            if place.is_cst():
                d = next(
                    (d for d in still if _is_dimension(moved.map.intersect_domain(self.domain), d, o)), None
                )
                places[o] = place if d is None else dimension(self.domain, d)
        everywhere = isl.Set.universe(self.domain.get_space())
        return Access(access.tensor, date_map(everywhere, places).set_tuple_name(OUT, access.tensor))

    def date(self, value: isl.PwAff) -> isl.PwAff:
        """A function of the old instances as one of the new ones."""
        return value.pullback_pw_multi_aff(isl.PwMultiAff.from_map(self.origin))


def same(domain: isl.Set) -> Instances:
    """The instances as they are."""
    return Instances(domain, isl.Map.identity(domain.get_space().map_from_set()).intersect_domain(domain))


PHASES = 64
"""More statements than this are not made of one: a convolution of stride 4 in three dimensions has 64 phases."""


def owned(
    domain: isl.Set,
    write: isl.Map,
    kept: Sequence[int] = (),
    used: frozenset[str] = frozenset(),
    moved: bool = False,
) -> tuple[Instances, ...]:
    """Return the instances by the element that they write: all of them, or each phase of a stride.

    Args:
        domain: The statement's instances.
        write: { instance -> element }.
        kept: Dimensions that stay, outermost: those of loops which the statement shares with others.
        used: Dimensions that the body uses as numbers; they stay too.
        moved: True leaves a dimension to which a coordinate adds a number, instead of counting by the coordinate.

    Returns:
        The instances: kept dimensions, the coordinates of the element, and the other dimensions that tell instances of
        one element apart.

    >>> conv = isl.Set("{ S[i, k] : 0 <= i < 4 and 0 <= k < 3 }")
    >>> [str(one.domain) for one in owned(conv, isl.Map("{ S[i, k] -> x[i + k] }"))]
    ['{ S[e0, k] : k >= -3 + e0 and 0 <= k <= 2 and k <= e0 }']
    >>> [str(one.domain) for one in owned(conv, isl.Map("{ S[i, k] -> x[2i + k] }"))]
    ['{ S[e0, k] : k >= -3 + e0 and 0 <= k <= 1 and k <= e0 }', '{ S[e0] : 0 <= e0 <= 3 }']
    >>> [str(owned(conv, isl.Map("{ S[i, k] -> x[8 + i, k] }"), moved=m)[0].domain) for m in (False, True)]
    ['{ S[e0, k] : 8 <= e0 <= 11 and 0 <= k <= 2 }', '{ S[i, k] : 0 <= i <= 3 and 0 <= k <= 2 }']
    """
    names = dim_names(domain)
    at = write.intersect_domain(domain)
    chosen: list[tuple[str, isl.PwAff]] = [(names[d], dimension(domain, d)) for d in kept]
    left = [d for d in range(len(names)) if d not in kept]
    for o in range(write.dim(OUT)):
        d = next((d for d in range(len(names)) if _is_dimension(at, d, o)), None)
        if d is None and moved:
            d = next((d for d in left if _is_moved(at, d, o)), None)
        if d is None:
            if at.plain_get_val_if_fixed(OUT, o).is_int():
                continue
            value = isl.PwMultiAff.from_map(at).get_pw_aff(o)
            chosen.append((fresh(f"e{o}", [*names, *(name for name, _ in chosen)]), value))
        elif d in left:
            chosen.append((names[d], dimension(domain, d)))
            left.remove(d)
    removed: list[int] = []
    for d in tuple(left):
        if names[d] not in used and _map(domain, chosen, [x for x in left if x != d]).is_injective():
            left.remove(d)
            removed.append(d)
    renaming = _map(domain, chosen, left).set_tuple_name(OUT, domain.get_tuple_name())
    every = [*(name for name, _ in chosen), *(names[d] for d in left)]
    found = Instances(_named(renaming.range().coalesce(), every), renaming.reverse().coalesce())
    strides = [_stride(value, removed) for _, value in chosen]
    if prod(strides) == 1 or prod(strides) > PHASES or used & set(every):
        return (found,)
    phases = (_every(found, strides, first) for first in product(*map(range, strides)))
    outer = len(chosen)
    return tuple(_shorter(_without_gaps(one), outer) for one in phases if not one.domain.is_empty())


def _stride(value: isl.PwAff, removed: Sequence[int]) -> int:
    """The step by which a coordinate moves with the dimensions that are read off it; 1 if it is not affine in them."""
    pieces = value.get_pieces()
    if len(pieces) != 1 or pieces[0][1].dim(isl.dim_type.div):
        return 1
    steps = [abs(int(pieces[0][1].get_coefficient_val(IN, d).to_python())) for d in removed]
    return gcd(*steps) or 1


def _every(found: Instances, strides: Sequence[int], first: Sequence[int]) -> Instances:
    """The instances whose coordinates are stride * q + first, by q."""
    for d, (stride, begin) in enumerate(zip(strides, first, strict=True)):
        found = _scaled(found, d, stride, begin)
    return found


def _without_gaps(found: Instances) -> Instances:
    """Instances by dimensions that count by 1, where isl knows that one counts by more from a number."""
    for d in range(found.domain.dim(SET)):
        info = found.domain.get_stride_info(d)
        stride, offset = int(info.get_stride().to_python()), info.get_offset()
        if stride > 1 and offset.is_cst():
            found = _scaled(found, d, stride, int(offset.get_constant_val().to_python()) % stride)
    return found


def _shorter(found: Instances, outer: int) -> Instances:
    """Instances without those dimensions after the first that have one value."""
    names = list(dim_names(found.domain))
    for d in reversed(range(outer, len(names))):
        if found.domain.plain_get_val_if_fixed(SET, d).is_int():
            name = found.domain.get_tuple_name()
            domain = found.domain.project_out(SET, d, 1).set_tuple_name(name)
            origin = found.origin.project_out(IN, d, 1).set_tuple_name(IN, name)
            del names[d]
            found = Instances(_named(domain, names), origin)
    return found


def _scaled(found: Instances, d: int, stride: int, begin: int) -> Instances:
    """S[…, h, …]  ->  S[…, q, …] with h = stride * q + begin, where that is a whole q."""
    if stride == 1:
        return found
    names, domain = dim_names(found.domain), found.domain
    everywhere = isl.Set.universe(domain.get_space())
    places: list[isl.PwAff | int] = [dimension(domain, k) for k in range(len(names))]
    here = dimension(domain, d)
    places[d] = here.scale_val(isl.Val(stride)).add_constant_val(isl.Val(begin))
    stretched = date_map(everywhere, places).set_tuple_name(OUT, domain.get_tuple_name())
    smaller = _named(stretched.intersect_range(domain).domain().coalesce(), names)
    return Instances(smaller, stretched.intersect_domain(smaller).apply_range(found.origin))


def _named(domain: isl.Set, names: Sequence[str]) -> isl.Set:
    for position, name in enumerate(names):
        domain = domain.set_dim_name(SET, position, name)
    return domain


def _is_dimension(at: isl.Map, d: int, o: int) -> bool:
    return bool(at.is_subset(isl.Map.universe(at.get_space()).equate(IN, d, OUT, o)))


def _is_moved(at: isl.Map, d: int, o: int) -> bool:
    """True if a coordinate is a dimension and a number."""
    pieces = isl.PwMultiAff.from_map(at).get_pw_aff(o).get_pieces()
    if len(pieces) != 1 or pieces[0][1].dim(isl.dim_type.div):
        return False
    value = pieces[0][1]
    there = isl.Aff.var_on_domain(value.get_domain_local_space(), isl.dim_type.set, d)
    return bool(value.sub(there).is_cst())


def _map(domain: isl.Set, chosen: Sequence[tuple[str, isl.PwAff]], rest: Sequence[int]) -> isl.Map:
    return date_map(domain, [*(value for _, value in chosen), *(dimension(domain, d) for d in rest)])

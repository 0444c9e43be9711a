"""Add up in one statement all that the instances of one add to an element.

    S[i]: y[i] = x[i - 1] + x[i + 1], 1 <= i <= n      ->      xb[e] += yb[e + 1] + yb[e - 1],  2 <= e <= n - 1
                                                               xb[e] += yb[e + 1],              e <= 1
                                                               xb[e] += yb[e - 1],              e >= n

The terms of a stencil's reads are of domains that are shifted against each other. Where all of them meet, an element is
read and written once instead of once a term (Hückelheim et al., PerforAD, 2019: the core and the remainders).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import islpy as isl
import sympy

from polyfuse.ir import Access
from polyfuse.ir.scalar import Read, add, read, reads_in, substitute
from polyfuse.ir.tree import date_map
from polyfuse.rewrite.gradient.owners import Instances
from polyfuse.sets import IN, SET, dim_names, dimension

PIECES = 20
"""Loops around borders at most: the five points of a plane have 16, those of a cube 36, which take long to compile."""


@dataclass(frozen=True)
class Addition:
    """What a statement's adjoint adds to elements: its instances, the element of each, and the body over accesses."""

    instances: Instances
    write: Access
    accesses: tuple[Access, ...]
    body: sympy.Basic


def gathered(every: Sequence[Addition], kept: int) -> list[Addition]:
    """Return the additions, those to one tensor as one where all of them add to the same elements.

    Args:
        every: The additions of a statement's reads.
        kept: How many dimensions are those of loops around, which come first.
    """
    found: list[Addition] = []
    left = list(every)
    while left:
        first, *left = left
        run = [first, *(other for other in left if _alike(first, other, kept))]
        core = reduce(isl.Set.intersect, (one.instances.domain for one in run))
        borders = [one.instances.domain.subtract(core).make_disjoint() for one in run]
        if len(run) == 1 or core.is_empty() or sum(each.n_basic_set() for each in borders) > PIECES:
            found.append(first)
            continue
        left = [one for one in left if one not in run]
        found.append(_together(run, core))
        found += [_inside(one, rest) for one, rest in zip(run, borders, strict=True) if not rest.is_empty()]
    return found


def _alike(one: Addition, other: Addition, kept: int) -> bool:
    """True if two add to the same elements, each once in an iteration of the loops around."""
    if one.write.tensor != other.write.tensor or any(_numbers(each) for each in (one, other)):
        return False
    first, second = (each.write.map for each in (one, other))
    return bool(
        first.get_space().has_equal_tuples(second.get_space())
        and first.is_equal(second)
        and all(_once(each, kept) for each in (one, other))
    )


def _once(one: Addition, kept: int) -> bool:
    """True if each element is added to once in an iteration of the loops around."""
    domain = one.instances.domain
    around = date_map(domain, [dimension(domain, d) for d in range(kept)])
    return bool(around.range_product(one.write.map).intersect_domain(domain).is_injective())


def _numbers(one: Addition) -> bool:
    """True if a body uses indices as numbers."""
    return any(not isinstance(symbol, Read) for symbol in one.body.free_symbols)


def _together(run: Sequence[Addition], core: isl.Set) -> Addition:
    """One addition of all terms, on some instances."""
    first = run[0]
    names = dim_names(first.instances.domain)
    accesses: list[Access] = []
    bodies: list[sympy.Expr] = []
    for one in run:
        moved = {leaf: read(leaf.position + len(accesses)) for leaf in reads_in(one.body)}
        bodies.append(substitute(one.body, dict(moved)))
        accesses += [_named(access, names) for access in one.accesses]
    inside = _inside(first, core)
    return replace(inside, accesses=tuple(accesses), body=reduce(add, bodies))


def _inside(one: Addition, domain: isl.Set) -> Addition:
    """The addition on some of its instances."""
    for d, name in enumerate(dim_names(one.instances.domain)):
        domain = domain.set_dim_name(SET, d, name)
    return replace(one, instances=Instances(domain.coalesce(), one.instances.origin.intersect_domain(domain)))


def _named(access: Access, names: Sequence[str]) -> Access:
    for d, name in enumerate(names):
        access = Access(access.tensor, access.map.set_dim_name(IN, d, name))
    return access

"""Find the sum that the adjoints of several factors of a product are multiples of.

    S[i, k, j]: c[i, j] += alpha * a[i, k] * b[k, j]

    S_to_alpha: alpha_bar   += c_bar[i, j] * b[k, j] * a[i, k]            S_part: p[i, k] += c_bar[i, j] * b[k, j]
    S_to_a:     a_bar[i, k] += c_bar[i, j] * b[k, j] * alpha        ->    alpha_bar   += p[i, k] * a[i, k]
                                                                          a_bar[i, k] += p[i, k] * alpha

The theorem. Let p[e] be the sum of t over the instances whose read of a is of the element e. If f is the same for all
of them, and so is the element to which f * t is added, then the sum of f * t over all instances is the sum of f * p[e]
over e. Sums are reassociated as declared reductions. What is left in the loops of S is a product of two factors, once
for all that share it; the rest has as many instances as a has elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import islpy as isl
import sympy

from polyfuse.ir import Access
from polyfuse.ir.scalar import reads_in
from polyfuse.rewrite.reductions.factor_out import factors, product


@dataclass(frozen=True)
class Term:
    """What is added to the adjoint of a read: the read's access, the accesses that the body's leaves are, the body."""

    target: Access
    accesses: Sequence[Access]
    body: sympy.Basic


@dataclass(frozen=True)
class PartialSum:
    """A sum by the elements of one read.

    Attributes:
        position: The read.
        terms: The body of the sum.
        multiples: For each read whose adjoint is a multiple of the sum, by position: the factor.
    """

    position: int
    terms: sympy.Basic
    multiples: Mapping[int, sympy.Basic]


def partial_sum(domain: isl.Set, terms: Mapping[int, Term]) -> PartialSum | None:
    """Return the sum that most terms share, of two or more factors; None if no factor can leave and no two share one.

    Args:
        domain: The statement's instances.
        terms: The terms of its adjoints, by the read's position.
    """
    found = [one for position in terms if (one := _by(domain, terms, position)) is not None]
    return max(found, key=lambda one: len(one.multiples), default=None)


def regrouped(term: Term) -> Term:
    """The term with numbers beside one of two other factors, as products take them: a * b * alpha -> a * (alpha * b).

    A factor is computed once for all steps that read it where it is packed.
    """
    every = factors(term.body)
    single = [factor for factor in every if _is_single(term, factor)]
    others = [factor for factor in every if factor not in single]
    if len(others) != 2 or not single:
        return term
    return replace(term, body=product([others[0], product([*single, others[1]])]))


def _is_single(term: Term, factor: sympy.Basic) -> bool:
    """True if a factor is of numbers alone that are the same for all instances."""
    leaves = reads_in(factor)
    if factor.free_symbols - set(leaves):
        return False
    return all(term.accesses[leaf.position].map.dim(isl.dim_type.out) == 0 for leaf in leaves)


def _by(domain: isl.Set, terms: Mapping[int, Term], position: int) -> PartialSum | None:
    """The sum by the elements of one read's target."""
    own = terms[position]
    at = own.target.map.intersect_domain(domain)
    if at.is_injective() or any(piece.dim(isl.dim_type.div) for piece in at.range().get_basic_sets()):
        return None  # no sum, or elements with gaps
    instances = at.reverse()

    def stays(term: Term, factor: sympy.Basic) -> bool:
        leaves = reads_in(factor)
        symbols = factor.free_symbols - set(leaves)
        return not symbols and all(_of_element(instances, term.accesses[leaf.position]) for leaf in leaves)

    inside = [factor for factor in factors(own.body) if not stays(own, factor)]
    if sum(bool(reads_in(factor)) for factor in inside) < 2:
        return None
    multiples: dict[int, sympy.Basic] = {}
    for other, term in terms.items():
        rest = _without(factors(term.body), inside)
        if rest is None or not all(stays(term, factor) for factor in rest):
            continue
        if other == position or _of_element(instances, term.target):
            multiples[other] = product(rest)
    alone = multiples[position] == sympy.Integer(1)
    return None if alone and len(multiples) == 1 else PartialSum(position, product(inside), multiples)


def _of_element(instances: isl.Map, access: Access) -> bool:
    """True if all instances of an element access the same: { element -> its instances } given."""
    return bool(instances.apply_range(access.map).is_single_valued())


def _without(every: Sequence[sympy.Basic], some: Sequence[sympy.Basic]) -> list[sympy.Basic] | None:
    """Factors without some of them; None if one of those is not among them."""
    left = list(every)
    for factor in some:
        if factor not in left:
            return None
        left.remove(factor)
    return left

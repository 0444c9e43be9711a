"""What sizes must satisfy for every subscript to be in bounds, as far as that leaves anything to run.

for i in range(N): y[i] = x[i + 1]      with x: f64[M]   ->   assumed: N + 1 <= M
for i in range(N): y[i] = x[i + 1]      with x: f64[N]   ->   nothing is left: Nest.check refuses it, x[N] is read
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import islpy as isl

from polyfuse.ir import Access, Statement, Tensor
from polyfuse.sets import param_names


def with_bounds(
    context: isl.Set, statements: tuple[Statement, ...], tensors: Mapping[str, Tensor]
) -> isl.Set:
    """The context, and that every access is in bounds, except for accesses that would then never run at all."""
    for s in statements:
        for access in s.accesses:
            domain = s.domain.intersect_params(context)
            outside = out_of_bounds(domain, access, tensors[access.tensor])
            if outside.is_empty():
                continue
            allowed = context.subtract(outside.params()).coalesce()
            if not domain.intersect_params(allowed).is_empty():
                context = _convex(allowed, s.domain)
    return context


def _convex(allowed: isl.Set, domain: isl.Set) -> isl.Set:
    """Where an assumption has pieces such as "nothing runs, or …", the one piece in which the statement runs."""
    if allowed.n_basic_set() == 1:
        return allowed
    runs = allowed.intersect(domain.params()).coalesce()
    if runs.n_basic_set() > 1:
        return allowed
    hull = isl.Set.from_basic_set(allowed.simple_hull())
    return hull if hull.is_subset(allowed) else _widened(runs, allowed)


def _widened(runs: isl.Set, allowed: isl.Set) -> isl.Set:
    """`runs` without those of its constraints that `allowed` does not need."""
    (part,) = _basic_sets(runs)
    kept = part
    for constraint in part.get_constraints():
        others = [c for c in kept.get_constraints() if not c.is_equal(constraint)]
        wider = isl.BasicSet.universe(part.get_space())
        for other in others:
            wider = wider.add_constraint(other)
        if isl.Set.from_basic_set(wider).is_subset(allowed):
            kept = wider
    return isl.Set.from_basic_set(kept)


def _basic_sets(set_: isl.Set) -> Iterable[isl.BasicSet]:
    return tuple(set_.get_basic_sets())


def out_of_bounds(domain: isl.Set, access: Access, tensor: Tensor) -> isl.Set:
    """The instances that touch no element of the tensor."""
    inside = access.map.intersect_range(tensor.elements(param_names(domain))).domain()
    return domain.subtract(inside)

"""Infer the conditions on sizes under which every subscript is in bounds.

for i in range(N): y[i] = x[i + 1]      with x: f64[M]   ->   assumed: N + 1 <= M
for i in range(N): y[i] = x[i + 1]      with x: f64[N]   ->   nothing is left: Nest.check refuses it, x[N] is read
for i in range(3, N): y[i - 3] = 1.0    with y: f64[M]   ->   assumed: N - 3 <= M, or N <= 3: nothing runs
"""

from __future__ import annotations

from collections.abc import Mapping

import islpy as isl

from polyfuse.ir import Access, Statement, Tensor
from polyfuse.sets import param_names

PIECES = 4
"""Convex pieces of a context up to which it is exact: each piece multiplies the pieces of every domain."""


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
                context = allowed if allowed.n_basic_set() <= PIECES else _convex(context, allowed, s.domain)
    return context


def _convex(context: isl.Set, allowed: isl.Set, domain: isl.Set) -> isl.Set:
    """Choose one convex piece of an assumption ("nothing runs, or …"): the largest in which the statement runs.

    context T >= 0, allowed { T = 0 or N + 2 <= M }   ->   { T >= 0 and N + 2 <= M }
    """
    runs = allowed.intersect(domain.params()).coalesce()
    if runs.n_basic_set() != 1:
        return allowed
    kept = [c for part in runs.get_basic_sets() for c in part.get_constraints()]
    for constraint in tuple(kept):
        others = [c for c in kept if c is not constraint]
        if _all(others, runs).intersect(context).is_subset(allowed):
            kept = others
    return _all(kept, runs).intersect(context).coalesce()


def _all(constraints: list[isl.Constraint], like: isl.Set) -> isl.Set:
    """The points that satisfy every constraint."""
    part = isl.BasicSet.universe(like.get_space())
    for constraint in constraints:
        part = part.add_constraint(constraint)
    return isl.Set.from_basic_set(part)


def out_of_bounds(domain: isl.Set, access: Access, tensor: Tensor) -> isl.Set:
    """The instances that access no element of the tensor."""
    inside = access.map.intersect_range(tensor.elements(param_names(domain))).domain()
    return domain.subtract(inside)

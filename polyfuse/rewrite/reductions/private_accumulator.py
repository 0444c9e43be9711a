"""Accumulate a visible tensor in a private temporary, and store it at the end.

    for i: for j: C[i, j] = 0                          for i: for j: C_sum[i, j] = 0
    for i: for j: for k: C[i, j] += a[i, k] * b[k, j]  ->  for i: for j: for k: C_sum[i, j] += a[i, k] * b[k, j]
                                                       for i: for j: C[i, j] = C_sum[i, j]

A temporary can be kept in registers, what the caller sees cannot. The theorem: let F be the first statement that
accesses C, and let it assign every element that any statement writes. Then no later access sees what the caller put
there, and C_sum in place of C in all of them but F's own reads changes no value. Where F adds up instead, C_sum begins
as a copy of C. Nothing else accesses C, so that storing it last is storing its last values.

A temporary that later loops read is stored after the loops that write it, or `after` those of one statement, where
later ones write it again: C's partial results, summed in registers. The theorem then covers the accesses up to there.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import islpy as isl

from polyfuse.errors.proving import proving
from polyfuse.ir import Access, Nest, Statement
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.nest import own_loops
from polyfuse.ir.scalar import read
from polyfuse.ir.tensor import Tensor
from polyfuse.ir.tree import parts, sequence, statements
from polyfuse.rewrite.recorded import recorded
from polyfuse.sets import IN, OUT, SET, dim_names


@recorded("accumulate")
@proving("the rewrite accumulate")
def accumulate(nest: Nest, tensor: str, after: str | None = None) -> Nest | None:
    """Accumulate a tensor's sums in a private temporary.

    C += …  ->  C_sum = 0 (or C); C_sum += …; C = C_sum, if C is visible

    Args:
        nest: The nest.
        tensor: The tensor's name.
        after: For a temporary that later loops read: the statement after whose loops it is stored; the last writer by
            default.

    Returns:
        The new nest; None if the rewrite is illegal.
    """
    known = nest.tensor(tensor)
    touching = [nest.statement(n) for n in statements(nest.order) if tensor in nest.statement(n).tensors]
    writers = [s for s in touching if s.write.tensor == tensor]
    if known.role not in ("output", "inout", "temporary") or not writers:
        return None
    if known.role == "temporary":
        touching = _until(nest, touching, after or writers[-1].name)
        writers = [s for s in touching if s in writers]
        if not writers:
            return None
    first = touching[0]
    if any(p.source == p.sink == first.name and p.kind == "flow" for p in nest.dependences().pairs):
        return None
    written = reduce(isl.Set.union, (_elements(nest, s) for s in writers)).coalesce()
    assigns = first in writers and first.op == "="
    if assigns and not written.is_subset(_elements(nest, first)):
        return None
    if not assigns and (known.role != "inout" or first not in writers or not first.is_reduction):
        return None
    if not all(_within(nest, s, tensor, written) for s in touching if s is not first):
        return None
    total = fresh(f"{tensor}_sum", {t.name for t in nest.tensors})
    names = {s.name for s in nest.statements}
    changed = {s.name: _renamed(s, tensor, total, keep_reads=s is first and assigns) for s in touching}
    store = copied(written, fresh(f"store_{tensor}", names), tensor, total)
    begin = () if assigns else (copied(written, fresh(f"begin_{tensor}", names), total, tensor),)
    run = parts(nest.order)
    here = [p for p, part in enumerate(run) if set(statements(part)) & changed.keys()]
    order = sequence(
        (
            *run[: here[0]],
            *map(own_loops, begin),
            *run[here[0] : here[-1] + 1],
            own_loops(store),
            *run[here[-1] + 1 :],
        )
    )
    every = (*begin, *(changed.get(s.name, s) for s in nest.statements), store)
    temporary = Tensor(total, known.shape, known.dtype, "temporary")
    return nest.rewritten((*nest.tensors, temporary), every, order, frozenset({tensor, total}))


def _until(nest: Nest, touching: list[Statement], writer: str) -> list[Statement]:
    """Return the accesses of a temporary up to the loops of a writer; [] if no later loops access it."""
    ordered = statements(nest.order)
    loops = next(part for part in parts(nest.order) if writer in statements(part))
    last = max(ordered.index(name) for name in statements(loops))
    until = [s for s in touching if ordered.index(s.name) <= last]
    return until if len(until) < len(touching) else []


def _elements(nest: Nest, s: Statement) -> isl.Set:
    return s.write.map.intersect_domain(nest.domains[s.name]).range().reset_tuple_id()


def _within(nest: Nest, s: Statement, tensor: str, written: isl.Set) -> bool:
    """True if a statement reads only elements that are written."""
    here = (a.map.intersect_domain(nest.domains[s.name]).range() for a in s.reads if a.tensor == tensor)
    return all(elements.reset_tuple_id().is_subset(written) for elements in here)


def _renamed(s: Statement, tensor: str, total: str, keep_reads: bool) -> Statement:
    def moved(access: Access) -> Access:
        return Access(total, access.map.set_tuple_name(OUT, total)) if access.tensor == tensor else access

    reads = s.reads if keep_reads else tuple(map(moved, s.reads))
    return replace(s, write=moved(s.write), reads=reads)


def copied(elements: isl.Set, name: str, target: str, source: str) -> Statement:
    """name[e]: target[e] = source[e]."""
    domain = elements.set_tuple_name(name)
    for d in range(domain.dim(SET)):
        domain = domain.set_dim_name(SET, d, f"e{d}")
    space = domain.get_space()
    identity = isl.Map.identity(space.params().add_dims(SET, domain.dim(SET)).map_from_set())
    identity = identity.set_tuple_name(IN, name)
    for d, dim in enumerate(dim_names(domain)):
        identity = identity.set_dim_name(IN, d, dim)
    write = Access(target, identity.set_tuple_name(OUT, target))
    return Statement(
        name, domain, write, "=", (Access(source, identity.set_tuple_name(OUT, source)),), read(0)
    )

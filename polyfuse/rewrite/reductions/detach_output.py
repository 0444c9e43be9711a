"""Accumulate an output in a temporary, and copy it out at the end.

    zero: out = 0;  mac: out += a * b   ->   zero: t = 0;  mac: t += a * b;  store_out: out = t

The same values in the same order. What is made in a temporary may lie otherwise in memory than what the caller sees.
"""

from __future__ import annotations

from dataclasses import replace

import islpy as isl

from polyfuse.errors.refusals import Refusal
from polyfuse.ir import Access, Nest, Statement, Tensor
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.nest import own_loops
from polyfuse.ir.scalar import read
from polyfuse.ir.tree import Sequence, sequence
from polyfuse.rewrite.recorded import recorded
from polyfuse.rewrite.refusal import refused
from polyfuse.sets import IN, OUT, SET


@recorded("detach")
def detach(nest: Nest, tensor: str) -> Nest | Refusal:
    """All statements use a temporary in an output's place; a last one stores it. InvalidNest if there is no such."""
    known = nest.tensor(tensor)
    if known.role != "output":
        return refused(
            "detach",
            f"{tensor} has role {known.role}, not output",
            "a tensor with role output",
        )
    names = {t.name for t in nest.tensors}
    made = fresh(f"{tensor}_made", names)
    temporary = Tensor(made, known.shape, known.dtype, "temporary")
    changed = tuple(_redirected(s, tensor, made) for s in nest.statements)
    store = _store(nest, known, made)
    parts = nest.order.children if isinstance(nest.order, Sequence) else (nest.order,)
    tensors = [*nest.tensors]
    tensors.insert(tensors.index(known), temporary)
    order = sequence((*parts, own_loops(store)))
    return nest.rewritten(tuple(tensors), (*changed, store), order, frozenset((tensor, made)))


def _redirected(s: Statement, tensor: str, made: str) -> Statement:
    def moved(access: Access) -> Access:
        return Access(made, access.map.set_tuple_name(OUT, made)) if access.tensor == tensor else access

    return replace(s, write=moved(s.write), reads=tuple(moved(access) for access in s.reads))


def _store(nest: Nest, tensor: Tensor, made: str) -> Statement:
    """store_out[e..]: out[e..] = made[e..], for all elements that are written."""
    name = fresh(f"store_{tensor.name}", {s.name for s in nest.statements})
    writes = (
        s.write.map.intersect_domain(nest.domains[s.name])
        for s in nest.statements
        if s.write.tensor == tensor.name
    )
    domain = isl.Set.empty(isl.Space.set_alloc(nest.context.get_ctx(), 0, tensor.rank))
    for write in writes:
        domain = domain.union(write.range().reset_tuple_id())
    domain = domain.coalesce().set_tuple_name(name)
    for axis in range(tensor.rank):
        domain = domain.set_dim_name(SET, axis, f"e{axis}")
    dims = ", ".join(f"e{axis}" for axis in range(tensor.rank))
    same = isl.Map(f"{{ [{dims}] -> [{dims}] }}").set_tuple_name(IN, name)
    target, source = (Access(t, same.set_tuple_name(OUT, t)) for t in (tensor.name, made))
    return Statement(name, domain, target, "=", (source,), read(0))

"""Compute equal values once: of two temporaries that equal statements write, readers read the first.

    for i: S: t[i] = f(x[i])                    for i: S: t[i] = f(x[i])
    for i: R: y[i] = t[i] + 1                   for i: R: y[i] = t[i] + 1
    for i: U: u[i] = f(x[i])            ->      for i: V: z[i] = 2 * t[i]
    for i: V: z[i] = 2 * u[i]

Common subexpression elimination between statements. Several statements may write a temporary, as the first value and
the terms of a sum do.

The theorem. Let t and u be temporaries of one shape and type, and let their writers, in their order, be equal in pairs
but for names: operator, body, domain, subscripts. If each pair reads the same tensors (u where the other one reads t),
and the exact flow of values into both is the same relation, then so are the values, instance by instance: each is a
function of what flows into it. A reader of u may read t if the flow into it, in the nest without u, is the flow that it
had with t's writers in place of u's: each element that it reads was then last written by the equal instance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import islpy as isl

from polyfuse.errors.proving import proving
from polyfuse.errors.refusals import Refusal
from polyfuse.ir import Access, Nest, Statement
from polyfuse.ir.scalar import encode
from polyfuse.ir.tree import restrict, statements
from polyfuse.rewrite.recorded import recorded
from polyfuse.rewrite.refusal import check_legal, refused
from polyfuse.sets import IN, OUT, SET, numbered

Flow = Mapping[tuple[str, str], isl.Map]
"""Relations source -> sink into one statement through one tensor, by kind and source."""


@dataclass(frozen=True)
class Shared:
    """The result of `share`.

    Attributes:
        nest: The new nest.
        kept: The temporary that is left.
        removed: The temporary whose readers read the other one now.
        statements: The statements that are gone with it.
    """

    nest: Nest
    kept: str
    removed: str
    statements: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kept} is read in place of {self.removed}, which {', '.join(self.statements)} would compute again"


@recorded("share")
@proving("the rewrite share")
def share(nest: Nest, kept: str, removed: str) -> Shared:
    """Remove a temporary that holds the values of another one; its readers read the other.

    S: t[i] = f(x[i]);  U: u[i] = f(x[i]);  V: z[i] = u[i]   ->   S: t[i] = f(x[i]);  V: z[i] = t[i]

    Args:
        nest: The nest.
        kept: The temporary that stays.
        removed: The temporary with equal values.

    Returns:
        The new nest.

    Raises:
        IllegalRewrite: if `why_not_share` returns a reason.
    """
    found = _shared(nest, kept, removed)
    check_legal(found if isinstance(found, Refusal) else None)
    assert isinstance(found, Shared), "a legal rewrite has a result"
    return found


@proving("the question why_not_share")
def why_not_share(nest: Nest, kept: str, removed: str) -> Refusal | None:
    """Return the reason why one temporary cannot stand for another one.

    Args:
        nest: The nest.
        kept: The temporary that would stay.
        removed: The temporary that would be removed.

    Returns:
        The reason; None if the rewrite is legal.
    """
    found = _shared(nest, kept, removed)
    return found if isinstance(found, Refusal) else None


def writers_in_order(nest: Nest) -> dict[str, tuple[Statement, ...]]:
    """Return the statements that write each tensor, in their order, by the tensor's name."""
    found: dict[str, list[Statement]] = {}
    for name in statements(nest.order):
        s = nest.statement(name)
        found.setdefault(s.write.tensor, []).append(s)
    return {tensor: tuple(every) for tensor, every in found.items()}


def form_of(s: Statement) -> tuple[object, ...]:
    """Return the operator, the body, the domain and the accesses without names.

    S[i]: t[i] = 2 * x[i]  and  U[k]: u[k] = 2 * x[k]  have equal forms. Dimensions in the body need equal names.
    """
    numbers = {name: number for number, name in enumerate((s.name, *s.tensors))}

    def text(relation: isl.Set | isl.Map, kind: isl.dim_type) -> str:
        for place in range(len(s.dims)):
            relation = relation.set_dim_name(kind, place, f"d{place}")
        return numbered(str(relation), numbers)

    accesses = (text(access.map, IN) for access in s.accesses)
    return str(encode(s.body)), body_key(s), text(s.domain, SET), *accesses


def body_key(s: Statement) -> tuple[object, ...]:
    """Return the part of a statement's form that needs no text: its operator, its body and the dimensions in this."""
    symbols = {symbol.name for symbol in s.body.free_symbols}
    return s.op, s.body, tuple(dim if dim in symbols else None for dim in s.dims)


def _shared(nest: Nest, kept: str, removed: str) -> Shared | Refusal:
    call = f"share({kept!r}, {removed!r})"
    one, other = nest.tensor(kept), nest.tensor(removed)
    for tensor in (one, other):
        if tensor.role != "temporary":
            why = f"{tensor.name} is visible to the caller ({tensor.role})"
            return refused(call, why, "two temporaries")
    if kept == removed or replace(other, name=kept) != one:
        return refused(call, f"{one} and {other} differ, or are one", "two temporaries of one shape and type")
    written = writers_in_order(nest)
    first, again = written.get(kept, ()), written.get(removed, ())
    names = {s.name: r.name for s, r in zip(again, first, strict=False)}
    back = {r: s for s, r in names.items()}
    if len(first) != len(again):
        return refused(call, f"{len(first)} statements write {kept}, {len(again)} {removed}", "equal writers")
    for r, s in zip(first, again, strict=True):
        swapped = tuple(kept if tensor == removed else tensor for tensor in s.tensors)
        if form_of(r) != form_of(s) or r.tensors != swapped:
            return refused(call, f"{r.name} and {s.name} compute different values", "equal writers")
        for name in r.tensors:
            behind = removed if name == kept else name
            pairs = _differs(_flow(nest, name, r.name, back, s.name), _flow(nest, behind, s.name))
            if pairs is not None:
                line = f"{s.name} reads other values of {name} than {r.name}"
                return refused(call, line, "no write between the two", pairs)
    made = _without(nest, kept, removed, frozenset(names))
    for s in nest.readers(removed):
        if s.name in names:
            continue
        wanted = _joined(_flow(nest, kept, s.name), _flow(nest, removed, s.name, names))
        pairs = _differs(wanted, _flow(made, kept, s.name))
        if pairs is not None:
            line = f"{s.name} would not read in {kept} what it reads in {removed}"
            return refused(call, line, "a reader behind equal writes alone", pairs)
    return Shared(made, kept, removed, tuple(names))


def _without(nest: Nest, kept: str, removed: str, gone: frozenset[str]) -> Nest:
    """The nest without some statements and the temporary that they write; its readers read another one."""
    left = [s for s in nest.statements if s.name not in gone]
    changed = tuple(_reading(s, removed, kept) for s in left)
    order = restrict(nest.order, frozenset(s.name for s in left))
    assert order is not None, "the other temporary has writers"
    touched = {kept, removed, *(t for name in gone for t in nest.statement(name).tensors)}
    tensors = tuple(t for t in nest.tensors if t.name != removed)
    result = nest.rewritten(tensors, changed, order, frozenset(touched))
    result.check(frozenset(touched))
    return result


def _reading(s: Statement, removed: str, kept: str) -> Statement:
    """A statement with accesses of one tensor in place of those of another."""
    if removed not in s.tensors:
        return s

    def moved(access: Access) -> Access:
        return Access(kept, access.map.set_tuple_name(OUT, kept)) if access.tensor == removed else access

    return replace(s, reads=tuple(map(moved, s.reads)))


def _flow(
    nest: Nest, tensor: str, sink: str, names: Mapping[str, str] | None = None, called: str | None = None
) -> Flow:
    """The flow of values into a statement through a tensor; some sources, and the sink, under other names."""
    names, found = names or {}, dict[tuple[str, str], isl.Map]()
    for p in nest.flow_through(tensor):
        if p.sink == sink:
            source = names.get(p.source, p.source)
            there = p.map.set_tuple_name(IN, source).set_tuple_name(OUT, called or sink)
            key = p.kind, source
            found[key] = found[key].union(there) if key in found else there
    return found


def _joined(one: Flow, other: Flow) -> Flow:
    """Both relations together."""
    found = dict(one)
    for key, there in other.items():
        found[key] = found[key].union(there) if key in found else there
    return found


def _differs(one: Flow, other: Flow) -> isl.Map | None:
    """Pairs that only one of two relations has; None if they are equal."""
    for key in sorted({**one, **other}):
        here, there = one.get(key), other.get(key)
        if here is None or there is None:
            return here or there
        if not here.is_equal(there):
            return here.subtract(there).union(there.subtract(here))
    return None

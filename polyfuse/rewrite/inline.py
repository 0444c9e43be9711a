"""Inlining: substitute a temporary's value into the statements that read it.

    for i: T[i] = a[i] * a[i]
    for i: y[i] = T[i] + T[i + 1]           ->    for i: y[i] = a[i] * a[i] + a[i + 1] * a[i + 1]

The theorem. Let P alone write T, each element once: the read T[r(x)] of a statement R finds the value that the instance
p(x) = w⁻¹(r(x)) stored. P's body, with its reads composed with p, computes that value at R's date iff no element that
p(x) read has been written since: no instance q writes one with date(p(x)) < date(q) < date(x). All is computed in one
element type, so that no rounding is lost, and in the order in which it stood.

The result is checked again as a whole: its flow must be the old one with pairs through P composed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import islpy as isl
import sympy

from polyfuse.errors import ValidationFailure
from polyfuse.errors.proving import proving
from polyfuse.errors.refusals import Refusal
from polyfuse.ir import Access, Nest, Statement
from polyfuse.ir.dependences import earlier, relation_of
from polyfuse.ir.number_types import is_integer, is_number, is_real
from polyfuse.ir.scalar import Read, leaf_types, operations, read, substitute, type_of
from polyfuse.ir.tree import restrict
from polyfuse.rewrite.recorded import recorded
from polyfuse.rewrite.refusal import check_legal, refused
from polyfuse.sets import maps_of, on_domain, union_map


@dataclass(frozen=True)
class Inlined:
    """The result of `inline`.

    Attributes:
        nest: The new nest.
        statement: The statement that was inlined.
        tensor: The temporary that was removed.
        operations: Operations per instance of each reader, before and after.
    """

    nest: Nest
    statement: str
    tensor: str
    operations: Mapping[str, tuple[int, int]]

    def __str__(self) -> str:
        readers = ", ".join(
            f"{name} (from {a} to {b} operations)" for name, (a, b) in self.operations.items()
        )
        return f"{self.tensor}, written by {self.statement}, is computed where it is read: in {readers}"


@recorded("inline")
@proving("the rewrite inline")
def inline(nest: Nest, statement: str) -> Inlined:
    """Inline a statement: compute its value where it is read, and remove its temporary.

    P: T[i] = e(i);  R: … T[i] … T[i + 1] …  ->  R: … e(i) … e(i + 1) …

    Operations keep their order, so results stay bit-identical except for fused multiply-adds that a target may form.

    Args:
        nest: The nest.
        statement: The statement that writes the temporary.

    Returns:
        The new nest.

    Raises:
        IllegalRewrite: if `why_not_inline` returns a reason.
        ValidationFailure: if the result's flow differs from the nest's: a compiler bug.
    """
    check_legal(why_not_inline(nest, statement))
    producer = nest.statement(statement)
    tensor = producer.write.tensor
    changed = {s.name: substituted(s, producer) for s in nest.statements if reads(s, tensor)}
    order = restrict(nest.order, frozenset(s.name for s in nest.statements if s is not producer))
    assert order is not None, "a temporary has a reader"
    kept = (s for s in nest.statements if s is not producer)
    touched = frozenset((tensor, *(access.tensor for access in producer.reads)))
    result = nest.rewritten(
        tuple(t for t in nest.tensors if t.name != tensor),
        tuple(changed.get(s.name, s) for s in kept),
        order,
        touched,
    )
    before = {name: operations(nest.statement(name).body) for name in changed}
    counted = {name: (before[name], operations(s.body)) for name, s in changed.items()}
    _check_flow(nest, result, statement)
    result.check(touched.union(s.write.tensor for s in changed.values()))
    return Inlined(result, statement, tensor, counted)


def reads(s: Statement, tensor: str) -> bool:
    """True if a statement reads a tensor."""
    return any(access.tensor == tensor for access in s.reads)


@proving("the question why_not_inline")
def why_not_inline(nest: Nest, statement: str) -> Refusal | None:
    """Return the reason why a statement cannot be inlined.

    Args:
        nest: The nest.
        statement: The statement's name.

    Returns:
        The reason; None if the rewrite is legal.
    """
    producer = nest.statement(statement)
    tensor = nest.tensor(producer.write.tensor)
    readers = nest.readers(tensor.name)
    call = f"inline({statement!r})"

    def no(why: str, remedy: str, pairs: isl.Map | None = None) -> Refusal:
        return refused(call, why, remedy, pairs)

    if tensor.role != "temporary":
        return no(f"{tensor.name} is visible to the caller ({tensor.role})", "a temporary")
    if producer.is_reduction or producer in readers:
        return no(
            f"{statement} reads {tensor.name}, which it writes",
            "a statement that does not read its own target",
        )
    if not readers:
        return no(f"nothing reads {tensor.name}", "a temporary that is read")
    other = next((s.name for s in nest.writers(tensor.name) if s is not producer), None)
    if other is not None:
        return no(
            f"{other} writes {tensor.name} too", "`expand` first, if the two live ranges are independent"
        )
    twice = twice_written(nest, producer)
    if twice is not None:
        return no(
            f"two instances write one element of {tensor.name}",
            "`expand` first, if loops distinguish its values",
            twice,
        )
    if set(producer.dims) & {symbol.name for symbol in producer.body.free_symbols}:
        return no(f"the value of {statement} depends on its index", "a value of tensors and numbers only")
    if tensor.is_half:
        return no(
            f"{tensor.name} rounds to {tensor.dtype}", "a temporary of the type in which it is computed"
        )
    types = {nest.tensor(a.tensor).dtype for s in (producer, *readers) for a in (s.write, *producer.reads)}
    if len(types) > 1:
        return no(f"{statement} and its readers mix {' and '.join(sorted(types))}", "one element type")
    leaf = leaf_types(tensor.dtype, [nest.tensor(access.tensor).dtype for access in producer.reads])
    made = type_of(producer.body, leaf)
    literal = is_number(made) and (is_real(tensor.dtype) or (is_integer(made) and is_integer(tensor.dtype)))
    if made != tensor.dtype and not literal:
        return no(
            f"{tensor.name} keeps a value of type {made} as {tensor.dtype}", "a value of the temporary's type"
        )
    lost = overwritten(nest, producer)
    if lost is not None:
        why = "an operand is overwritten before the value would be computed"
        return no(why, "a reader that runs before the operand changes", lost)
    return None


def twice_written(nest: Nest, producer: Statement) -> isl.Map | None:
    """Pairs of different instances that write one element; None if there are none."""
    write = producer.write.map.intersect_domain(nest.domains[producer.name])
    same = write.apply_range(write.reverse())
    twice = same.subtract(isl.Map.identity(same.get_space()))
    return None if twice.is_empty() else twice


def overwritten(nest: Nest, producer: Statement) -> isl.Map | None:
    """Pairs producer -> reader between which an operand of the producer is written; None if there are none.

    P[i]: T[i] = a[i];  Q[i]: a[i] = 0;  R[i]: y[i] = T[i]      { P[i] -> R[i] }, since Q[i] runs in between
    """
    pairs = nest.flow_through(producer.write.tensor)
    writers = {s.name: s for access in producer.reads for s in nest.writers(access.tensor)}
    order = nest.dates_of((producer.name, *writers, *(name for p in pairs for name in (p.source, p.sink))))
    operands = relation_of((producer, access) for access in producer.reads)
    changing = earlier(operands, relation_of((s, s.write) for s in writers.values()), order)
    uses = union_map(p.map for p in pairs)
    later = order.intersect_domain(changing.range()).lex_lt_union_map(order.intersect_domain(uses.range()))
    return next(iter(maps_of(changing.apply_range(later).intersect(uses))), None)


def substituted(s: Statement, producer: Statement) -> Statement:
    """The reader with the producer's body in place of each read of its tensor; equal reads are listed once."""
    tensor = producer.write.tensor
    return from_sources(s, {k: producer for k, access in enumerate(s.reads) if access.tensor == tensor})


def from_sources(s: Statement, sources: Mapping[int, Statement]) -> Statement:
    """The reader with, in place of some of its reads (by position), the body of the statement that wrote the value."""
    listed: list[Access] = []

    def leaf(access: Access) -> Read:
        for position, known in enumerate(listed):
            if known.tensor == access.tensor and known.map.is_equal(access.map):
                return read(position)
        listed.append(access)
        return read(len(listed) - 1)

    bodies: dict[sympy.Basic, sympy.Basic] = {}
    for position, access in enumerate(s.reads):
        producer = sources.get(position)
        if producer is None:
            bodies[read(position)] = leaf(access)
            continue
        instance = access.map.apply_range(producer.write.map.intersect_domain(producer.domain).reverse())
        moved = (Access(a.tensor, named_as(instance.apply_range(a.map), s)) for a in producer.reads)
        leaves: dict[sympy.Basic, sympy.Basic] = {read(k): leaf(a) for k, a in enumerate(moved)}
        bodies[read(position)] = substitute(producer.body, leaves)
    return replace(s, reads=tuple(listed), body=substitute(s.body, bodies))


def named_as(composed: isl.Map, s: Statement) -> isl.Map:
    """A composed access as a plain map from a statement's instances, without what its domain says already."""
    return on_domain(composed, s.domain)


def _check_flow(before: Nest, after: Nest, producer: str) -> None:
    """Check that every value comes from where it came from before, through the producer or not.

    Pairs that both nests share, as objects, are about tensors that the rewrite does not touch.
    """
    here = isl.UnionSet.from_set(before.domains[producer])
    both = {id(p) for p in before.dependences().pairs} & {id(p) for p in after.dependences().pairs}
    old, found = (
        union_map(p.map for p in nest.dependences().pairs if p.kind == "flow" and id(p) not in both)
        for nest in (before, after)
    )
    through = old.intersect_range(here).apply_range(old.intersect_domain(here))
    expected = old.subtract_domain(here).subtract_range(here).union(through)
    if not found.is_equal(expected):
        raise ValidationFailure(f"inlining {producer} changed the flow: {expected} became {found}")

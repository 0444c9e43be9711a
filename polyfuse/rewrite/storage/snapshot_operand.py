"""Snapshots: read the first values of an array from a copy made before they are overwritten.

    for i: for k > i: S: B[i] += A[k, i] * B[k]      ->      for e: before_B: B_before[e] = B[e]
                                                             for i: for k > i: S: B[i] += A[k, i] * B_before[k]

The theorem. Where no instance writes an element before another one reads it, that one reads what the caller put there,
and so does a copy of it. What the update of an array in place must wait for is then nothing: the anti dependences on
these reads are gone, and with them what keeps the update's loops in their order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

import islpy as isl

from polyfuse.errors.proving import proving
from polyfuse.errors.refusals import Refusal
from polyfuse.ir import Access, Nest, Statement, Tensor
from polyfuse.ir.dependences import relation_of
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.nest import own_loops
from polyfuse.ir.tree import parts, sequence
from polyfuse.rewrite.recorded import recorded
from polyfuse.rewrite.reductions.private_accumulator import copied
from polyfuse.rewrite.refusal import check_legal, refused
from polyfuse.sets import OUT, maps_of


@dataclass(frozen=True)
class Snapshot:
    """The result of `snapshot`.

    Attributes:
        nest: The new nest.
        statement: The statement that reads the copy.
        tensor: The tensor.
        copy: The copy's name.
    """

    nest: Nest
    statement: str
    tensor: str
    copy: str

    def __str__(self) -> str:
        return f"{self.statement} reads what {self.tensor} held at first from a copy, made by {self.copy}"


@recorded("snapshot")
@proving("the rewrite snapshot")
def snapshot(nest: Nest, statement: str, tensor: str) -> Snapshot:
    """Copy a tensor before it is overwritten, for a statement that reads its first values.

    S: … B[k] …  ->  before_B: B_before = B;  S: … B_before[k] …

    Args:
        nest: The nest.
        statement: The statement that reads it.
        tensor: The tensor's name.

    Returns:
        The new nest.

    Raises:
        IllegalRewrite: if `why_not_snapshot` returns a reason.
    """
    check_legal(why_not_snapshot(nest, statement, tensor))
    s, known = nest.statement(statement), nest.tensor(tensor)
    made = Tensor(
        fresh(f"{tensor}_before", {t.name for t in nest.tensors}), known.shape, known.dtype, "temporary"
    )
    reads = [a.map.intersect_domain(nest.domains[statement]).range() for a in _reads(s, tensor)]
    copy = copied(
        reduce(isl.Set.union, reads).coalesce(),
        fresh(f"before_{tensor}", {x.name for x in nest.statements}),
        made.name,
        tensor,
    )

    def moved(access: Access) -> Access:
        return (
            Access(made.name, access.map.set_tuple_name(OUT, made.name))
            if access.tensor == tensor
            else access
        )

    changed = replace(s, reads=tuple(moved(access) for access in s.reads))
    every = (copy, *(changed if x is s else x for x in nest.statements))
    order = sequence((own_loops(copy), *parts(nest.order)))
    result = nest.rewritten((*nest.tensors, made), every, order, frozenset({tensor, made.name}))
    result.check()
    return Snapshot(result, statement, tensor, copy.name)


@proving("the question why_not_snapshot")
def why_not_snapshot(nest: Nest, statement: str, tensor: str) -> Refusal | None:
    """Return the reason why a statement cannot read a copy of the tensor's first values.

    Args:
        nest: The nest.
        statement: The statement's name.
        tensor: The tensor's name.

    Returns:
        The reason; None if the rewrite is legal.
    """
    s = nest.statement(statement)
    call = f"snapshot({statement!r}, {tensor!r})"
    reads = _reads(s, tensor)
    if not reads:
        return refused(call, f"{statement} does not read {tensor}", "a tensor that it reads")
    if nest.tensor(tensor).role != "inout":
        return refused(
            call,
            f"{tensor} is not an array that the nest reads and writes",
            "an array that is read and written",
        )
    dates = nest.original_dates()
    writes = relation_of((x, x.write) for x in nest.statements if x.write.tensor == tensor)
    earlier = writes.apply_range(relation_of((s, access) for access in reads).reverse())
    for pairs in maps_of(earlier.intersect(dates.lex_lt_union_map(dates))):
        return refused(
            call,
            f"{statement} reads elements of {tensor} that were written before",
            "reads of the caller's values",
            pairs,
        )
    return None


def _reads(s: Statement, tensor: str) -> list[Access]:
    return [access for access in s.reads if access.tensor == tensor]

"""Accumulate in an array element itself, where a temporary starts from it and is stored back to it.

    w[i, j] = A[i, j]                                A[i, j] -= A[i, k] * A[k, j]
    w[i, j] -= A[i, k] * A[k, j]             ->      A[i, j] = A[i, j] / A[j, j]
    A[i, j] = w[i, j] / A[j, j]

The reverse of private_accumulator.py. The theorem: let σ be the element that w[e] begins as, another one for each e,
and the one that the only reader of w[e] stores. If w[e] is begun and read once, with all its sums between, and nobody
else accesses A[σ(e)] meanwhile, then A[σ(e)] may hold what w[e] did. What only stores the sum has nothing to do then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import islpy as isl

from polyfuse.errors.proving import proving
from polyfuse.ir import Access, Nest, Statement
from polyfuse.ir.dependences import relation_of
from polyfuse.ir.scalar import Read
from polyfuse.ir.tree import restrict
from polyfuse.rewrite.recorded import recorded
from polyfuse.sets import on_domain


@recorded("in_place")
@proving("the rewrite in_place")
def in_place(nest: Nest) -> Nest:
    """Compute temporaries in the memory of an operand, wherever that is legal.

    Args:
        nest: The nest.

    Returns:
        The new nest.
    """
    for tensor in nest.with_role("temporary"):
        nest = _without(nest, tensor.name) or nest
    return nest


@recorded("in_place_at_all_sizes")
def in_place_at_all_sizes(nest: Nest) -> Nest:
    """As `in_place`, found for symbolic sizes, which is quicker than for fixed ones; the same nest if none."""
    general, sizes = nest.general
    placed = in_place(general)
    if placed is general:
        return nest
    return placed.with_sizes(sizes) if sizes else placed


def _without(nest: Nest, name: str) -> Nest | None:
    """The nest without one temporary; None if the theorem does not hold."""
    roles = _roles(nest, name)
    if roles is None:
        return None
    begin, sums, end = roles
    at = _elements(nest, begin, begin.write).reverse().apply_range(_elements(nest, begin, begin.reads[0]))
    read = next(access for access in end.reads if access.tensor == name)
    stored = _elements(nest, end, read).reverse().apply_range(_elements(nest, end, end.write))
    once = _elements(nest, begin, begin.write).is_injective() and _elements(nest, end, read).is_injective()
    if not (once and at.is_injective() and at.is_single_valued() and stored.is_equal(at)):
        return None
    if any(not _elements(nest, s, s.write).range().is_subset(at.domain()) for s in sums):
        return None
    if not all(found.is_empty() for found in _meanwhile(nest, begin, sums, end)):
        return None

    def moved(access: Access) -> Access:
        if access.tensor != name:
            return access
        return Access(end.write.tensor, access.map.apply_range(at))

    def new(s: Statement) -> Statement:
        if s is not end and s not in sums:
            return s
        write, *reads = map(moved, s.accesses)
        here = nest.domains[s.name]
        write, *reads = (Access(a.tensor, on_domain(a.map, here)) for a in (write, *reads))
        return replace(s, write=write, reads=tuple(reads))

    gone = {begin.name, *([end.name] if isinstance(end.body, Read) else [])}
    kept = tuple(new(s) for s in nest.statements if s.name not in gone)
    order = restrict(nest.order, frozenset(s.name for s in kept))
    if order is None:
        return None
    tensors = tuple(t for t in nest.tensors if t.name != name)
    result = replace(nest, tensors=tensors, statements=kept, order=order)
    result.check()
    return result


def _roles(nest: Nest, name: str) -> tuple[Statement, tuple[Statement, ...], Statement] | None:
    """Return a temporary's initialisation from an array element, its updates, and its only reader, which stores it."""
    writers, readers = nest.writers(name), nest.readers(name)
    begins = [s for s in writers if s.op == "="]
    sums = tuple(s for s in writers if s.is_reduction)
    if len(begins) != 1 or len(readers) != 1 or not sums:
        return None
    (begin,), (end,) = begins, readers
    if not isinstance(begin.body, Read) or end.op != "=" or end in writers:
        return None
    own, array = nest.tensor(name), begin.reads[0].tensor
    fits = array == end.write.tensor and nest.tensor(array).dtype == own.dtype
    return (begin, sums, end) if fits and [a.tensor for a in end.reads].count(name) == 1 else None


def _meanwhile(
    nest: Nest, begin: Statement, sums: tuple[Statement, ...], end: Statement
) -> Iterator[isl.UnionMap]:
    """{ instance -> element } of what accesses an element while its sum is on its way, and of sums that are not."""
    array, dates = end.write.tensor, nest.original_dates()
    earlier = dates.lex_gt_union_map(dates)  # { instance -> one that runs before it }
    started, ended = relation_of([(begin, begin.reads[0])]), relation_of([(end, end.write)])
    for s in nest.statements:
        for access in s.accesses:
            own = (s is begin and access is begin.reads[0]) or (s is end and access is end.write)
            if access.tensor == array and not own:
                touched = relation_of([(s, access)])
                inside = touched.intersect(earlier.apply_range(started))
                yield inside.intersect(earlier.reverse().apply_range(ended))
    name = begin.write.tensor
    read = next(access for access in end.reads if access.tensor == name)
    first, last = relation_of([(begin, begin.write)]), relation_of([(end, read)])
    for s in sums:
        touched = relation_of([(s, s.write)])
        yield touched.intersect(earlier.reverse().apply_range(first))
        yield touched.intersect(earlier.apply_range(last))


def _elements(nest: Nest, s: Statement, access: Access) -> isl.Map:
    """{ instance -> element } on a statement's instances."""
    return access.map.intersect_domain(nest.domains[s.name])

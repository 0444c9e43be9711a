"""Order copies in a nest's original order: they copy the values that their readers would have read.

    for i: x[i] = …;  for i: … x[i] …            ->  for i: x[i] = …;  copies;  for i: … x[i] …
    for t: { for i: … h[t, i] …; h[t + 1] = … }  ->  for t: { copies of h[t];  for i: … h[t, i] …; h[t + 1] = … }

In the second form nothing is final before its readers. The copies of a t go with that t, if the loops around them tell
it, and if no element is written between its copy and a reader of that copy:

    { copy -> write : the same element, the copy first } . { write -> reader : the same element, the write first }
    and { copy -> reader : the same element, the same values of the loops around }  have nothing in common.
"""

from __future__ import annotations

from collections.abc import Iterator

import islpy as isl

from polyfuse.errors import InvalidSchedule
from polyfuse.ir.access import Access
from polyfuse.ir.nest import Nest, own_loops
from polyfuse.ir.statement import Statement
from polyfuse.ir.tree import Loop, Tree, date_map, dates, parts, replace_node, restrict, sequence
from polyfuse.sets import dimension, union_map


def ordered_with_copies(
    nest: Nest, copies: tuple[Statement, ...], readers: frozenset[str], around: tuple[Loop, ...] = ()
) -> Tree:
    """The original order with copies put after the last write of what they read and before their first reader.

    `around` are the loops whose values are the copies' first dimensions. Raises InvalidSchedule if there is no such
    place.
    """
    late = _written_late(nest, copies, readers)
    found = _orders(nest.order, copies, readers, around)
    if late is None:
        return next(found)
    for order in found:
        if not any(_overtaken(nest, order, copy, access, readers, around) for copy, access in late):
            return order
    copy, access = late[0]
    raise InvalidSchedule(
        f"{access.tensor} is written after {copy.name} would have copied it; a copied tensor must be final "
        "before the first part of the program that reads it"
    )


def _written_late(
    nest: Nest, copies: tuple[Statement, ...], readers: frozenset[str]
) -> list[tuple[Statement, Access]] | None:
    """Return writes to copies' operands in or after the first part that reads the copies; None if there are none."""
    run = parts(nest.order)
    first = next(p for p, part in enumerate(run) if readers & part.members)
    late = {nest.statement(name).write.tensor for part in run[first:] for name in part.names}
    return [(copy, access) for copy in copies for access in copy.reads if access.tensor in late] or None


def _orders(
    tree: Tree, copies: tuple[Statement, ...], readers: frozenset[str], around: tuple[Loop, ...]
) -> Iterator[Tree]:
    """The orders with copies before their first reader: outside all loops, then in each loop whose values they know."""
    run = parts(tree)
    first = next(p for p, part in enumerate(run) if readers & part.members)
    yield sequence((*run[:first], *map(own_loops, copies), *run[first:]))
    loop = run[first]
    if not isinstance(loop, Loop) or not readers <= loop.members:
        return
    for position, outer in enumerate(around):
        if all(outer.date(reader).is_equal(loop.date(reader)) for reader in readers):
            own = tuple((copy.name, dimension(copy.domain, position)) for copy in copies)
            for body in _orders(loop.body, copies, readers, around):
                yield replace_node(tree, loop, Loop(loop.name, (*loop.dates, *own), body))
            return


def _overtaken(
    nest: Nest,
    order: Tree,
    copy: Statement,
    access: Access,
    readers: frozenset[str],
    around: tuple[Loop, ...],
) -> bool:
    """True if an element is written between its copy, which reads it by `access`, and a reader of that copy."""
    writers = nest.writers(access.tensor)
    names = frozenset((copy.name, *readers, *(w.name for w in writers)))
    only = restrict(order, names)
    assert only is not None, "the copy is in it"
    when = dates(only, {**nest.domains, copy.name: copy.domain})
    early = when.lex_lt_union_map(when)
    copied = access.map.intersect_domain(copy.domain)
    written = union_map(w.write.map.intersect_domain(nest.domains[w.name]) for w in writers)
    before = isl.UnionMap.from_map(copied).apply_range(written.reverse()).intersect(early)
    if before.is_empty():
        return False
    for reader in readers:
        reads = (a for a in nest.statement(reader).reads if a.tensor == access.tensor)
        read = union_map(a.map.intersect_domain(nest.domains[reader]) for a in reads)
        after = written.apply_range(read.reverse()).intersect(early)
        served = isl.UnionMap.from_map(copied).apply_range(read.reverse())
        served = served.intersect(isl.UnionMap.from_map(_same_values(nest, copy, reader, around)))
        if not before.apply_range(after).intersect(served).is_empty():
            return True
    return False


def _same_values(nest: Nest, copy: Statement, reader: str, around: tuple[Loop, ...]) -> isl.Map:
    """{ copy -> reader : the loops around have the values that are the copy's first dimensions }."""
    here = date_map(copy.domain, [dimension(copy.domain, position) for position in range(len(around))])
    there = date_map(nest.domains[reader], [loop.date(reader) for loop in around])
    return here.apply_range(there.reverse())

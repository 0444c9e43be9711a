"""Copy statements: what fills a buffer at the start of each iteration of a loop, with its domain, order and loops.

    for i: S   ->   for i: { for e0: for e1: load[i, e0, e1]: buffer[i, e0, e1] = …;  S }

A copy's dimensions are the values of the loops around it, then an element's indices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import islpy as isl
import sympy

from polyfuse.analysis.storage import buffers_of, geometry
from polyfuse.errors import InvalidSchedule
from polyfuse.ir.access import Access
from polyfuse.ir.names import fresh
from polyfuse.ir.nest import Nest, own_loops
from polyfuse.ir.statement import Statement
from polyfuse.ir.tensor import DType, Tensor
from polyfuse.ir.tree import (
    Buffer,
    Leaf,
    Loop,
    Tree,
    parts,
    replace_node,
    sequence,
    statements,
    walk,
)
from polyfuse.sets import IN, OUT, SET, dim_names, dimension, expression_text


@dataclass(frozen=True)
class Promoted:
    """The nest (with a copy statement, if one was needed) and the tree after `promote`."""

    nest: Nest
    tree: Tree


@dataclass(frozen=True)
class Copied:
    """What a copy takes in: { values of the loops -> element indices }, and what each element's value is.

    `reads` are what the body's leaves stand for, as functions of an element's indices: { [e] -> A[e] }.
    """

    name: str
    footprint: isl.Map
    reads: tuple[Access, ...]
    body: sympy.Basic
    dtype: DType


def copied_in(
    nest: Nest,
    tree: Tree,
    prefix: tuple[Loop, ...],
    what: Copied,
    redirected: Callable[[str], Mapping[str, Statement]],
    place: Buffer,
) -> Promoted:
    """for i: S  ->  for i: { buffer; copy in; S }, for the last loop of `prefix`, in a place like the given one.

    `redirected` are the statements that read the buffer of that name. Raises InvalidSchedule if what is copied is not
    final by then, or has no constant size.
    """
    loop = prefix[-1]
    name = fresh(f"load_{what.name}", {s.name for s in nest.statements})
    tensor = fresh(f"{what.name}_{place.memory}", {t.name for t in nest.tensors})
    domain = _domain(name, what.footprint, prefix)
    copy = _statement(domain, tensor, what, len(prefix))
    changed = redirected(tensor)
    order = ordered_with_copy(nest, copy, frozenset(changed))
    position = next(p for p, s in enumerate(nest.statements) if s.name in changed)
    every = tuple(changed.get(s.name, s) for s in nest.statements)
    extended = nest.rewritten(
        (*nest.tensors, Tensor(tensor, _sizes(domain), what.dtype, "temporary")),
        (*every[:position], copy, *every[position:]),
        order,
        frozenset((tensor, *(access.tensor for access in copy.reads))),
    )
    panel = None if place.panel is None else replace(place.panel, axis=place.panel.axis + len(prefix))
    buffer = replace(place, tensor=tensor, panel=panel)
    return sized(Promoted(extended, _with_copy(tree, loop, prefix, copy, what.footprint, buffer)), buffer)


def sized(done: Promoted, buffer: Buffer) -> Promoted:
    """The same, once the new buffer is known to have a constant size; InvalidSchedule if it has none."""
    home = next(loop for loop, other in buffers_of(done.tree) if other is buffer)
    geometry(done.nest, done.tree, home, buffer)
    return done


def prefix_map(domain: isl.Set, name: str, prefix: tuple[Loop, ...]) -> isl.Map:
    """{ instance -> values of the loops }."""
    together = prefix[0].date(name).as_map()
    for loop in prefix[1:]:
        together = together.flat_range_product(loop.date(name).as_map())
    return together.intersect_domain(domain)


def _domain(name: str, footprint: isl.Map, prefix: tuple[Loop, ...]) -> isl.Set:
    """The instances of a copy: { [p] -> [e] } becomes { load[p, e] }, each dimension with a name of its own."""
    domain = footprint.wrap().flatten().set_tuple_name(name)
    taken: set[str] = set()
    for d, dim in enumerate([*(x.name for x in prefix), *(f"e{d}" for d in range(footprint.dim(OUT)))]):
        unique = fresh(dim, taken)
        taken.add(unique)
        domain = domain.set_dim_name(SET, d, unique)
    return domain


def _statement(domain: isl.Set, buffer: str, what: Copied, outer: int) -> Statement:
    """load[p.., e..]: buffer[p.., e..] = value of [e..]."""
    # only the instance's dimensions are named: a map that names a dimension twice cannot be pickled
    space = domain.get_space()
    identity = isl.Map.identity(space.params().add_dims(SET, domain.dim(SET)).map_from_set())
    identity = identity.set_tuple_name(IN, domain.get_tuple_name())
    for d, name in enumerate(dim_names(domain)):
        identity = identity.set_dim_name(IN, d, name)
    write = identity.set_tuple_name(OUT, buffer)
    element = identity.project_out(OUT, 0, outer)
    reads = tuple(Access(a.tensor, element.apply_range(a.map)) for a in what.reads)
    return Statement(domain.get_tuple_name(), domain, Access(buffer, write), "=", reads, what.body)


def _sizes(domain: isl.Set) -> tuple[int | str, ...]:
    sizes: list[int | str] = []
    for d in range(domain.dim(SET)):
        last = domain.dim_max(d)
        high = last.max_val()
        if high.is_int():
            sizes.append(int(high.to_python()) + 1)
        else:
            sizes.append(f"{expression_text(last.gist_params(domain.params()))} + 1")
    return tuple(sizes)


def ordered_with_copy(nest: Nest, copy: Statement, readers: frozenset[str]) -> Tree:
    """The original order with the copy put after the last write of what it reads and before its first reader."""
    copied = {access.tensor for access in copy.reads}
    run = parts(nest.order)
    first = next(p for p, part in enumerate(run) if readers & set(statements(part)))
    late = [nest.statement(n).write.tensor for part in run[first:] for n in statements(part)]
    tensor = next((name for name in late if name in copied), None)
    if tensor is not None:
        raise InvalidSchedule(
            f"{tensor} is written after {copy.name} would have copied it; a copied tensor must be final "
            "before the first part of the program that reads it"
        )
    return sequence((*run[:first], own_loops(copy), *run[first:]))


def _with_copy(
    tree: Tree, loop: Loop, prefix: tuple[Loop, ...], copy: Statement, footprint: isl.Map, buffer: Buffer
) -> Tree:
    """The tree in which the copy's own loops, counted from the footprint's corner, come first in the loop's body."""
    outer = len(prefix)
    to_prefix = isl.MultiAff.identity(copy.domain.get_space().map_from_set())
    to_prefix = to_prefix.drop_dims(OUT, outer, copy.domain.dim(SET) - outer).reset_tuple_id(OUT)
    body: Tree = Leaf(copy.name)
    taken = {x.name for x in prefix} | {x.name for x in walk(loop) if isinstance(x, Loop)}
    for d in reversed(range(footprint.dim(OUT))):
        corner = footprint.dim_min(d).pullback_multi_aff(to_prefix)
        date = dimension(copy.domain, outer + d).sub(corner).gist(copy.domain)
        body = Loop(fresh(f"{copy.name}_{d}", taken), ((copy.name, date),), body)
    new = replace(
        loop,
        body=sequence((body, loop.body)),
        buffers=(*loop.buffers, buffer),
        dates=(*loop.dates, (copy.name, dimension(copy.domain, outer - 1))),
    )
    for position in range(outer - 2, -1, -1):
        around, inner = prefix[position], prefix[position + 1]
        dates = (*around.dates, (copy.name, dimension(copy.domain, position)))
        new = replace(around, body=replace_node(around.body, inner, new), dates=dates)
    return replace_node(tree, prefix[0], new)

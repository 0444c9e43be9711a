"""The verb that gives a loop a memory of its own: promote.

Two cases, told apart by who writes the tensor:
  - a temporary that lives and dies inside one iteration of the loop is *contracted*: its elements go to a buffer the
    size of what one iteration touches, and no copy is needed;
  - a tensor that the loop only reads is *copied in*: a new statement fills a new temporary with the footprint that isl
    computes, the loop's reads go there, and the new temporary is contracted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import islpy as isl

from polyfuse.analysis.storage import buffers_of, geometry
from polyfuse.errors import InvalidSchedule
from polyfuse.ir.access import Access
from polyfuse.ir.nest import Nest, own_loops
from polyfuse.ir.scalar import read
from polyfuse.ir.statement import Statement
from polyfuse.ir.tensor import Tensor
from polyfuse.ir.tree import (
    Buffer,
    Leaf,
    Loop,
    Panel,
    Sequence,
    Tree,
    loops,
    loops_around,
    replace_node,
    sequence,
    statements,
    walk,
)
from polyfuse.schedule.chains import fresh, loop_named
from polyfuse.sets import IN, OUT, SET, dim_names, dimension, expression_text

MEMORIES = ("local", "register", "shared")
"""Where `promote` may put a buffer: of a core or thread, of a thread, of a block."""


@dataclass(frozen=True)
class Promoted:
    """The nest (with a copy statement, if one was needed) and the tree after `promote`."""

    nest: Nest
    tree: Tree


def promote(
    nest: Nest,
    tree: Tree,
    tensor: str,
    statement: str,
    at: str,
    memory: str,
    panel: tuple[int, int] | None = None,
) -> Promoted:
    """for i: { S; T }  ->  for i: { buffer; copy in; S; T }, S and T touching the buffer instead of the tensor."""
    if memory not in MEMORIES:
        raise InvalidSchedule(f"promote: no memory {memory!r}; there are {', '.join(MEMORIES)}")
    loop = loop_named(tree, statement, at)
    known = nest.tensor(tensor)
    layout = None if panel is None else panel_of(known, panel)
    inside = [nest.statement(name) for name in statements(loop)]
    touching = [s for s in inside if tensor in s.tensors]
    if not touching:
        raise InvalidSchedule(f"promote: nothing inside {at} around {statement} touches {tensor}")
    if any(buffer.tensor == tensor for other in loops(tree) for buffer in other.buffers):
        raise InvalidSchedule(f"promote: {tensor} is promoted already")
    if not any(s.write.tensor == tensor for s in touching):
        return _copied_in(nest, tree, known, loop, memory, layout)
    if known.role != "temporary":
        raise InvalidSchedule(
            f"promote: {tensor} is written inside {at} and visible to the caller ({known.role}); "
            "only what the loop alone uses, or only reads, can be promoted"
        )
    buffer = Buffer(tensor, memory, layout)
    return _sized(
        Promoted(nest, replace_node(tree, loop, replace(loop, buffers=(*loop.buffers, buffer)))), buffer
    )


def _sized(done: Promoted, buffer: Buffer) -> Promoted:
    """The same, once the new buffer is known to have a constant size; InvalidSchedule if it has none."""
    home = next(loop for loop, other in buffers_of(done.tree) if other is buffer)
    geometry(done.nest, done.tree, home, buffer)
    return done


def panel_of(tensor: Tensor, panel: tuple[int, int]) -> Panel:
    """(axis, width) as a layout of the tensor. Raises InvalidSchedule where it has no such panels."""
    axis, width = panel
    if not 0 <= axis < tensor.rank or width < 2:
        raise InvalidSchedule(
            f"no panels of {width} along axis {axis}; {tensor.name} has axes 0 to {tensor.rank - 1}, "
            "and a panel is at least 2 wide"
        )
    return Panel(axis, width)


def _copied_in(
    nest: Nest, tree: Tree, tensor: Tensor, loop: Loop, memory: str, layout: Panel | None
) -> Promoted:
    reader = next(name for name in statements(loop) if tensor.name in nest.statement(name).tensors)
    around = loops_around(tree, reader)
    prefix = around[: next(p for p, x in enumerate(around) if x is loop) + 1]
    footprint = _footprint(nest, tensor, loop, prefix)
    copy_name = fresh(f"load_{tensor.name}", {s.name for s in nest.statements})
    buffer_name = fresh(f"{tensor.name}_{memory}", {t.name for t in nest.tensors})
    domain = footprint.wrap().flatten().set_tuple_name(copy_name)
    domain = _named_dims(domain, [x.name for x in prefix], tensor.rank)
    copy = _copy_statement(domain, tensor, buffer_name, len(prefix))
    staged = Tensor(buffer_name, _sizes(domain), tensor.dtype, "temporary")
    readers = frozenset(statements(loop))
    changed = tuple(
        _redirected(s, tensor.name, buffer_name, prefix) if s.name in readers else s for s in nest.statements
    )
    order = order_with_copy(nest, tensor.name, copy, readers)
    position = next(p for p, s in enumerate(nest.statements) if s.name in readers)
    extended = nest.rewritten(
        (*nest.tensors, staged),
        (*changed[:position], copy, *changed[position:]),
        order,
        frozenset((tensor.name, buffer_name)),
    )
    moved = None if layout is None else replace(layout, axis=layout.axis + len(prefix))
    buffer = Buffer(buffer_name, memory, moved)
    return _sized(Promoted(extended, _with_copy(tree, loop, prefix, copy, footprint, buffer)), buffer)


def _footprint(nest: Nest, tensor: Tensor, loop: Loop, prefix: tuple[Loop, ...]) -> isl.Map:
    """{ values of the loops down to `loop` -> elements of the tensor read in that iteration }."""
    found = None
    for name in statements(loop):
        s = nest.statement(name)
        for access in s.reads:
            if access.tensor != tensor.name:
                continue
            dates = _prefix_map(nest.domains[name], name, prefix)
            here = access.map.intersect_domain(nest.domains[name]).apply_domain(dates)
            found = here if found is None else found.union(here)
    assert found is not None, "promote looked for a reader before"
    return found.coalesce()


def _prefix_map(domain: isl.Set, name: str, prefix: tuple[Loop, ...]) -> isl.Map:
    together = prefix[0].date(name).as_map()
    for loop in prefix[1:]:
        together = together.flat_range_product(loop.date(name).as_map())
    return together.intersect_domain(domain)


def _named_dims(domain: isl.Set, names: list[str], rank: int) -> isl.Set:
    taken: set[str] = set()
    for d, name in enumerate([*names, *(f"e{d}" for d in range(rank))]):
        unique = fresh(name, taken)
        taken.add(unique)
        domain = domain.set_dim_name(SET, d, unique)
    return domain


def _copy_statement(domain: isl.Set, tensor: Tensor, buffer: str, outer: int) -> Statement:
    """load[p.., e..]: buffer[p.., e..] = tensor[e..]."""
    # only the instance's dimensions are named: a map that names a dimension twice cannot be pickled
    space = domain.get_space()
    identity = isl.Map.identity(space.params().add_dims(SET, domain.dim(SET)).map_from_set())
    identity = identity.set_tuple_name(IN, domain.get_tuple_name())
    for d, name in enumerate(dim_names(domain)):
        identity = identity.set_dim_name(IN, d, name)
    write = identity.set_tuple_name(OUT, buffer)
    source = identity.project_out(OUT, 0, outer).set_tuple_name(OUT, tensor.name)
    reads = (Access(tensor.name, source),)
    return Statement(domain.get_tuple_name(), domain, Access(buffer, write), "=", reads, read(0))


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


def _redirected(s: Statement, tensor: str, buffer: str, prefix: tuple[Loop, ...]) -> Statement:
    """The statement with its reads of `tensor` going to `buffer`[dates of the loops, element]."""

    def moved(access: Access) -> Access:
        if access.tensor != tensor:
            return access
        dates = _prefix_map(s.domain, s.name, prefix)
        return Access(
            buffer, dates.flat_range_product(access.map.reset_tuple_id(OUT)).set_tuple_name(OUT, buffer)
        )

    return replace(s, reads=tuple(moved(access) for access in s.reads))


def order_with_copy(nest: Nest, tensor: str, copy: Statement, readers: frozenset[str]) -> Tree:
    """The original order with the copy put after the tensor's last write and before its first reader."""
    parts = nest.order.children if isinstance(nest.order, Sequence) else (nest.order,)
    first = next(p for p, part in enumerate(parts) if readers & set(statements(part)))
    writers = [
        p
        for p, part in enumerate(parts)
        for n in statements(part)
        if nest.statement(n).write.tensor == tensor
    ]
    if any(p >= first for p in writers):
        raise InvalidSchedule(
            f"{tensor} is written after {copy.name} would have copied it; a copied tensor must be final "
            "before the first part of the program that reads it"
        )
    return sequence((*parts[:first], own_loops(copy), *parts[first:]))


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

"""Copy statements: fill a buffer at the start of each iteration of a loop; their domain, order and loops.

    for i: S   ->   for i: { for e0: for e1: load[i, e0, e1]: buffer[i, e0, e1] = …;  S }

A copy's dimensions are the values of the loops around it, then an element's indices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce

import islpy as isl
import sympy

from polyfuse.analysis.storage import buffers_of, corner_in, geometry
from polyfuse.errors import InvalidSchedule
from polyfuse.ir.access import Access
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.nest import Nest
from polyfuse.ir.number_types import DType, computed_in
from polyfuse.ir.precision import STORED, Math
from polyfuse.ir.scalar import Tf32, number
from polyfuse.ir.sizes import extent_text
from polyfuse.ir.statement import Statement
from polyfuse.ir.tensor import Tensor
from polyfuse.ir.tree import (
    Buffer,
    Leaf,
    Loop,
    Panel,
    Tree,
    loops_around,
    replace_node,
    sequence,
    walk,
)
from polyfuse.schedule.promote.copy_order import ordered_with_copies
from polyfuse.sets import IN, OUT, SET, dim_names, dimension, greatest, least_and_most, param_names


@dataclass(frozen=True)
class Promoted:
    """The nest (with a copy statement, if one was needed) and the tree after `promote`."""

    nest: Nest
    tree: Tree


@dataclass(frozen=True)
class Copied:
    """The footprint of a copy: { values of the loops -> element indices }, and the value of each element.

    `reads` are what the body's leaves stand for, as functions of the loops' values and an element's indices:
    { [p, e] -> A[e] }. The other elements of a `padded` footprint, if there is one, are zeros.
    """

    name: str
    footprint: isl.Map
    reads: tuple[Access, ...]
    body: sympy.Basic
    dtype: DType
    padded: isl.Map | None = None


def rounding_of(
    what: str, body: sympy.Basic, dtype: DType, math: Math, done: bool = False
) -> tuple[sympy.Basic, DType]:
    """The body and the element type of a copy that rounds its values to a format of factors, each once.

    f16, bf16:  t = x           stored as float16, bfloat16, which rounds; of a half that it is already: bit for bit
    tf32:       t = tf32(x)     stored as float32; t = x if that is `done`: x holds such numbers alone

    Raises InvalidSchedule for values of other types, in which bodies are not computed in float32.
    """
    if math == "ieee":
        return body, computed_in(dtype)
    if computed_in(dtype) != "float32":
        raise InvalidSchedule(f"promote: rounded={math!r} rounds float32 numbers, and {what} is {dtype}")
    if math == "tf32":
        return body if done else Tf32(body), "float32"
    return body, STORED[math]


def copied_in(
    nest: Nest,
    tree: Tree,
    prefix: tuple[Loop, ...],
    what: Copied,
    redirected: Callable[[str], Mapping[str, Statement]],
    place: Buffer,
    blocks: tuple[Loop, ...] = (),
) -> Promoted:
    """for i: S  ->  for i: { buffer; copy in; S }, for the last loop of `prefix`, in a place like the given one.

    The footprint is that of each value of the loops of `prefix`, then of the loops over `blocks` inside: each block
    copies its own. `redirected` are the statements that read the buffer of that name. Raises InvalidSchedule if what is
    copied is not final by then, has no constant size, or is nothing.
    """
    loop, around = prefix[-1], (*prefix, *blocks)
    name = fresh(f"load_{what.name}", {s.name for s in nest.statements})
    tensor = fresh(f"{what.name}_{place.memory}", {t.name for t in nest.tensors})
    copies: tuple[Statement, ...] = (_statement(_domain(name, what.footprint, around), tensor, what),)
    if what.padded is not None:
        clear = fresh(f"clear_{what.name}", {s.name for s in nest.statements})
        zeros = replace(what, reads=(), body=number(0.0))
        copies = (_statement(_domain(clear, what.padded, around), tensor, zeros), *copies)
    held = copies[0].domain.intersect_params(nest.context)
    if held.is_empty():
        raise InvalidSchedule(f"promote: nothing inside {loop.name} reads an element of {what.name}")
    changed = redirected(tensor)
    order = ordered_with_copies(nest, copies, frozenset(changed), prefix)
    position = next(p for p, s in enumerate(nest.statements) if s.name in changed)
    every = tuple(changed.get(s.name, s) for s in nest.statements)
    touched = {tensor, *(access.tensor for copy in copies for access in copy.reads)}
    if what.padded is not None:  # the readers have more instances
        touched |= {name for s in changed.values() for name in s.tensors}
    extended = nest.rewritten(
        (
            *nest.tensors,
            Tensor(tensor, _sizes(held), what.dtype, "temporary"),
        ),
        (*every[:position], *copies, *every[position:]),
        order,
        frozenset(touched),
    )
    panel = place.panel
    if panel is not None:
        panel = replace(panel, axis=panel.axis + len(around))
        panel = replace(panel, phase=_phase(extended, tree, loop, tuple(changed), tensor, panel))
    buffer = replace(place, tensor=tensor, panel=panel)
    widest = what.footprint if what.padded is None else what.padded
    return sized(Promoted(extended, _with_copies(tree, loop, prefix, blocks, copies, widest, buffer)), buffer)


def sized(done: Promoted, buffer: Buffer) -> Promoted:
    """The same, once the new buffer is known to have a constant size; InvalidSchedule if it has none."""
    home = next(loop for loop, other in buffers_of(done.tree) if other is buffer)
    geometry(done.nest, done.tree, home, buffer)
    return done


def _phase(
    nest: Nest, tree: Tree, loop: Loop, readers: tuple[str, ...], tensor: str, panel: Panel
) -> int | None:
    """The remainder by a panel's width at which tiles of the readers begin; None if they have none in common.

    j in tiles of 16, which read element j + 1: 1.
    """
    found = set[int | None]()
    for name in readers:
        inside = [each for each in loops_around(tree, name) if any(each is other for other in walk(loop))]
        for access in (a for a in nest.statement(name).reads if a.tensor == tensor):
            along = access.subscripts().get_pw_aff(panel.axis)
            remainders = (
                least_and_most(along.sub(each.date(name)).mod_val(isl.Val(panel.width)), nest.domains[name])
                for each in reversed(inside)
                if _moves_with(along, each.date(name))
            )
            same = (low for low, high in remainders if low.is_int() and low.eq(high))
            first = next(same, None)
            found.add(None if first is None else int(first.to_python()))
    return found.pop() if len(found) == 1 else None


def _moves_with(along: isl.PwAff, date: isl.PwAff) -> bool:
    """True if two functions share a dimension."""
    return any(along.involves_dims(IN, d, 1) and date.involves_dims(IN, d, 1) for d in range(along.dim(IN)))


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


def _statement(domain: isl.Set, buffer: str, what: Copied) -> Statement:
    """load[p.., e..]: buffer[p.., e..] = value of [p.., e..]."""
    # only the instance's dimensions are named: a map that names a dimension twice cannot be pickled
    space = domain.get_space()
    identity = isl.Map.identity(space.params().add_dims(SET, domain.dim(SET)).map_from_set())
    identity = identity.set_tuple_name(IN, domain.get_tuple_name())
    for d, name in enumerate(dim_names(domain)):
        identity = identity.set_dim_name(IN, d, name)
    write = identity.set_tuple_name(OUT, buffer)
    reads = tuple(Access(a.tensor, identity.apply_range(a.map)) for a in what.reads)
    return Statement(domain.get_tuple_name(), domain, Access(buffer, write), "=", reads, what.body)


def _sizes(domain: isl.Set) -> tuple[int | str, ...]:
    """The extents of a tensor with an element for every instance of a copy.

    { load[i, j] : 0 <= i < N and 0 <= j < 8 }   ->   ("N", 8)
    """
    return tuple(_extent(domain, d) for d in range(domain.dim(SET)))


def _extent(domain: isl.Set, d: int) -> int | str:
    """One more than the last value along a dimension; where that differs from case to case, one extent for all cases.

    { i < N and i < M }   ->   N, which is as many or more
    { i < N or i < M }    ->   N + M
    """
    end = domain.dim_max(d).add_constant_val(isl.Val(1))
    high = greatest(end)
    if high.is_int():
        return int(high.to_python())
    cases = [isl.PwAff.from_aff(case) for _, case in end.get_pieces()]
    for extent in (*cases, reduce(isl.PwAff.add, cases)):
        text = extent_text(extent)
        if text is not None and end.domain().is_subset(end.le_set(extent)):
            return text
    raise InvalidSchedule(
        f"promote: no one extent in {', '.join(param_names(domain))} holds what is copied: {end}; give sizes="
    )


def _with_copies(
    tree: Tree,
    loop: Loop,
    prefix: tuple[Loop, ...],
    blocks: tuple[Loop, ...],
    copies: tuple[Statement, ...],
    footprint: isl.Map,
    buffer: Buffer,
) -> Tree:
    """The tree in which the copies' loops, counted from the footprint's corner, come first in the loop's body."""
    around, outer, last = len(prefix) + len(blocks), len(prefix), copies[-1].name
    body: Tree = sequence(tuple(Leaf(copy.name) for copy in copies))
    taken = {x.name for x in prefix} | {x.name for x in walk(loop) if isinstance(x, Loop)}
    for d in reversed(range(footprint.dim(OUT))):
        dates = []
        for copy in copies:
            to_prefix = isl.MultiAff.identity(copy.domain.get_space().map_from_set())
            to_prefix = to_prefix.drop_dims(OUT, around, copy.domain.dim(SET) - around).reset_tuple_id(OUT)
            corner, _ = corner_in(buffer, footprint, d, around + d)
            from_corner = dimension(copy.domain, around + d).sub(corner.pullback_multi_aff(to_prefix))
            dates.append((copy.name, from_corner.gist(copy.domain)))
        body = Loop(fresh(f"{last}_{d}", taken), tuple(dates), body)
    for position, block in reversed([*enumerate(blocks, outer)]):
        dates = [(copy.name, dimension(copy.domain, position)) for copy in copies]
        body = Loop(fresh(f"{last}_{block.name}", taken), tuple(dates), body, block.bind)
    new = replace(
        loop,
        body=sequence((body, loop.body)),
        buffers=(*loop.buffers, buffer),
        dates=(*loop.dates, *((copy.name, dimension(copy.domain, outer - 1)) for copy in copies)),
    )
    for position in range(outer - 2, -1, -1):
        outside, inner = prefix[position], prefix[position + 1]
        every = (*outside.dates, *((copy.name, dimension(copy.domain, position)) for copy in copies))
        new = replace(outside, body=replace_node(outside.body, inner, new), dates=every)
    return replace_node(tree, prefix[0], new)

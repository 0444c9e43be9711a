"""Accumulate a sum that others began in a temporary of its own.

    for t: { for i: for k: z[t, i] += h[t, k] * u[i, k];  … z[t, i] … }
    ->  for t: { for i: s[t, i] = z[t, i];  for i: for k: s[t, i] += …;  for i: z[t, i] = s[t, i];  … z[t, i] … }

The same values in the same order. The theorem: nothing else stands in the loops that the two copies are put around, and
the sum reads nothing that it writes, so that z's elements are the sum's alone there. A temporary can stay in registers.

Sums that lie apart, as z[2 * i, 2 * j + 1], lie side by side in a temporary s[i, j] of known size.
"""

from __future__ import annotations

from dataclasses import replace

import islpy as isl

from polyfuse.errors.proving import proving
from polyfuse.ir import Access, Nest, Statement
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.scalar import read
from polyfuse.ir.tensor import Tensor
from polyfuse.ir.tree import Leaf, Loop, Tree, path_to, replace_node, sequence, statements
from polyfuse.rewrite.recorded import recorded
from polyfuse.sets import IN, OUT, SET, bounding_box


@recorded("own_sums")
@proving("the rewrite own_sums")
def own_sums(nest: Nest, name: str) -> Nest | None:
    """Accumulate a statement's sum in a tensor of its own.

    S: z[e] += t   ->   begin_S: s[e] = z[e];  S: s[e] += t;  end_S: z[e] = s[e]
    S[i]: z[2 * i] += t   ->   …  S[i]: s[i] += t;  …

    Args:
        nest: The nest.
        name: The statement's name.

    Returns:
        The new nest; None if the rewrite is illegal.
    """
    s = nest.statement(name)
    steps = [d for d in range(s.domain.dim(SET)) if not s.write.map.involves_dims(IN, d, 1)]
    target = s.write.tensor
    if not s.is_reduction or not steps or any(a.tensor == target for a in s.reads):
        return None
    results = _without(s.write.map.intersect_domain(nest.domains[name]), steps)
    if results.is_empty() or not results.is_injective():
        return None
    known = nest.tensor(target)
    total = fresh(f"{target}_own", {t.name for t in nest.tensors})
    names = {other.name for other in nest.statements}
    shape, held = _held(nest, s, steps) or (known.shape, s.write.map)
    written = _without(held.intersect_domain(nest.domains[name]), steps)
    begin = _copy(fresh(f"begin_{name}", names), (total, written), (target, results))
    end = _copy(fresh(f"end_{name}", names), (target, results), (total, written))
    added = replace(s, write=Access(total, held.set_tuple_name(OUT, total)))
    path = path_to(nest.order, name)
    own = next(node for node in path if statements(node) == (name,))
    around = [node for node in path[: path.index(own)] if isinstance(node, Loop)]
    if any(_moves_with(loop, name, steps) for loop in around):
        return None
    copies = begin, end
    order = replace_node(nest.order, own, _between(own, name, copies, steps))
    for old in around:
        loop = next(x for x in path_to(order, name) if isinstance(x, Loop) and x.name == old.name)
        order = replace_node(order, loop, _with_dates(loop, name, copies, steps))
    every = tuple(
        new for old in nest.statements for new in ((begin, added, end) if old.name == name else (old,))
    )
    tensors = (*nest.tensors, Tensor(total, shape, known.dtype, "temporary"))
    return nest.rewritten(tensors, every, order, frozenset((target, total)))


def _held(nest: Nest, s: Statement, steps: list[int]) -> tuple[tuple[int | str, ...], isl.Map] | None:
    """The shape of a temporary for sums that lie apart, and where they lie in it; None for others, and unknown sizes.

    { S[i, k] -> z[2i] } with 0 <= i < 8: (8,), { S[i, k] -> s[i] }
    """
    box = None if nest.params or not lie_apart(s.write) else bounding_box(nest.domains[s.name])
    if box is None:
        return None
    kept = [bounds for d, bounds in enumerate(box) if d not in steps]
    if any(low < 0 for low, _ in kept):
        return None
    held = isl.Map.identity(s.write.map.get_space().domain().map_from_set())
    for d in reversed(steps):
        held = held.project_out(OUT, d, 1)
    return tuple(high + 1 for _, high in kept), held


def lie_apart(write: Access) -> bool:
    """True if a subscript is a multiple of a dimension, as in z[2i]."""
    at = write.subscripts()
    pieces = (piece for axis in range(at.dim(OUT)) for _, piece in at.get_pw_aff(axis).get_pieces())
    by = (piece.get_coefficient_val(IN, d) for piece in pieces for d in range(piece.dim(IN)))
    return any(value.is_int() and abs(value.to_python()) > 1 for value in by)


def _without(write: isl.Map, steps: list[int]) -> isl.Map:
    """{ S[i, k] -> z[i] }  ->  { [i] -> z[i] }."""
    for d in reversed(steps):
        write = write.project_out(IN, d, 1)
    return write


def _copy(name: str, write: tuple[str, isl.Map], read_: tuple[str, isl.Map]) -> Statement:
    """name[i]: target[e(i)] = source[f(i)], of (tensor, { [i] -> [e(i)] }) each."""
    domain = write[1].domain().set_tuple_name(name)
    at, found = (
        Access(tensor, moved.set_tuple_name(IN, name).gist_domain(domain).set_tuple_name(OUT, tensor))
        for tensor, moved in (write, read_)
    )
    return Statement(name, domain, at, "=", (found,), read(0))


def _moves_with(loop: Loop, name: str, steps: list[int]) -> bool:
    return any(loop.date(name).involves_dims(IN, d, 1) for d in steps)


def _date(loop: Loop, name: str, copy: Statement, steps: list[int]) -> isl.PwAff:
    """A loop's value at a copy: what it is at the sum's instances."""
    date = loop.date(name)
    for d in reversed(steps):
        date = date.drop_dims(IN, d, 1)
    return date.set_tuple_id(IN, copy.domain.get_tuple_id())


def _between(own: Tree, name: str, copies: tuple[Statement, Statement], steps: list[int]) -> Tree:
    """for i: for k: S  ->  for i: { begin; for k: S; end }: the copies outside the first loop over steps."""
    if isinstance(own, Loop) and not _moves_with(own, name, steps):
        inner = replace(own, body=_between(own.body, name, copies, steps))
        return _with_dates(inner, name, copies, steps)
    begin, end = (_copied(own, name, copy, steps) for copy in copies)
    return sequence((begin, own, end))


def _copied(own: Tree, name: str, copy: Statement, steps: list[int]) -> Tree:
    """The sum's own loops but those over its steps, around a copy."""
    if not isinstance(own, Loop):
        return Leaf(copy.name)
    body = _copied(own.body, name, copy, steps)
    if _moves_with(own, name, steps):
        return body
    return Loop(own.name, ((copy.name, _date(own, name, copy, steps)),), body)


def _with_dates(loop: Loop, name: str, copies: tuple[Statement, Statement], steps: list[int]) -> Loop:
    """A loop around the sum that stands around its copies, too."""
    dates = (*loop.dates, *((copy.name, _date(loop, name, copy, steps)) for copy in copies))
    return replace(loop, dates=dates)

"""Compute half of a symmetric result and copy it to the other half.

    for i, j, k: S: y[i, j] += a[i, k] * a[j, k]
    ->  for i: for j <= i: for k: S: y[i, j] += a[i, k] * a[j, k];    for i: for j > i: y[i, j] = y[j, i]

The theorem. Let σ exchange two dimensions of S, and τ two axes of y. If S runs on σ(x) wherever it runs on x, writes
τ(y) there, and its value is that of x, with operands of a product or a sum exchanged at most (which is exact), then
y[τ(e)] and y[e] are sums of the same values, added in an order that a declared reduction may choose. Both begin from
the same number. So y[e] may be copied from y[τ(e)], if nobody else accesses y before the copy, and nothing that S reads
changes while S runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations

import islpy as isl
import sympy

from polyfuse.errors.proving import proving
from polyfuse.errors.refusals import Refusal
from polyfuse.ir import Access, Nest, Statement
from polyfuse.ir.dependences import relation_of
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.nest import own_loops
from polyfuse.ir.scalar import Read, read
from polyfuse.ir.tree import parts, sequence, statements
from polyfuse.rewrite.recorded import recorded
from polyfuse.rewrite.refusal import check_legal, refused
from polyfuse.sets import IN, OUT, SET, dimension, dimension_of, on_domain


@dataclass(frozen=True)
class Mirrored:
    """The result of `mirror`.

    Attributes:
        nest: The new nest.
        statement: The sum, which makes one half.
        copy: The statement that copies it to the other half.
    """

    nest: Nest
    statement: str
    copy: str

    def __str__(self) -> str:
        return f"{self.statement} makes half of a symmetric result, {self.copy} the other half"


@dataclass(frozen=True)
class _Symmetry:
    """The dimensions of a sum and the axes of its tensor that are exchanged, and what gives it its first values."""

    dims: tuple[int, int]
    axes: tuple[int, int]
    first: Statement


@recorded("mirror")
@proving("the rewrite mirror")
def mirror(nest: Nest, statement: str) -> Mirrored:
    """Compute half of a sum's symmetric result, and copy it to the other half.

    S: y[i, j] += a[i, k] * a[j, k]   ->   S, for j <= i;  S_mirrored: y[i, j] = y[j, i], for j > i

    Args:
        nest: The nest.
        statement: The statement that accumulates.

    Returns:
        The new nest.

    Raises:
        IllegalRewrite: if `why_not_mirror` returns a reason.
    """
    found = _symmetry(nest, statement)
    check_legal(found if isinstance(found, Refusal) else None)
    assert isinstance(found, _Symmetry), "a legal rewrite has a symmetry"
    s = nest.statement(statement)
    made = s.write.map.intersect_domain(nest.domains[statement]).range()
    above = made.intersect(_above(made, found.axes))
    copy = _copy(
        s, above, nest.context, found, fresh(f"{statement}_mirrored", {x.name for x in nest.statements})
    )
    halves = {x.name: _below(nest, x, above) for x in (s, found.first)}
    every = tuple(y for x in nest.statements for y in (halves.get(x.name, x), *((copy,) if x is s else ())))
    order = sequence(
        tuple(
            y
            for part in parts(nest.order)
            for y in (part, *((own_loops(copy),) if statement in statements(part) else ()))
        )
    )
    result = nest.rewritten(nest.tensors, every, order, frozenset(s.tensors))
    result.check()
    return Mirrored(result, statement, copy.name)


@proving("the question why_not_mirror")
def why_not_mirror(nest: Nest, statement: str) -> Refusal | None:
    """Return the reason why half of a sum's result cannot be copied from the other half.

    Args:
        nest: The nest.
        statement: The statement's name.

    Returns:
        The reason; None if the rewrite is legal.
    """
    found = _symmetry(nest, statement)
    return found if isinstance(found, Refusal) else None


def _symmetry(nest: Nest, statement: str) -> _Symmetry | Refusal:
    """The symmetry of a sum's result, or why there is none, or why it is of no use."""
    s, call = nest.statement(statement), f"mirror({statement!r})"
    y = s.write.tensor
    if not s.is_reduction or any(access.tensor == y for access in s.reads):
        return refused(call, f"{statement} is no sum of values that do not depend on it", "y += a * b")
    pairs = combinations(range(nest.tensor(y).rank), 2)
    found = ((pair, dims) for pair in pairs if (dims := _exchanged(nest, s, pair)) is not None)
    axes, dims = next(found, (None, None))
    if axes is None or dims is None:
        return refused(
            call, f"{y} is not symmetric: two of its axes cannot be exchanged", "y[i, j] += a[i, k] * a[j, k]"
        )
    others = [x for x in nest.writers(y) if x is not s]
    if len(others) != 1 or others[0].op != "=" or not isinstance(others[0].body, sympy.Number):
        return refused(call, f"the sums of {y} do not begin with one number", "y[i, j] = 0 before the sums")
    (first,) = others
    every, dates = parts(nest.order), nest.original_dates()
    at = next(p for p, part in enumerate(every) if statement in statements(part))
    zeros, sums = (relation_of([(x, x.write)]).intersect_params(nest.context) for x in (first, s))
    begun = zeros.apply_range(sums.reverse())
    if not (begun.is_subset(dates.lex_lt_union_map(dates)) and sums.range().is_subset(zeros.range())):
        return refused(call, f"{first.name} does not come before all sums", "y[i, j] = 0 before the sums")
    early = {name for part in every[: at + 1] for name in statements(part)} - {statement, first.name}
    seen = next((x for x in nest.statements if x.name in early and y in x.tensors), None)
    if seen is not None:
        return refused(call, f"{seen.name} accesses {y} before {statement} has ended", "nothing in between")
    inside = [nest.statement(name) for name in statements(every[at])]
    if any(x.write.tensor in {access.tensor for access in s.reads} for x in inside):
        return refused(
            call, f"what {statement} reads changes while it runs", "operands that stay as they are"
        )
    return _Symmetry(dims, axes, first)


# -- exchange of two dimensions ----------------------------------------------------------------------------------------


def _exchanged(nest: Nest, s: Statement, axes: tuple[int, int]) -> tuple[int, int] | None:
    """The dimensions along two axes of what a statement makes, if it does the same where these are exchanged."""
    domain, written = nest.domains[s.name], s.write.subscripts()
    d, e = (dimension_of(written.get_pw_aff(axis), domain) for axis in axes)
    if d is None or e is None or d == e:
        return None
    turn = _exchange(domain.get_space(), d, e)
    if not domain.apply(turn).is_equal(domain):
        return None
    if {s.dims[d], s.dims[e]} & {symbol.name for symbol in s.body.free_symbols}:
        return None
    tensor = _exchange(s.write.map.range().get_space(), *axes)
    if not _same(domain, turn.apply_range(s.write.map), s.write.map.apply_range(tensor)):
        return None
    partner: dict[sympy.Basic, sympy.Basic] = {}
    for position, access in enumerate(s.reads):
        turned = turn.apply_range(access.map)
        other = next(
            (
                k
                for k, one in enumerate(s.reads)
                if one.tensor == access.tensor and _same(domain, turned, one.map)
            ),
            None,
        )
        if other is None:
            return None
        partner[read(position)] = read(other)
    return (d, e) if _alike(s.body, s.body, partner) else None


def _alike(a: sympy.Basic, b: sympy.Basic, partner: dict[sympy.Basic, sympy.Basic]) -> bool:
    """True if a, its reads replaced by their partners, is b, but for the order of two summands or two factors."""
    if isinstance(a, Read) or not a.args:
        return bool(partner.get(a, a) == b)
    if type(a) is not type(b) or len(a.args) != len(b.args):
        return False
    if all(_alike(x, y, partner) for x, y in zip(a.args, b.args, strict=True)):
        return True
    if not isinstance(a, sympy.Add | sympy.Mul) or len(a.args) != 2:
        return False
    return all(_alike(x, y, partner) for x, y in zip(a.args, reversed(b.args), strict=True))


def _same(domain: isl.Set, one: isl.Map, other: isl.Map) -> bool:
    """True if two accesses are the same on a domain."""
    return bool(one.intersect_domain(domain).is_equal(other.intersect_domain(domain)))


def _exchange(space: isl.Space, d: int, e: int) -> isl.Map:
    """{ [.., x, .., y, ..] -> [.., y, .., x, ..] } of a set's space."""
    same = isl.Map.identity(space.map_from_set())
    for free in (d, e):
        same = same.drop_constraints_involving_dims(OUT, free, 1)
    return same.equate(IN, d, OUT, e).equate(IN, e, OUT, d)


# -- the two halves ----------------------------------------------------------------------------------------------------


def _above(elements: isl.Set, axes: tuple[int, int]) -> isl.Set:
    """The elements whose first axis is the smaller one."""
    first, second = (dimension(elements, axis) for axis in axes)
    return first.lt_set(second)


def _below(nest: Nest, s: Statement, above: isl.Set) -> Statement:
    """The statement without its instances that write elements of the half that is copied."""
    own = nest.domains[s.name]
    domain = own.subtract(s.write.map.intersect_range(above).domain()).coalesce().gist_params(nest.context)
    write, *reads = (Access(a.tensor, on_domain(a.map, domain)) for a in s.accesses)
    return replace(s, domain=domain, write=write, reads=tuple(reads))


def _copy(s: Statement, above: isl.Set, context: isl.Set, found: _Symmetry, name: str) -> Statement:
    """Return the statement that copies one half to the other: S_mirrored: y[i, j] = y[j, i]."""
    dims = [s.dims[d] for d in found.dims]
    domain = above.gist_params(context).set_tuple_name(name)
    for axis in range(above.dim(SET)):
        domain = domain.set_dim_name(
            SET, axis, dict(zip(found.axes, dims, strict=True)).get(axis, f"e{axis}")
        )
    own, space = s.write.tensor, above.get_space()
    here = isl.Map.identity(space.map_from_set()).set_tuple_name(IN, name)
    there = _exchange(space, *found.axes).set_tuple_name(IN, name)
    write, reads = (Access(own, on_domain(each, domain)) for each in (here, there))
    return Statement(name, domain, write, "=", (reads,), read(0))

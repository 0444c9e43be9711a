"""Coalesce two loops over neighbouring axes, and store what they walk along as one axis.

    for k: for h < 4: for w < 4: for c: S: y[k, h, w] += a[k, c] * x[c, h, w]      rows of four pixels
    ->  for k: for p < 16: for c: S: y[k, p] += a[k, c] * x[c, p]                  p = 4 h + w

Statements that access a coalesced temporary in other ways read or write it at 4 h + w. What a product reads from
elsewhere (an array of the caller, or x[c, 2 h, 2 w]) is copied into rows before it.

The theorem. With 0 <= w < W the number W h + w is a bijection of the pairs (h, w), of instances as well as of
elements, and it grows as the pairs do in their order. So two instances access the same element afterwards iff they did
before, and they run in the same order, where each coalesced statement has loops of its own, and the two are neighbours.
A copy holds what its reader reads if nothing is written to the tensor between them, which is so where the copy stands
right before loops that hold its reader alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import islpy as isl

from polyfuse.errors.proving import proving
from polyfuse.errors.refusals import Refusal
from polyfuse.ir import Access, Nest, Statement, Tensor
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.nest import own_loops
from polyfuse.ir.scalar import read
from polyfuse.ir.tree import Leaf, Loop, Tree, parts, parts_with, sequence
from polyfuse.rewrite.recorded import recorded
from polyfuse.rewrite.refusal import check_legal, refused
from polyfuse.sets import IN, OUT, SET, dimension, on_domain


@dataclass(frozen=True)
class Coalesced:
    """The result of `coalesce`.

    Attributes:
        nest: The new nest.
        statements: The statements whose two loops are one.
        stored: The temporaries whose two axes are one.
        borders: Other statements, which access these by both indices.
        copies: New statements, which copy what a product reads into rows.
    """

    nest: Nest
    statements: tuple[str, ...]
    stored: tuple[str, ...]
    borders: tuple[str, ...]
    copies: tuple[str, ...]

    def __str__(self) -> str:
        more = f"; copied by {', '.join(self.copies)}" if self.copies else ""
        return f"two loops of {', '.join(self.statements)} are one{more}"


@recorded("coalesce")
@proving("the rewrite coalesce")
def coalesce(nest: Nest, statement: str, dim: str) -> Coalesced:
    """Make one loop of two neighbouring loops of a sum of products, and of statements that share temporaries with it.

    S[k, h, w, c]: y[k, h, w] += a[k, c] * x[c, h, w]   ->   S[k, h, c]: y[k, h] += a[k, c] * x[c, h],  by dim "h"

    Args:
        nest: The nest.
        statement: The sum.
        dim: The outer one of its two dimensions; the other is the next one. The new one has its name.

    Returns:
        The new nest.

    Raises:
        IllegalRewrite: if `why_not_coalesce` returns a reason.
    """
    found = _grown(nest, statement, dim)
    check_legal(found if isinstance(found, Refusal) else None)
    assert isinstance(found, _Component), "a legal rewrite has a result"
    return found.rewritten()


@proving("the question why_not_coalesce")
def why_not_coalesce(nest: Nest, statement: str, dim: str) -> Refusal | None:
    """Return the reason why two loops of a sum cannot be one.

    Args:
        nest: The nest.
        statement: The sum.
        dim: The outer one of its two dimensions.

    Returns:
        The reason; None if the rewrite is legal.
    """
    found = _grown(nest, statement, dim)
    return found if isinstance(found, Refusal) else None


def _grown(nest: Nest, statement: str, dim: str) -> _Component | Refusal:
    s, call = nest.statement(statement), f"coalesce({statement!r}, {dim!r})"
    if dim not in s.dims[:-1]:
        return refused(call, f"{statement} has no two dimensions from {dim} on", f"one of {s.dims[:-1]}")
    excluded: set[str] = set()
    while True:
        found = _Component(nest, frozenset(excluded))
        at = s.dims.index(dim)
        if why := found.why_not(s, at):
            return refused(call, why, "a product of which both indices move along neighbouring axes alone")
        lost = found.grow(s, at)
        if lost is None:
            return found
        excluded.add(lost)


FREE = -1
"""In place of an axis: an access that moves with neither of two dimensions."""


@dataclass
class _Component:
    """Statements that are coalesced, by their outer dimension, and tensors, by their first axis; what they meet.

    `borders` are other statements that access these tensors.
    """

    nest: Nest
    excluded: frozenset[str]
    statements: dict[str, int] = field(default_factory=dict)
    stored: dict[str, int] = field(default_factory=dict)
    borders: list[str] = field(default_factory=list)

    def grow(self, first: Statement, at: int) -> str | None:
        """Add all that goes along with a statement; a tensor that cannot be stored as rows, if there is one."""
        todo = [first]
        self.statements[first.name] = at
        while todo:
            s = todo.pop()
            for access in s.accesses:
                axis = self._axis(s, self.statements[s.name], access)
                if axis is None or axis == FREE or access.tensor in self.stored:
                    continue
                self.stored[access.tensor] = axis
                for user in (*self.nest.writers(access.tensor), *self.nest.readers(access.tensor)):
                    if user.name in self.statements:
                        continue
                    own = self._dim_along(user, access.tensor, axis)
                    if own is not None and not self.why_not(user, own):
                        self.statements[user.name] = own
                        todo.append(user)
        return self._lost()

    def _lost(self) -> str | None:
        """A tensor that is not to be stored as rows.

        Those are tensors that sums in other loops add to or read; and those that are made in other loops, if no product
        reads them as rows: what ends a convolution's sums stays in its loops.
        """
        self.borders = [
            s.name
            for s in self.nest.statements
            if s.name not in self.statements and not self.stored.keys().isdisjoint(s.tensors)
        ]
        for name in self.statements:
            s = self.nest.statement(name)
            for access in s.accesses:
                axis = self._axis(s, self.statements[name], access)
                if access.tensor in self.stored and axis not in (FREE, self.stored[access.tensor]):
                    return access.tensor
        for name in self.borders:
            s = self.nest.statement(name)
            for access in s.accesses:
                if access.tensor in self.stored and (s.op != "=" or _affine(s, access) is None):
                    return access.tensor
            written = s.write.tensor
            if written in self.stored and not any(
                written in each.tensors and each.is_reduction and each.write.tensor != written
                for each in map(self.nest.statement, self.statements)
            ):
                return written
        return None

    def why_not(self, s: Statement, at: int) -> str:
        """Why two dimensions of a statement cannot be one; nothing if they can."""
        if at + 1 >= len(s.dims) or self._extents(s, at) is None:
            return f"the bounds of {s.dims[at]} of {s.name} and its next dimension are not numbers"
        if not _has_own_loops(self.nest, s):
            return f"{s.name} shares its loops"
        if {s.dims[at], s.dims[at + 1]} & {symbol.name for symbol in s.body.free_symbols}:
            return f"{s.name} computes with its indices"
        for position, access in enumerate(s.accesses):
            if self._axis(s, at, access) is None:
                summed = s.op == "+=" and position > 0 and access.tensor != s.write.tensor
                if not summed or _copyable(s, at, access) is None:
                    return f"{s.name} moves along {access.tensor} in another way"
        return ""

    def _extents(self, s: Statement, at: int) -> tuple[int, int] | None:
        """The numbers of values of two dimensions from 0 on, if these are the same for all others."""
        known = s.answers.get(("coalesce", at))
        if known is None:
            known = s.answers[("coalesce", at)] = (_box(self.nest.domains[s.name], at),)
        found: tuple[int, int] | None = known[0]
        return found

    def _axis(self, s: Statement, at: int, access: Access) -> int | None:
        """The first of two axes of a temporary along which two dimensions walk; None for other ways to move."""
        subs = _affine(s, access)
        if subs is None:
            return None
        moving = [a for a, value in enumerate(subs) if value.involves_dims(IN, at, 2)]
        if not moving:
            return FREE
        tensor = self.nest.tensor(access.tensor)
        a = moving[0]
        if (
            tensor.role != "temporary"
            or tensor.name in self.excluded
            or tensor.below
            or tensor.pairs
            or moving != [a, a + 1]
            or tensor.shape[a : a + 2] != self._extents(s, at)
            or not (_is_dim(subs[a], at) and _is_dim(subs[a + 1], at + 1))
        ):
            return None
        return a

    def _dim_along(self, s: Statement, tensor: str, axis: int) -> int | None:
        """The dimension of a statement that walks along an axis of a tensor."""
        for access in s.accesses:
            subs = _affine(s, access) if access.tensor == tensor else None
            for d in range(len(s.dims)):
                if subs is not None and _is_dim(subs[axis], d):
                    return d
        return None

    # -- the new nest --------------------------------------------------------------------------------------------------

    def rewritten(self) -> Coalesced:
        """The nest with this in rows."""
        nest = self.nest
        tensors = [self._rows(t) if t.name in self.stored else t for t in nest.tensors]
        every: list[Statement] = []
        loops: dict[str, Tree] = {}
        copies: list[str] = []
        for s in nest.statements:
            made = s
            if s.name in self.statements:
                found = list(self._copies(s, tensors, copies))
                for copy, tensor, reader in found:
                    tensors.append(tensor)
                    every.append(copy)
                    copies.append(copy.name)
                    made = reader
                made = self._coalesced(made, {tensor.name for _, tensor, _ in found})
                before = tuple(own_loops(copy) for copy, *_ in found)
                loops[s.name] = sequence((*before, own_loops(made)))
            elif s.name in self.borders:
                made = replace(s, write=self._at(s.write), reads=tuple(map(self._at, s.reads)))
            every.append(made)
        order = sequence(
            tuple(
                each
                for part in parts(nest.order)
                for each in (parts(loops[part.names[0]]) if part.names[0] in loops else (part,))
            )
        )
        old = {s.name: s for s in nest.statements}
        touched = {name for s in every if old.get(s.name) is not s for name in s.tensors}
        touched |= {name for s in self.statements for name in old[s].tensors}
        result = nest.rewritten(tuple(tensors), tuple(every), order, frozenset(touched))
        result.check(frozenset(touched))
        return Coalesced(
            result, tuple(self.statements), tuple(self.stored), tuple(self.borders), tuple(copies)
        )

    def _rows(self, tensor: Tensor) -> Tensor:
        a = self.stored[tensor.name]
        return replace(tensor, shape=_in_rows(tensor.shape, a))

    def _at(self, access: Access) -> Access:
        """An access of two indices h and w of a tensor in rows: at W h + w."""
        if access.tensor not in self.stored:
            return access
        a = self.stored[access.tensor]
        width = self.nest.tensor(access.tensor).shape[a + 1]
        assert isinstance(width, int), "an axis of numbers"
        every = isl.Set.universe(access.map.get_space().range())
        moved = _to_subscripts(access.tensor, _joined(every, a, width))
        return Access(access.tensor, on_domain(access.map.apply_range(moved), access.map.domain()))

    def _coalesced(self, s: Statement, copies: set[str]) -> Statement:
        """A statement with one dimension for two."""
        at = self.statements[s.name]
        names = [name for d, name in enumerate(s.dims) if d != at + 1]
        extents = self._extents(self.nest.statement(s.name), at)
        assert extents is not None, "a statement that can be coalesced"
        domain = s.domain.project_out(SET, at, 2).insert_dims(SET, at, 1).set_tuple_name(s.name)
        for d, name in enumerate(names):
            domain = domain.set_dim_name(SET, d, name)
        last = extents[0] * extents[1] - 1
        domain = domain.lower_bound_val(SET, at, isl.Val(0)).upper_bound_val(SET, at, isl.Val(last))

        def moved(access: Access) -> Access:
            subs = _affine(s, access)
            assert subs is not None, "an access that can be coalesced"
            moving = [a for a, value in enumerate(subs) if value.involves_dims(IN, at, 2)]
            if not moving:
                found = self._at(access).map.project_out(IN, at, 2).insert_dims(IN, at, 1)
            else:
                a = moving[0]
                assert access.tensor in self.stored or access.tensor in copies, "a tensor in rows"
                found = access.map.project_out(IN, at, 2).project_out(OUT, a, 2)
                found = found.insert_dims(IN, at, 1).insert_dims(OUT, a, 1).equate(IN, at, OUT, a)
            found = found.set_tuple_name(IN, s.name).set_tuple_name(OUT, access.tensor)
            for d, name in enumerate(names):
                found = found.set_dim_name(IN, d, name)
            return Access(access.tensor, found)  # not on its domain: an index that is 0 there stays an index

        write, *reads = map(moved, (s.write, *s.reads))
        return replace(s, domain=domain, write=write, reads=tuple(reads))

    def _copies(
        self, s: Statement, tensors: list[Tensor], copies: list[str]
    ) -> Iterator[tuple[Statement, Tensor, Statement]]:
        """Copies of what a product reads in other ways, each with its tensor and the product that reads it."""
        at, extents = self.statements[s.name], self._extents(s, self.statements[s.name])
        assert extents is not None, "a statement that can be coalesced"
        taken = {t.name for t in tensors} | {x.name for x in self.nest.statements} | set(copies)
        for position, access in enumerate(s.reads):
            if self._axis(s, at, access) is not None:
                continue
            a = _copyable(s, at, access)
            assert a is not None, "a read that can be copied"
            old = self.nest.tensor(access.tensor)
            rows = Tensor(
                fresh(f"{old.name}_rows", taken), _in_rows(old.shape, a, extents), old.dtype, "temporary"
            )
            name = fresh(f"rows_{old.name}", taken)
            taken |= {rows.name, name}
            # { S[k, h, w, c] -> name[c, h, w] }: the elements that it reads, by its two indices
            indexed = access.map.project_out(OUT, a, 2).insert_dims(OUT, a, 2)
            indexed = indexed.equate(IN, at, OUT, a).equate(IN, at + 1, OUT, a + 1)
            domain = indexed.intersect_domain(s.domain).range().coalesce().set_tuple_name(name)
            for d in range(old.rank):
                domain = domain.set_dim_name(SET, d, f"i{d}")
            made = Statement(
                name,
                domain,
                _access(domain, rows.name, _joined(domain, a, extents[1])),
                "=",
                (_access(domain, old.name, _same_steps(domain, a, at, access)),),
                read(0),
            )
            reads = list(s.reads)
            reads[position] = Access(rows.name, indexed.set_tuple_name(OUT, rows.name))
            s = replace(s, reads=tuple(reads))
            yield made, rows, s


def _in_rows(
    shape: tuple[int | str, ...], axis: int, extents: tuple[int, int] | None = None
) -> tuple[int | str, ...]:
    """A shape with two axes as one, which has as many elements as these extents, or as its own."""
    h, w = extents or shape[axis : axis + 2]
    assert isinstance(h, int), "an axis of numbers"
    assert isinstance(w, int), "an axis of numbers"
    return (*shape[:axis], h * w, *shape[axis + 2 :])


def _joined(domain: isl.Set, axis: int, width: int) -> list[isl.Aff]:
    """{ copy[c, h, w] }  ->  c, width * h + w, of the instances of a copy or the elements of a tensor."""
    space = isl.LocalSpace.from_space(domain.get_space())
    dims = [isl.Aff.var_on_domain(space, SET, d) for d in range(domain.dim(SET))]
    return [*dims[:axis], dims[axis].scale_val(isl.Val(width)).add(dims[axis + 1]), *dims[axis + 2 :]]


def _same_steps(domain: isl.Set, axis: int, at: int, access: Access) -> list[isl.Aff]:
    """{ copy[c, h, w] } and { S[k, h, w, c] -> x[c, 2 h, 2 w] }  ->  c, 2 h, 2 w."""
    space = isl.LocalSpace.from_space(domain.get_space())
    found = [isl.Aff.var_on_domain(space, SET, d) for d in range(domain.dim(SET))]
    subs = _subscripts(access)
    assert subs is not None, "a read that can be copied"
    for more in range(2):
        value = subs[axis + more]
        by = value.get_coefficient_val(IN, at + more)
        found[axis + more] = found[axis + more].scale_val(by).add_constant_val(value.get_constant_val())
    return found


def _access(domain: isl.Set, tensor: str, subscripts: list[isl.Aff]) -> Access:
    return Access(tensor, on_domain(_to_subscripts(tensor, subscripts), domain))


def _to_subscripts(tensor: str, subscripts: list[isl.Aff]) -> isl.Map:
    """c, 4 h + w  ->  { [c, h, w] -> tensor[c, 4 h + w] }."""
    found = isl.Map.from_aff(subscripts[0])
    for value in subscripts[1:]:
        found = found.flat_range_product(isl.Map.from_aff(value))
    return found.set_tuple_name(OUT, tensor)


def _affine(s: Statement, access: Access) -> tuple[isl.Aff, ...] | None:
    """The subscripts of an access of a statement, if each is one expression without quotients."""
    key = "affine", id(access)  # the statement keeps its accesses, and with them their identities
    if key not in s.answers:
        s.answers[key] = _subscripts(access)
    found: tuple[isl.Aff, ...] | None = s.answers[key]
    return found


def _subscripts(access: Access) -> tuple[isl.Aff, ...] | None:
    subscripts = access.subscripts()
    found: list[isl.Aff] = []
    for axis in range(access.map.dim(OUT)):
        pieces = subscripts.get_pw_aff(axis).get_pieces()
        if len(pieces) != 1 or pieces[0][1].dim(isl.dim_type.div):
            return None
        found.append(pieces[0][1])
    return tuple(found)


def _is_dim(value: isl.Aff, dim: int) -> bool:
    space = isl.LocalSpace.from_space(value.get_domain_space())
    return bool(
        dim < value.dim(IN)
        and value.involves_dims(IN, dim, 1)
        and value.plain_is_equal(isl.Aff.var_on_domain(space, SET, dim))
    )


def _copyable(s: Statement, at: int, access: Access) -> int | None:
    """The first of two axes along which a read moves with one dimension each and with numbers, and no other one."""
    subs = _affine(s, access)
    if subs is None:
        return None
    moving = [a for a, value in enumerate(subs) if value.involves_dims(IN, at, 2)]
    if len(moving) != 2 or moving[1] != moving[0] + 1:
        return None
    for more, axis in enumerate(moving):
        value = subs[axis]
        others = [d for d in range(len(s.dims)) if d != at + more and value.involves_dims(IN, d, 1)]
        own = value.get_coefficient_val(IN, at + more)
        integers = own.is_int() and value.get_constant_val().is_int()
        if (
            others
            or not integers
            or value.involves_dims(isl.dim_type.param, 0, value.dim(isl.dim_type.param))
        ):
            return None
    return moving[0]


def _box(domain: isl.Set, at: int) -> tuple[int, int] | None:
    bounds: list[int] = []
    for d in (at, at + 1):
        low, high = domain.dim_min_val(d), domain.dim_max_val(d)
        if not (low.is_zero() and high.is_int()):
            return None
        bounds.append(int(high.to_python()))
    whole = domain.project_out(SET, at, 2).insert_dims(SET, at, 2)
    for d, most in zip((at, at + 1), bounds, strict=True):
        whole = whole.lower_bound_val(SET, d, isl.Val(0)).upper_bound_val(SET, d, isl.Val(most))
    if not domain.is_equal(whole.set_tuple_id(domain.get_tuple_id())):
        return None
    return bounds[0] + 1, bounds[1] + 1


def _has_own_loops(nest: Nest, s: Statement) -> bool:
    """True if a statement stands in loops of its own that count its dimensions in their order."""
    tree: Tree = parts_with(nest.order, (s.name,))[0]
    if tree.names != (s.name,):
        return False
    for d in range(len(s.dims)):
        if not isinstance(tree, Loop) or not tree.date(s.name).is_equal(dimension(s.domain, d)):
            return False
        tree = tree.body
    return isinstance(tree, Leaf)

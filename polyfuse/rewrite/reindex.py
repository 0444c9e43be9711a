"""Number a loop's iterations by a subscript: what was counted from an outer loop's index gets its own place.

    for i: for e < N - i: for r: S: p[i, e] += x[r, i] * x[r, i + e]        S is no product of matrices: e moves no axis
                                                                            of x alone
    ->  for i: for j, i <= j < N: for r: S: p[i, j] += x[r, i] * x[r, j]    j = i + e

The temporaries that a renumbered loop fills are stored by the new number, and the other loops along their axis are
renumbered with it, so that what is computed from p[i, j] stays aligned with it.

The theorem. A change of coordinates is a bijection, of a statement's instances as well as of a tensor's elements: two
instances access the same element afterwards iff they did before. So the result computes what the nest did if every pair
of dependent instances runs in the order in which it did, which is checked (kept_order.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import islpy as isl

from polyfuse.errors.proving import proving
from polyfuse.errors.refusals import Refusal
from polyfuse.ir import Access, Nest, Statement, Tensor
from polyfuse.ir.nest import own_loops
from polyfuse.ir.sizes import extent_text
from polyfuse.ir.tree import Loop, Tree, children, with_children
from polyfuse.rewrite.kept_order import turned_round
from polyfuse.rewrite.recorded import recorded
from polyfuse.rewrite.refusal import check_legal, refused
from polyfuse.sets import IN, OUT, PARAM, SET, merged_pieces, on_domain, param_names, union_map


@dataclass(frozen=True)
class Reindexed:
    """The result of `reindex`.

    Attributes:
        nest: The new nest.
        dims: The dimension that was renumbered, by statement.
        stored: The temporaries that are stored by the new numbers.
    """

    nest: Nest
    dims: Mapping[str, str]
    stored: tuple[str, ...]

    def __str__(self) -> str:
        loops = ", ".join(f"{dim} of {name}" for name, dim in self.dims.items())
        tensors = f"; so are the elements of {', '.join(self.stored)}" if self.stored else ""
        return f"{loops} counted by a subscript{tensors}"


@dataclass(frozen=True)
class _Shift:
    """A coordinate of a space that gets a number, `more`, which does not depend on it, added to it."""

    position: int
    more: isl.Aff

    @property
    def to_new(self) -> isl.MultiAff:
        return self._moved(self.more)

    @property
    def to_old(self) -> isl.MultiAff:
        return self._moved(self.more.neg())

    def _moved(self, by: isl.Aff) -> isl.MultiAff:
        same = isl.MultiAff.identity(by.get_domain_space().map_from_set())
        return same.set_aff(self.position, same.get_aff(self.position).add(by))


@recorded("reindex")
@proving("the rewrite reindex")
def reindex(nest: Nest, statement: str, dim: str, value: str) -> Reindexed:
    """Number the iterations of a loop by an expression of its index and the indices around it.

    S[i, e]: p[i, e] += x[r, i] * x[r, i + e]   ->   S[i, e]: p[i, e] += x[r, i] * x[r, e],  by e: "i + e"

    Args:
        nest: The nest.
        statement: The statement whose dimension is renumbered.
        dim: The dimension's name.
        value: The new number, such as "i + e".

    Returns:
        The new nest.

    Raises:
        IllegalRewrite: if `why_not_reindex` returns a reason.
    """
    found = _reindexed(nest, statement, dim, value)
    check_legal(found if isinstance(found, Refusal) else None)
    assert isinstance(found, Reindexed), "a legal rewrite has a result"
    return found


@proving("the question why_not_reindex")
def why_not_reindex(nest: Nest, statement: str, dim: str, value: str) -> Refusal | None:
    """Return the reason why a loop's iterations cannot be numbered by an expression.

    Args:
        nest: The nest.
        statement: The statement's name.
        dim: The dimension's name.
        value: The new number.

    Returns:
        The reason; None if the rewrite is legal.
    """
    found = _reindexed(nest, statement, dim, value)
    return found if isinstance(found, Refusal) else None


def renumbered_alone(nest: Nest, statement: str, dim: str, value: str) -> Nest | None:
    """The renumbered statement in a nest of its own, to look at before anything is proven of the whole.

    None if the number has no such form.
    """
    s, shift = nest.statement(statement), _asked(nest, statement, dim, value)
    if isinstance(shift, Refusal):
        return None
    moves: dict[str, tuple[_Shift, Tensor]] = {}
    for access in s.accesses:
        tensor = nest.tensor(access.tensor)
        move = _move(s, access, shift) if tensor.role == "temporary" else None
        if move is not None:
            moves[tensor.name] = move, tensor
    made = _statement(s, shift, moves)
    return replace(nest, statements=(made,), order=own_loops(made))


def _reindexed(nest: Nest, statement: str, dim: str, value: str) -> Reindexed | Refusal:
    shift = _asked(nest, statement, dim, value)
    if isinstance(shift, Refusal):
        return shift
    shifts, moves = _carried(nest, nest.statement(statement), shift)
    best = _rewritten(nest, shifts, moves, new_dates=True)
    origins = _origins(nest, shifts)
    if turned_round(nest, best, origins) is not None:
        best = _rewritten(nest, shifts, moves, new_dates=False)
    assert turned_round(nest, best, origins) is None, "every instance runs at its old date"
    best.check()
    dims = {name: nest.statement(name).dims[each.position] for name, each in shifts.items()}
    return Reindexed(best, dims, tuple(moves))


def _asked(nest: Nest, statement: str, dim: str, value: str) -> _Shift | Refusal:
    s, call = nest.statement(statement), f"reindex({statement!r}, {dim!r}, {value!r})"
    if dim not in s.dims:
        return refused(call, f"{statement} has no dimension {dim}", f"one of {', '.join(s.dims)}")
    sizes = ", ".join(param_names(s.domain))
    try:
        number = isl.Aff(f"[{sizes}] -> {{ {statement}[{', '.join(s.dims)}] -> [{value}] }}")
    except isl.Error:
        why = f"{value!r} is not an affine expression of {', '.join(s.dims)}"
        return refused(call, why, f"{dim} + i, for an i that is another index")
    shift = _shift(s, s.dims.index(dim), number)
    if shift is None:
        return refused(
            call, f"{value} is not {dim} plus a number", f"{dim} + i, for an i that is another index"
        )
    if _is_value(s, shift):
        return refused(call, f"{statement} computes with {dim} as a number", "an index in subscripts alone")
    return shift


# -- what is renumbered ------------------------------------------------------------------------------------------------


def _carried(
    nest: Nest, first: Statement, shift: _Shift
) -> tuple[dict[str, _Shift], dict[str, tuple[_Shift, Tensor]]]:
    """The shifts of statements and of temporaries, with their new shapes, that follow from the first."""
    shifts, moves, todo = {first.name: shift}, dict[str, tuple[_Shift, Tensor]](), [first]
    while todo:
        s = todo.pop()
        for access in s.accesses:
            tensor = nest.tensor(access.tensor)
            if tensor.role != "temporary" or tensor.name in moves:
                continue
            move = _move(s, access, shifts[s.name])
            stored = None if move is None else _stored(nest, tensor, move)
            if move is None or stored is None:
                continue
            moves[tensor.name] = move, stored
            for user in nest.statements:
                if user.name not in shifts and (follows := _follows(user, tensor.name, move)) is not None:
                    shifts[user.name] = follows
                    todo.append(user)
    return {s.name: shifts[s.name] for s in nest.statements if s.name in shifts}, moves


def _shift(s: Statement, position: int, number: isl.Aff) -> _Shift | None:
    """The shift that makes a number of a dimension; None if the number is not the dimension plus something else."""
    more = number.sub(isl.Aff.var_on_domain(isl.LocalSpace.from_space(s.domain.get_space()), SET, position))
    integers = all(v.is_int() for v in (more.get_denominator_val().inv(), more.get_constant_val()))
    if not integers or more.involves_dims(IN, position, 1) or more.dim(isl.dim_type.div):
        return None
    return _Shift(position, more)


def _is_value(s: Statement, shift: _Shift) -> bool:
    return s.dims[shift.position] in {symbol.name for symbol in s.body.free_symbols}


def _move(s: Statement, access: Access, shift: _Shift) -> _Shift | None:
    """The shift of a tensor's axis that keeps it along a dimension that is shifted; None if the axes do not tell by how
    much.

    p[i, e], and e by i + 1 more   ->   axis 1 by axis 0, and 1, more
    """
    subscripts = [_subscript(access, axis) for axis in range(access.map.dim(OUT))]
    along = [
        axis
        for axis, value in enumerate(subscripts)
        if value is not None and _coefficient(value, shift.position) == 1
    ]
    if len(along) != 1:
        return None
    space = isl.LocalSpace.from_space(access.map.range().get_space().align_params(s.domain.get_space()))
    more = isl.Aff.zero_on_domain(space).add_constant_val(shift.more.get_constant_val())
    for p in range(shift.more.dim(PARAM)):
        more = more.set_coefficient_val(PARAM, p, shift.more.get_coefficient_val(PARAM, p))
    for d in range(len(s.dims)):
        by = shift.more.get_coefficient_val(IN, d)
        if by.is_zero():
            continue
        index = isl.Aff.var_on_domain(isl.LocalSpace.from_space(s.domain.get_space()), SET, d)
        axis = next((a for a, v in enumerate(subscripts) if v is not None and v.plain_is_equal(index)), None)
        if axis is None:
            return None
        more = more.add_coefficient_val(IN, axis, by)
    return _Shift(along[0], more)


def _stored(nest: Nest, tensor: Tensor, move: _Shift) -> Tensor | None:
    """The tensor with room for the elements at their new places; None if these have no affine extent."""
    lam = isl.Map.from_multi_aff(move.to_new)
    users = [(s, a) for s in nest.statements for a in s.accesses if a.tensor == tensor.name]
    used = [a.map.intersect_domain(nest.domains[s.name]).range().apply(lam) for s, a in users]
    places = used[0]
    for other in used[1:]:
        places = places.union(other)
    places = places.coalesce()
    low, high = places.dim_min(move.position), places.dim_max(move.position)
    zero = isl.PwAff.val_on_domain(isl.Set.universe(low.get_domain_space()), isl.Val(0))
    extent = extent_text(high.add_constant_val(isl.Val(1)).gist(nest.context))
    if extent is None or not low.lt_set(zero).is_empty():
        return None
    shape = (*tensor.shape[: move.position], extent, *tensor.shape[move.position + 1 :])
    return replace(tensor, shape=shape)


def _follows(user: Statement, tensor: str, move: _Shift) -> _Shift | None:
    """The shift of a user's dimension along an axis that is moved; None if there is no such dimension."""
    for access in (a for a in user.accesses if a.tensor == tensor):
        old = _subscript(access, move.position)
        if old is None:
            continue
        moved = Access(tensor, access.map.apply_range(isl.Map.from_multi_aff(move.to_new)))
        new = _subscript(moved, move.position)
        dims = [d for d in reversed(range(len(user.dims))) if _coefficient(old, d) == 1]
        for d in dims:
            found = None if new is None else _shift(user, d, new)
            if found is not None and not _is_value(user, found):
                return found
    return None


def _subscript(access: Access, axis: int) -> isl.Aff | None:
    """A subscript as a function of the dimensions; None if it has several pieces."""
    pieces = merged_pieces(access.subscripts().get_pw_aff(axis)).get_pieces()
    return pieces[0][1] if len(pieces) == 1 else None


def _coefficient(value: isl.Aff, dim: int) -> int:
    found = value.get_coefficient_val(IN, dim)
    return int(found.to_python()) if found.is_int() else 0


# -- the nest in other numbers -----------------------------------------------------------------------------------------


def _rewritten(
    nest: Nest, shifts: Mapping[str, _Shift], moves: Mapping[str, tuple[_Shift, Tensor]], new_dates: bool
) -> Nest:
    """The nest in its new numbers; with `new_dates` loops that count a renumbered dimension count the new number."""
    tensors = tuple(moves[t.name][1] if t.name in moves else t for t in nest.tensors)
    every = tuple(_statement(s, shifts.get(s.name), moves) for s in nest.statements)
    touched = {
        name for s, new in zip(nest.statements, every, strict=True) if s is not new for name in s.tensors
    }
    order = _order(nest.order, nest, shifts, new_dates)
    return nest.rewritten(tensors, every, order, frozenset(touched))


def _statement(s: Statement, shift: _Shift | None, moves: Mapping[str, tuple[_Shift, Tensor]]) -> Statement:
    if shift is None and moves.keys().isdisjoint(s.tensors):
        return s
    domain = s.domain
    if shift is not None:
        domain = domain.apply(isl.Map.from_multi_aff(shift.to_new)).coalesce()
        for d, name in enumerate(s.dims):
            domain = domain.set_dim_name(SET, d, name)

    def moved(access: Access) -> Access:
        found = access.map
        if access.tensor in moves:
            found = found.apply_range(isl.Map.from_multi_aff(moves[access.tensor][0].to_new))
        if shift is not None:
            found = found.apply_domain(isl.Map.from_multi_aff(shift.to_new))
        return Access(access.tensor, on_domain(found, domain))

    write, *reads = map(moved, s.accesses)
    return replace(s, domain=domain, write=write, reads=tuple(reads))


def _order(tree: Tree, nest: Nest, shifts: Mapping[str, _Shift], new_dates: bool) -> Tree:
    """The order as it was, for instances under their new names."""
    tree = with_children(tree, tuple(_order(child, nest, shifts, new_dates) for child in children(tree)))
    if not isinstance(tree, Loop) or shifts.keys().isdisjoint(tree.names):
        return tree
    counted = new_dates and all(
        name in shifts and _counts(tree, nest, name, shifts[name]) for name in tree.names
    )

    def date(name: str, old: isl.PwAff) -> isl.PwAff:
        return old if counted or name not in shifts else old.pullback_multi_aff(shifts[name].to_old)

    return replace(tree, dates=tuple((name, date(name, old)) for name, old in tree.dates))


def _counts(loop: Loop, nest: Nest, name: str, shift: _Shift) -> bool:
    """True if a loop's date is the dimension that is shifted."""
    space = isl.LocalSpace.from_space(nest.statement(name).domain.get_space())
    return bool(
        loop.date(name).is_equal(isl.PwAff.from_aff(isl.Aff.var_on_domain(space, SET, shift.position)))
    )


def _origins(nest: Nest, shifts: Mapping[str, _Shift]) -> isl.UnionMap:
    """{ new instance -> the instance of the nest that it is }."""

    def origin(name: str, domain: isl.Set) -> isl.Map:
        if name not in shifts:
            return isl.Map.identity(domain.get_space().map_from_set()).intersect_domain(domain)
        return isl.Map.from_multi_aff(shifts[name].to_old).intersect_range(domain)

    return union_map(origin(name, domain) for name, domain in nest.domains.items())

"""Widening: convert halves to float32 once for all products. Narrowing: round float32 factors once.

    for i, j, k: y[i, j] += x[i, k] * w[k, j]      x: float16[M, K]
    ->  for e: x_wide[e] = x[e]                    x_wide: float32[M, K]
        for i, j, k: y[i, j] += x_wide[i, k] * w[k, j]

An element of a half is a float32 number exactly, so the values are the same, bit for bit. A product reads each element
many times: one conversion is cheaper than as many, and what multiplies are registers of float32 numbers. The copy is a
statement like any other: the strategy puts it into the kernel that computes x, and one of constants runs once.

Narrowing is the same the other way round, and changes values: factors are off by at most a unit of rounding of the
format (ir/precision.py). It is for tensor cores, where a caller allows that. What is rounded to tf32 is stored as
float32; and the copy may have its axes in another order, so that what multiplies finds neighbours where it needs them:

    ->  for e: w_narrow[e1, e0] = tf32(w[e0, e1])
        for i, j, k: y[i, j] += x_narrow[i, k] * w_narrow[j, k]
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import islpy as isl
import sympy

from polyfuse.analysis.copies import holds_rounded
from polyfuse.errors.proving import proving
from polyfuse.errors.refusals import Refusal
from polyfuse.ir import Access, Nest, Statement, Tensor
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.nest import own_loops
from polyfuse.ir.number_types import HALVES, DType, computed_in
from polyfuse.ir.precision import PRECISIONS, STORED, Math
from polyfuse.ir.scalar import Tf32
from polyfuse.ir.tree import parts, sequence, statements
from polyfuse.rewrite.recorded import recorded
from polyfuse.rewrite.reductions.private_accumulator import copied
from polyfuse.rewrite.refusal import check_legal, refused
from polyfuse.sets import IN, OUT


@dataclass(frozen=True)
class Widened:
    """The result of `widen`.

    Attributes:
        nest: The new nest.
        tensor: The tensor of halves.
        copy: Its float32 copy.
        users: The products that read the copy.
    """

    nest: Nest
    tensor: str
    copy: str
    users: tuple[str, ...]

    def __str__(self) -> str:
        return f"{', '.join(self.users)} reads {self.tensor} through {self.copy}, in float32"


@recorded("widen")
@proving("the rewrite widen")
def widen(nest: Nest, tensor: str) -> Widened:
    """Convert a tensor of halves to float32 once, for all products that read it.

    mac: y[e] += x[…] * w[…]   ->   wide_x: x_wide[e] = x[e];   mac: y[e] += x_wide[…] * w[…]

    Args:
        nest: The nest.
        tensor: The tensor's name.

    Returns:
        The new nest.

    Raises:
        IllegalRewrite: if `why_not_widen` returns a reason.
    """
    check_legal(why_not_widen(nest, tensor))
    known = nest.tensor(tensor)
    made, copy = _through_copy(nest, tensor, computed_in(known.dtype), "wide", tuple(range(known.rank)))
    return Widened(made, tensor, copy, tuple(s.name for s in users_of(nest, tensor)))


@dataclass(frozen=True)
class Narrowed:
    """The result of `narrow`.

    Attributes:
        nest: The new nest.
        tensor: The tensor.
        copy: Its rounded copy.
        math: The copy's format.
        axes: The tensor's axes in the copy's order.
        users: The products that read the copy.
    """

    nest: Nest
    tensor: str
    copy: str
    math: Math
    axes: tuple[int, ...]
    users: tuple[str, ...]

    def __str__(self) -> str:
        to = STORED[self.math] if STORED[self.math] in HALVES else self.math
        turned = "" if list(self.axes) == sorted(self.axes) else f", with axes {self.axes} of it as its own"
        return f"{', '.join(self.users)} reads {self.tensor} through {self.copy}, rounded to {to}{turned}"


@recorded("narrow")
@proving("the rewrite narrow")
def narrow(nest: Nest, tensor: str, math: Math, axes: tuple[int, ...] | None = None) -> Narrowed:
    """Round a tensor to a format once, for all products that read it.

    mac: y[e] += x[…] * w[…]   ->   narrow_x: x_narrow[e] = x[e];   mac: y[e] += x_narrow[…] * w[…]

    Args:
        nest: The nest.
        tensor: The tensor's name.
        math: The format.
        axes: The tensor's axes in the copy's order; all in their order by default.

    Returns:
        The new nest.

    Raises:
        IllegalRewrite: if `why_not_narrow` returns a reason.
    """
    check_legal(why_not_narrow(nest, tensor, math, axes))
    order = axes or tuple(range(nest.tensor(tensor).rank))
    made, copy = _through_copy(nest, tensor, STORED[math], "narrow", order, math == "tf32")
    return Narrowed(made, tensor, copy, math, order, tuple(s.name for s in users_of(nest, tensor)))


def _through_copy(
    nest: Nest, tensor: str, dtype: DType, called: str, axes: tuple[int, ...], short: bool = False
) -> tuple[Nest, str]:
    """The nest whose products read a copy of a tensor, and the copy's name.

    It has another element type, and some order of axes; numbers are cut to tf32 for it where they are to be `short`.
    """
    known, users = nest.tensor(tensor), users_of(nest, tensor)
    name = fresh(f"{tensor}_{called}", {t.name for t in nest.tensors})
    other = Tensor(name, tuple(known.shape[axis] for axis in axes), dtype, "temporary")
    elements = isl.Set.empty(isl.Space.set_alloc(nest.context.get_ctx(), 0, known.rank))
    for user, access in ((s, a) for s in users for a in s.reads if a.tensor == tensor):
        read = access.map.intersect_domain(nest.domains[user.name]).range()
        elements = elements.union(read.reset_tuple_id())
    copy = copied(
        elements.coalesce(), fresh(f"{called}_{tensor}", {s.name for s in nest.statements}), name, tensor
    )
    copy = replace(copy, write=reordered(copy.write, axes), body=Tf32(copy.body) if short else copy.body)
    changed = {s.name: _redirected(s, tensor, name, axes) for s in users}
    run = parts(nest.order)
    here = _reading(nest, users)[0]
    order = sequence((*run[:here], own_loops(copy), *run[here:]))
    every = (*(changed.get(s.name, s) for s in nest.statements), copy)
    position = nest.tensors.index(known) + 1
    tensors = (*nest.tensors[:position], other, *nest.tensors[position:])
    return nest.rewritten(tensors, every, order, frozenset((tensor, name))), name


def reordered(access: Access, axes: tuple[int, ...]) -> Access:
    """The access to a tensor of the same name whose axes are those that `axes` names: x[i, j] -> x[j, i] by (1, 0)."""
    elements = access.subscripts()
    made = elements
    for to, axis in enumerate(axes):
        made = made.set_pw_aff(to, elements.get_pw_aff(axis))
    whole = isl.Map.from_pw_multi_aff(made).intersect_domain(access.map.domain())
    return Access(access.tensor, whole.set_tuple_name(OUT, access.tensor))


@proving("the question why_not_widen")
def why_not_widen(nest: Nest, tensor: str) -> Refusal | None:
    """Return the reason why products cannot read a float32 copy of a tensor.

    Args:
        nest: The nest.
        tensor: The tensor's name.

    Returns:
        The reason; None if the rewrite is legal.
    """
    call, known = f"widen({tensor!r})", nest.tensor(tensor)
    if not known.is_half:
        return refused(call, f"{tensor} is {known.dtype}, which needs no conversion", "float16 or bfloat16")
    return _why_no_copy(nest, tensor, call)


@proving("the question why_not_narrow")
def why_not_narrow(
    nest: Nest, tensor: str, math: Math, axes: tuple[int, ...] | None = None
) -> Refusal | None:
    """Return the reason why products cannot read a rounded copy of a tensor.

    Args:
        nest: The nest.
        tensor: The tensor's name.
        math: The format.
        axes: As for `narrow`.

    Returns:
        The reason; None if the rewrite is legal.
    """
    known = nest.tensor(tensor)
    call = f"narrow({tensor!r}, {math!r}{'' if axes is None else f', {axes}'})"
    if math not in PRECISIONS or known.dtype != "float32":
        return refused(
            call, f"{tensor} is {known.dtype}", f"a tensor of float32, and one of {', '.join(PRECISIONS)}"
        )
    if axes is not None and sorted(axes) != list(range(known.rank)):
        return refused(call, f"{tensor} has {known.rank} axes", "each of these axes once")
    if holds_rounded(nest, tensor, math):
        return refused(call, f"{tensor} is rounded to {math} already", "an unrounded tensor")
    return _why_no_copy(nest, tensor, call)


def _why_no_copy(nest: Nest, tensor: str, call: str) -> Refusal | None:
    """Return the reason why products cannot read a tensor through a copy; None if they can."""
    users = users_of(nest, tensor)
    if not users:
        return refused(
            call, f"no product reads each element of {tensor} several times", "a product of matrices"
        )
    first, last = _reading(nest, users)
    for position, part in enumerate(parts(nest.order)[first : last + 1], first):
        writer = next((n for n in statements(part) if nest.statement(n).write.tensor == tensor), None)
        if writer is not None:
            return refused(
                call,
                f"{writer} writes {tensor} in part {position} of the program, where products read it from part "
                f"{first} to part {last}",
                "writers that have ended before the first product begins",
            )
    return None


def users_of(nest: Nest, tensor: str) -> tuple[Statement, ...]:
    """The sums of products of matrices that read a tensor: each factor goes without a dimension of the loops."""
    return tuple(s for s in nest.statements if any(a.tensor == tensor for a in s.reads) and _is_product(s))


def _is_product(s: Statement) -> bool:
    if s.op != "+=" or not isinstance(s.body, sympy.Mul) or len(s.reads) < 2:
        return False
    return all(any(not access.map.involves_dims(IN, d, 1) for d in range(len(s.dims))) for access in s.reads)


def _reading(nest: Nest, users: tuple[Statement, ...]) -> tuple[int, int]:
    """The first and the last part of the program that holds one of the statements."""
    names = {s.name for s in users}
    found = [p for p, part in enumerate(parts(nest.order)) if names & set(statements(part))]
    return found[0], found[-1]


def _redirected(s: Statement, tensor: str, copy: str, axes: tuple[int, ...]) -> Statement:
    reads = (_of_copy(a, copy, axes) if a.tensor == tensor else a for a in s.reads)
    return replace(s, reads=tuple(reads))


def _of_copy(access: Access, copy: str, axes: tuple[int, ...]) -> Access:
    return reordered(Access(copy, access.map.set_tuple_name(OUT, copy)), axes)

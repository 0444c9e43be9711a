"""Widening: products read halves through a float32 copy. Narrowing: they read float32 numbers rounded to halves.

    for i, j, k: y[i, j] += x[i, k] * w[k, j]      x: float16[M, K]
    ->  for e: x_wide[e] = x[e]                    x_wide: float32[M, K]
        for i, j, k: y[i, j] += x_wide[i, k] * w[k, j]

An element of a half is a float32 number exactly, so the values are the same, bit for bit. A product reads each element
many times: one conversion is cheaper than as many, and what multiplies are registers of float32 numbers. The copy is a
statement like any other: the strategy puts it into the kernel that computes x, and one of constants runs once.

Narrowing is the same the other way round, and changes values: factors are off by at most a unit of rounding of the half
(ir/precision.py). It is for tensor cores, where a caller allows that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import islpy as isl
import sympy

from polyfuse.errors import IllegalRewrite
from polyfuse.ir import Access, Nest, Statement, Tensor
from polyfuse.ir.names import fresh
from polyfuse.ir.nest import own_loops
from polyfuse.ir.tensor import HALVES, DType, computed_in
from polyfuse.ir.tree import parts, sequence, statements
from polyfuse.rewrite.accumulate import copied
from polyfuse.rewrite.refusal import Refusal, refused
from polyfuse.sets import IN, OUT


@dataclass(frozen=True)
class Widened:
    """A nest in which some products read a float32 copy of a half."""

    nest: Nest
    tensor: str
    copy: str
    users: tuple[str, ...]

    def __str__(self) -> str:
        return f"{', '.join(self.users)} reads {self.tensor} through {self.copy}, in float32"


def widen(nest: Nest, tensor: str) -> Widened:
    """mac: y[e] += x[…] * w[…]   ->   wide_x: x_wide[e] = x[e];   mac: y[e] += x_wide[…] * w[…]

    All products that read the tensor do so through one copy. Raises IllegalRewrite where `why_not_widen` says why.
    """
    refusal = why_not_widen(nest, tensor)
    if refusal is not None:
        raise IllegalRewrite(refusal)
    made, copy = _through_copy(nest, tensor, computed_in(nest.tensor(tensor).dtype), "wide")
    return Widened(made, tensor, copy, tuple(s.name for s in users_of(nest, tensor)))


@dataclass(frozen=True)
class Narrowed:
    """A nest in which some products read a tensor rounded to a half."""

    nest: Nest
    tensor: str
    copy: str
    half: DType
    users: tuple[str, ...]

    def __str__(self) -> str:
        return f"{', '.join(self.users)} reads {self.tensor} through {self.copy}, rounded to {self.half}"


def narrow(nest: Nest, tensor: str, half: DType) -> Narrowed:
    """mac: y[e] += x[…] * w[…]   ->   narrow_x: x_narrow[e] = x[e];   mac: y[e] += x_narrow[…] * w[…]

    Raises IllegalRewrite where `why_not_narrow` says why.
    """
    refusal = why_not_narrow(nest, tensor, half)
    if refusal is not None:
        raise IllegalRewrite(refusal)
    made, copy = _through_copy(nest, tensor, half, "narrow")
    return Narrowed(made, tensor, copy, half, tuple(s.name for s in users_of(nest, tensor)))


def _through_copy(nest: Nest, tensor: str, dtype: DType, called: str) -> tuple[Nest, str]:
    """The nest whose products read a copy of a tensor with another element type, and the copy's name."""
    known, users = nest.tensor(tensor), users_of(nest, tensor)
    name = fresh(f"{tensor}_{called}", {t.name for t in nest.tensors})
    other = Tensor(name, known.shape, dtype, "temporary")
    elements = isl.Set.empty(isl.Space.set_alloc(nest.context.get_ctx(), 0, known.rank))
    for user, access in ((s, a) for s in users for a in s.reads if a.tensor == tensor):
        read = access.map.intersect_domain(nest.domains[user.name]).range()
        elements = elements.union(read.reset_tuple_id())
    copy = copied(
        elements.coalesce(), fresh(f"{called}_{tensor}", {s.name for s in nest.statements}), name, tensor
    )
    changed = {s.name: _redirected(s, tensor, name) for s in users}
    run = parts(nest.order)
    here = _reading(nest, users)[0]
    order = sequence((*run[:here], own_loops(copy), *run[here:]))
    every = (*(changed.get(s.name, s) for s in nest.statements), copy)
    position = nest.tensors.index(known) + 1
    tensors = (*nest.tensors[:position], other, *nest.tensors[position:])
    return nest.rewritten(tensors, every, order, frozenset((tensor, name))), name


def why_not_widen(nest: Nest, tensor: str) -> Refusal | None:
    """Why products cannot read a copy of a tensor; None if they can."""
    call, known = f"widen({tensor!r})", nest.tensor(tensor)
    if not known.is_half:
        return refused(
            call, f"{tensor} is {known.dtype}, which is computed in as it is", "float16 or bfloat16"
        )
    return _why_no_copy(nest, tensor, call)


def why_not_narrow(nest: Nest, tensor: str, half: DType) -> Refusal | None:
    """Why products cannot read a tensor rounded to a half; None if they can."""
    call, known = f"narrow({tensor!r}, {half!r})", nest.tensor(tensor)
    if half not in HALVES or known.dtype != "float32":
        return refused(call, f"{tensor} is {known.dtype}", "a tensor of float32, and a half to round it to")
    return _why_no_copy(nest, tensor, call)


def _why_no_copy(nest: Nest, tensor: str, call: str) -> Refusal | None:
    """Why products cannot read a tensor through a copy; None if they can."""
    users = users_of(nest, tensor)
    if not users:
        return refused(call, f"no product reads the elements of {tensor} often", "a product of matrices")
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


def _redirected(s: Statement, tensor: str, wide: str) -> Statement:
    reads = (Access(wide, a.map.set_tuple_name(OUT, wide)) if a.tensor == tensor else a for a in s.reads)
    return replace(s, reads=tuple(reads))

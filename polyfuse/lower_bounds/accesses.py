"""The linear parts of accesses, and which of them a bound can be built on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import islpy as isl
import sympy

from polyfuse.ir.access import Access
from polyfuse.ir.scalar import Read, Select, own_operations
from polyfuse.ir.statement import Statement
from polyfuse.lower_bounds.subspaces import Subspace, orthogonal, span
from polyfuse.sets import IN, OUT, merged_pieces


@dataclass(frozen=True)
class Projection:
    """An access as a projection of instances: those that touch the same element differ by a vector of `kernel`."""

    tensor: str
    kernel: Subspace
    text: str


def linear_part(access: Access, dim: int) -> Subspace | None:
    """Return the rows of an access's linear part; None if it is not affine on all of its domain.

    >>> from polyfuse.ir import Access
    >>> rows = linear_part(Access("X", isl.Map("{ S[i, j] -> X[i + j + 3] }")), 2)
    >>> [list(map(int, row)) for row in rows]
    [[1, 1]]
    """
    parts, rows = access.subscripts(), []
    for d in range(parts.dim(OUT)):
        value = merged_pieces(parts.get_pw_aff(d))
        pieces = value.get_pieces()
        if len(pieces) != 1:
            return None
        aff = pieces[0][1]
        if any(
            not aff.get_coefficient_val(isl.dim_type.div, k).is_zero()
            for k in range(aff.dim(isl.dim_type.div))
        ):
            return None
        rows.append([Fraction(str(aff.get_coefficient_val(IN, i))) for i in range(dim)])
    return span(rows) if rows else ()


def projection(access: Access, dim: int) -> Projection | None:
    """Return an access as a projection; None if it is not affine."""
    rows = linear_part(access, dim)
    return None if rows is None else Projection(access.tensor, orthogonal(rows, dim), str(access))


def needed(statement: Statement) -> tuple[Access, ...]:
    """Return the reads whose value each instance needs: those outside of the branches of a `where`.

    y[i] = where(c[i] > 0, a[i], b[i])     c[i]
    """
    return tuple(statement.reads[position] for position in dict.fromkeys(_positions(statement.body)))


def _positions(body: sympy.Basic) -> Iterator[int]:
    if isinstance(body, Read):
        yield body.position
    for part in body.args[:1] if isinstance(body, Select) else body.args:
        yield from _positions(part)


def least_operations(statement: Statement) -> int:
    """Return the operations of an instance outside of the branches of a `where`."""
    return 0 if may_skip(statement) else _outside(statement.body) + statement.is_reduction


def _outside(body: sympy.Basic) -> int:
    parts = body.args[:1] if isinstance(body, Select) else body.args
    return own_operations(body) + sum(map(_outside, parts))


def may_skip(statement: Statement) -> bool:
    """True if data decide whether an instance changes anything: h[b] += where(idx[i] == b, w[i], 0).

    Code generation may run the other instances alone, so that no bound counts any of them.
    """
    if not isinstance(statement.body, Select):
        return False
    own = (statement.reads[b.position] for b in statement.body.args[1:] if isinstance(b, Read))
    return statement.is_reduction or any(_same(statement, read) for read in own)


def updates(statement: Statement) -> bool:
    """True if each instance replaces a value that it needs in the same place: a reduction, or A[i] = f(A[i])."""
    return statement.is_reduction or any(_same(statement, read) for read in needed(statement))


def _same(statement: Statement, read: Access) -> bool:
    """True if an access reads what the statement writes."""
    write = statement.write
    return read.tensor == write.tensor and bool(
        write.map.intersect_domain(statement.domain).is_subset(read.map)
    )

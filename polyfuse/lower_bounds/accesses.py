"""The linear parts of accesses, and which of them a bound can be built on."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import islpy as isl

from polyfuse.ir.access import Access
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
        if any(not aff.get_coefficient_val(isl.dim_type.div, k).is_zero() for k in range(aff.dim(isl.dim_type.div))):
            return None
        rows.append([Fraction(str(aff.get_coefficient_val(IN, i))) for i in range(dim)])
    return span(rows) if rows else ()


def projection(access: Access, dim: int) -> Projection | None:
    """Return an access as a projection; None if it is not affine."""
    rows = linear_part(access, dim)
    return None if rows is None else Projection(access.tensor, orthogonal(rows, dim), str(access))


def updates(statement: Statement) -> bool:
    """True if each instance replaces a value that it reads in the same place: a reduction, or A[i] = f(A[i])."""
    write = statement.write
    same = (read for read in statement.reads if read.tensor == write.tensor)
    return statement.is_reduction or any(
        write.map.intersect_domain(statement.domain).is_subset(read.map) for read in same
    )

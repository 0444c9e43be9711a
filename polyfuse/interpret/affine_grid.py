"""Affine functions and sets of isl, evaluated on whole grids of integer points.

aff ::= (c + sum_p a_p p + sum_d b_d x_d + sum_k e_k div_k) / m,    div_k ::= floor(aff)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import islpy as isl
import numpy as np

from polyfuse.sets import fix_params

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class Points:
    """Instances of a statement: one array per dimension.

    On an open grid dimension d varies along axis d alone, and every combination is a point. Flat, all arrays are
    vectors of one `length`, with one point for each position.
    """

    dims: tuple[Ints, ...]
    sizes: Mapping[str, int]
    length: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that all dimensions broadcast to."""
        return np.broadcast_shapes(*(d.shape for d in self.dims)) if self.length is None else (self.length,)

    def flat(self, mask: Bools | None = None) -> Points:
        """The points (those where the mask holds) as vectors, in lexicographic order."""
        shape = self.shape
        chosen = np.flatnonzero(np.broadcast_to(True if mask is None else mask, shape))
        dims = tuple(np.broadcast_to(d, shape).ravel()[chosen] for d in self.dims)
        return Points(dims, self.sizes, len(chosen))


def quotient(aff: isl.Aff, at: Points) -> tuple[Ints, int]:
    """A quasi-affine function's numerator on the points, and its denominator."""
    denominator = aff.get_denominator_val()

    def scaled(value: isl.Val) -> int:
        return int(value.mul(denominator).to_python())

    total = np.asarray(scaled(aff.get_constant_val()), np.int64)
    for p in range(aff.dim(isl.dim_type.param)):
        factor = scaled(aff.get_coefficient_val(isl.dim_type.param, p))
        if factor:
            total = total + factor * at.sizes[str(aff.get_dim_name(isl.dim_type.param, p))]
    for d, coordinate in enumerate(at.dims):
        factor = scaled(aff.get_coefficient_val(isl.dim_type.in_, d))
        if factor:
            total = total + factor * coordinate
    for k in range(aff.dim(isl.dim_type.div)):
        factor = scaled(aff.get_coefficient_val(isl.dim_type.div, k))
        if factor:
            numerator, inner = quotient(aff.get_div(k), at)
            total = total + factor * (numerator // inner)
    return total, int(denominator.to_python())


def contains(set_: isl.Set, at: Points) -> Bools | None:
    """Return a mask of the points that lie in a set; None for all of them."""
    found: Bools = np.asarray(False)
    for part in set_.compute_divs().get_basic_sets():
        inside = _satisfies(part, at)
        if inside is None:
            return None
        found = found | inside
    return found


def _satisfies(part: isl.BasicSet, at: Points) -> Bools | None:
    found: Bools | None = None
    for constraint in part.get_constraints():
        value, _ = quotient(constraint.get_aff(), at)
        holds = value == 0 if constraint.is_equality() else value >= 0
        if not holds.all():
            found = holds if found is None else found & holds
    return found


def values(function: isl.PwAff, at: Points) -> Ints:
    """A piecewise quasi-affine function's values on points of its domain."""
    pieces = function.get_pieces()
    (_, first), *rest = pieces
    result = _whole(first, at)
    for domain, aff in rest:
        inside = contains(domain, at)
        if inside is None:
            return _whole(aff, at)
        result = np.where(inside, _whole(aff, at), result)
    return result


def _whole(aff: isl.Aff, at: Points) -> Ints:
    numerator, denominator = quotient(aff, at)
    return numerator // denominator


def chunks(domain: isl.Set, sizes: Mapping[str, int], limit: int) -> Iterator[Points]:
    """The points of a domain, in lexicographic order, at most `limit` points of its bounding box at once.

    Open grids where the box is full, vectors if it is not.
    """
    fixed = fix_params(domain, dict(sizes))
    if fixed.is_empty():
        return
    rank = fixed.dim(isl.dim_type.set)
    lows = [int(fixed.dim_min_val(d).to_python()) for d in range(rank)]
    highs = [int(fixed.dim_max_val(d).to_python()) for d in range(rank)]
    for box in _boxes([(low, high + 1) for low, high in zip(lows, highs, strict=True)], limit):
        grid = tuple(
            np.arange(low, high, dtype=np.int64).reshape([-1 if axis == d else 1 for axis in range(rank)])
            for d, (low, high) in enumerate(box)
        )
        points = Points(grid, sizes)
        mask = contains(fixed, points)
        yield points if mask is None else points.flat(mask)


def _boxes(box: list[tuple[int, int]], limit: int) -> Iterator[list[tuple[int, int]]]:
    """The box cut along its outermost dimensions into parts of at most `limit` points."""
    counts = [high - low for low, high in box]
    volume = int(np.prod(counts, dtype=np.int64))
    if volume <= limit:
        yield box
        return
    d = next(d for d, count in enumerate(counts) if count > 1)
    low, high = box[d]
    step = max(1, limit * counts[d] // volume)
    for start in range(low, high, step):
        yield from _boxes([*box[:d], (start, min(start + step, high)), *box[d + 1 :]], limit)

"""The exact number of points of a set whose pieces overlap, or are projections: by intervals of one dimension.

    { A[t, i] : exists e : 32t <= e < 32t + 32 and 64t <= i + 2e < 64t + 512 }       skewed tiles touch elements so
      t, e one by one     ->  rows of (t; low, high)
      sorted and joined   ->  points of (t, i)

A set is the union of convex pieces, whose existentially quantified dimensions are made dimensions like the others. The
longest dimension of the set stays an interval; the others are enumerated one after the other, each between the bounds
that a projection gives it, so that few values are tried that have no points. Intervals at the same values of the set's
dimensions are joined, whichever piece and whichever value of a quantified dimension they come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import islpy as isl
import numpy as np
import numpy.typing as npt

from polyfuse.sets import IN, SET

Integers = npt.NDArray[np.int64]
Rows = tuple[Integers, Integers, Integers]
"""Values of the dimensions that are no interval, a column each; the least and the greatest value of the one that is."""

MOST_ROWS = 12_000_000
"""Intervals that are enumerated at most: some 4 s."""

AT_ONCE = 1 << 19
"""Values of the first dimensions that are extended together."""


@dataclass(frozen=True)
class _Constraint:
    """sum of factors × dimensions + rest >= 0, or = 0."""

    factors: tuple[int, ...]
    rest: int
    equality: bool


def swept(set_: isl.Set) -> int | None:
    """Return the number of points of a bounded set without sizes; None if that takes more than MOST_ROWS intervals.

    >>> swept(isl.Set("{ A[i] : exists e : 0 <= e < 10 and 3e <= i <= 3e + 4 }"))
    32
    """
    return _swept(str(set_))


@lru_cache(maxsize=256)
def _swept(text: str) -> int | None:
    """Return what `swept` does, for a set as text, kept by it: parts of a tree ask for the same sets."""
    set_ = isl.Set(text)
    rank = set_.dim(SET)
    if set_.is_empty():
        return 0
    if rank == 0:
        return 1
    ends = [(set_.dim_min_val(d), set_.dim_max_val(d)) for d in range(rank)]
    lengths = [_int(high.floor()) - _int(low.ceil()) for low, high in ends]
    inner = max(range(rank), key=lengths.__getitem__)
    found: list[Rows] = []
    left = MOST_ROWS
    for piece in set_.get_basic_sets():
        rows, count = _intervals(piece.lift().flatten(), rank, inner, left)
        left -= count
        if left < 0:
            return None
        found.append(rows)
    _, low, high = _joined(_together(found))
    return int((high - low + 1).sum())


def _together(several: Sequence[Rows]) -> Rows:
    keys, low, high = (np.concatenate([rows[k] for rows in several]) for k in range(3))
    return keys, low, high


def _joined(rows: Rows) -> Rows:
    """Intervals at keys with each point once: sorted by key, and those that overlap or touch made one."""
    keys, low, high = rows
    if not len(low):
        return rows
    order = np.lexsort((low, *keys.T))
    keys, low, high = keys[order], low[order], high[order]
    new = np.ones(len(low), bool)
    new[1:] = (keys[1:] != keys[:-1]).any(axis=1)
    # one line of numbers: the points of a key lie beyond those of the keys before
    place = (np.cumsum(new) - 1) * (int(high.max()) - int(low.min()) + 3)
    ends = np.maximum.accumulate(high + place)
    begins = np.ones(len(low), bool)
    begins[1:] = (low + place)[1:] > ends[:-1] + 1
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(low)) - 1
    return keys[first], low[first], (ends - place)[last]


def _intervals(piece: isl.BasicSet, rank: int, inner: int, most: int) -> tuple[Rows, int]:
    """The intervals of a convex piece, and how many were enumerated: some more than `most` at most.

    Its first `rank` dimensions are the set's. They come first, so that what is enumerated together can be joined.
    """
    order = [d for d in range(piece.dim(SET)) if d != inner]
    keys = [place for place, d in enumerate(order) if d < rank]
    nothing = np.empty((0, len(keys)), np.int64), np.empty(0, np.int64), np.empty(0, np.int64)
    if piece.is_empty():
        return nothing, 0
    prefixes = [_constraints(_projected(piece, order[: k + 1])) for k in range(len(order))]
    whole = _constraints(piece)
    found: list[Rows] = [nothing]
    count = 0
    waiting: list[tuple[int, Integers]] = [(0, np.zeros((1, 0), np.int64))]
    while waiting and count <= most:
        depth, values = waiting.pop()
        if depth == len(order):
            low, high = _bounds(whole, values, order, inner)
            some = low <= high
            count += len(some)
            found.append(_joined((values[some][:, keys], low[some], high[some])))
            continue
        low, high = _bounds(prefixes[depth], values, order[:depth], order[depth])
        lengths = np.maximum(high - low + 1, 0)
        for part in _parts(np.cumsum(lengths)):
            n = lengths[part]
            starts = np.repeat(low[part] - (np.cumsum(n) - n), n)
            new = starts + np.arange(int(n.sum()))
            waiting.append((depth + 1, np.column_stack((np.repeat(values[part], n, axis=0), new))))
    return _together(found), count


def _parts(ends: Integers) -> list[slice]:
    """Slices of values whose extensions are some AT_ONCE together."""
    cuts = np.searchsorted(ends, np.arange(AT_ONCE, int(ends[-1]), AT_ONCE))
    places = [0, *dict.fromkeys(int(cut) + 1 for cut in cuts), len(ends)]
    return [slice(a, b) for a, b in pairwise(places) if a < b]


def _projected(piece: isl.BasicSet, kept: Sequence[int]) -> isl.BasicSet:
    """What holds of some dimensions alone, in rational numbers, as constraints on all."""
    away = [d for d in range(piece.dim(SET)) if d not in kept]
    for d in away:
        piece = piece.eliminate(SET, d, 1)
    return piece.remove_divs()


def _constraints(piece: isl.BasicSet) -> list[_Constraint]:
    found = []
    for constraint in piece.get_constraints():
        aff = constraint.get_aff()
        factors = tuple(_int(aff.get_coefficient_val(IN, d)) for d in range(aff.dim(IN)))
        found.append(_Constraint(factors, _int(aff.get_constant_val()), constraint.is_equality()))
    return found


def _bounds(
    constraints: Sequence[_Constraint], values: Integers, order: Sequence[int], dim: int
) -> tuple[Integers, Integers]:
    """The least and the greatest value of a dimension at values of others; none, low > high, where these break one."""
    large = 1 << 40
    low, high = np.full(len(values), -large, np.int64), np.full(len(values), large, np.int64)
    for one in constraints:
        rest = np.full(len(values), one.rest, np.int64)
        for column, d in enumerate(order):
            if one.factors[d]:
                rest += one.factors[d] * values[:, column]
        factor = one.factors[dim]
        for sign in (1, -1) if one.equality else (1,):
            if factor * sign > 0:
                low = np.maximum(low, -((sign * rest) // abs(factor)))
            elif factor:
                high = np.minimum(high, (sign * rest) // abs(factor))
            else:
                high = np.where(sign * rest >= 0, high, -large - 1)
    return low, high


def _int(value: isl.Val) -> int:
    return int(value.to_python())

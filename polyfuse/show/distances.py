"""How far apart the two instances of a dependence are, in each dimension that both statements have.

    { S[t, i] -> S[1 + t, i - 1]; S[t, i] -> S[1 + t, 1 + i] }      (1, -1), (1, 1)
    { mac[i, j, k] -> mac[i, j, k'] : k < k' < 48 }                 (0, 0, ≥1)
    { relu[i, j] -> mac[i, j', j] : 0 <= j, j' < 64 }               (0, *)

Distance and direction vectors (Wolf and Lam, "A loop transformation theory and an algorithm to maximize parallelism",
1991), over all sizes.
"""

from __future__ import annotations

import islpy as isl

from polyfuse.ir.dependences import Pairs
from polyfuse.sets import IN, OUT, PARAM, bounding_box, dimension, least_and_most, points, volume

MOST = 4
"""Distances that are listed one by one; of more, each dimension has its range."""

NEAR = 4
"""A bound beyond this is that of a domain, not of a dependence, and is not shown."""


def distances(pairs: Pairs) -> str:
    """Return the distances as text; "" if one of the statements has no dimension."""
    relation = pairs.map
    common = min(relation.dim(IN), relation.dim(OUT))
    if common == 0:
        return ""
    for side in (IN, OUT):
        relation = relation.project_out(side, common, relation.dim(side) - common).reset_tuple_id(side)
    found = relation.deltas()
    found = found.project_out(PARAM, 0, found.dim(PARAM)).coalesce()
    if found.is_bounded() and volume(bounding_box(found)) <= NEAR**2:
        each = list(points(found))
        if len(each) <= MOST:
            return ", ".join(f"({', '.join(map(str, point))})" for point in each)
    return f"({', '.join(_range(found, d) for d in range(common))})"


def _range(found: isl.Set, d: int) -> str:
    """One dimension: "2", "-1…1", "≥1", "≤-1", or "*" where nothing near bounds it."""
    ends = least_and_most(dimension(found, d), found)
    low, high = (
        int(end.to_python()) if end.is_int() and end.abs() <= isl.Val(NEAR) else None for end in ends
    )
    if low is not None and high is not None:
        return str(low) if low == high else f"{low}…{high}"
    if low is not None and low >= 0:
        return f"≥{low}"
    return f"≤{high}" if high is not None and high <= 0 else "*"

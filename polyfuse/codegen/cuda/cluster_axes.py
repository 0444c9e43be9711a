"""Clusters of blocks in a kernel's source: their extent along each axis, and a block's rank in its cluster.

    for i (block.x): for c of 2 (cluster.x): S    ->    bx = cuda.blockIdx.x // 2
                                                        cx = cuda.blockIdx.x % 2       and a grid of twice as many

A cluster's blocks are neighbours of the grid (CUDA Programming Guide, "Thread Block Clusters"): along each axis block b
is in cluster b // n. Its rank counts them through, those along x first (PTX ISA, %cluster_ctarank).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from math import prod
from typing import TYPE_CHECKING

from polyfuse.codegen.looptree.index import binary

if TYPE_CHECKING:
    from polyfuse.codegen.looptree.nodes import Axis

ALONE = (1, 1, 1)
"""Blocks of a cluster along x, y and z if there are no clusters."""

CAPABILITY = (9, 0)
"""The first GPUs that have clusters."""

LAST_BLOCK = 2**31 - 1
"""The largest number of a block along an axis, all of its bits ones: the compiler is told that none is negative."""


def cluster_of(axes: Iterable[Axis]) -> tuple[int, int, int]:
    """The blocks of a cluster along x, y and z."""
    found = {axis.name: axis.extent for axis in axes}
    x, y, z = (_constant(found.get(f"cluster.{d}", ast.Constant(1))) for d in "xyz")
    return x, y, z


def number_of(axis: str, cluster: tuple[int, int, int]) -> str | None:
    """The number of a block's cluster along an axis, or of the block in its cluster; None if that needs no division.

    >>> number_of("block.x", (2, 1, 1)), number_of("cluster.x", (2, 1, 1)), number_of("block.y", (2, 1, 1))
    ('(cuda.blockIdx.x & 2147483647) // 2', '(cuda.blockIdx.x & 2147483647) % 2', None)
    """
    unit, d = axis.split(".")
    blocks = cluster["xyz".index(d)]
    if unit == "thread" or (unit == "block" and blocks == 1):
        return None
    return f"(cuda.blockIdx.{d} & {LAST_BLOCK}) {'//' if unit == 'block' else '%'} {blocks}"


Among = tuple[tuple[str, int], ...]
"""Axes of a cluster, those along x first, and how many blocks there are along each."""


def rank_among(among: Among) -> ast.expr:
    """The rank of a block among those along some axes of a cluster: cx + 2 * cy."""
    found, before = list[ast.expr](), 1
    for axis, count in among:
        found.append(binary(ast.Mult(), ast.Constant(before), ast.Name(f"c{axis[-1]}")))
        before *= count
    return _sum(found)


def whom_to(among: Among, cluster: tuple[int, int, int]) -> list[ast.expr]:
    """The numbers of blocks along some axes; a bit for the rank of each that is at 0 along the others; and by how
    much the ranks of those here are larger.

    >>> [ast.unparse(each) for each in whom_to((("cluster.x", 2),), (2, 2, 1))]
    ['2', '3', '2 * cy']
    """
    strides = {f"cluster.{d}": prod(cluster[:place]) for place, d in enumerate("xyz")}
    ranks = [0]
    for axis, count in among:
        ranks = [rank + n * strides[axis] for n in range(count) for rank in ranks]
    others = (
        binary(ast.Mult(), ast.Constant(strides[axis]), ast.Name(f"c{axis[-1]}"))
        for axis, count in zip(strides, cluster, strict=True)
        if count > 1 and axis not in dict(among)
    )
    bits = sum(1 << rank for rank in ranks)
    return [ast.Constant(len(ranks)), ast.Constant(bits), _sum(others)]


def _sum(terms: Iterable[ast.expr]) -> ast.expr:
    total: ast.expr = ast.Constant(0)
    for term in terms:
        total = binary(ast.Add(), total, term)
    return total


def _constant(extent: ast.expr) -> int:
    assert isinstance(extent, ast.Constant), "analysis/clusters.py has asked for a constant"
    assert isinstance(extent.value, int), "a number of blocks"
    return extent.value

"""Equal shares of a reduction's work (stream-k): tiles of results in sequence, in chunks of steps, cut at any chunk.

    tile            0          1          2          3          4        tiles of results, in the order of their loops
    chunk       0 1 2 3 4  0 1 2 3 4  0 1 2 3 4  0 1 2 3 4  0 1 2 3 4    5 chunks of steps in each tile
    share       0 0 0 0 0  0 0 1 1 1  1 1 1 1 2  2 2 2 2 2  2 3 3 3 3    25 chunks in 4 shares of 7
    part        0 0 0 0 0  0 0 1 1 1  0 0 0 0 1  0 0 0 0 0  0 1 1 1 1    share - share of the tile's first chunk

A share is the end of a tile, whole tiles, and the beginning of another: stream-k (Osama, Merrill, Cecka, Garland &
Owens, "Stream-K: Work-centric Parallel Decomposition for Dense Matrix-Matrix Multiplication on the GPU", PPoPP 2023).
Where a tile has a multiple of a share's chunks, a share is a part of one tile: what `size=` gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

import islpy as isl

from polyfuse.errors import quantity
from polyfuse.ir import Nest, Statement
from polyfuse.rewrite.shares import Shares
from polyfuse.sets import IN, OUT, SET


@dataclass(frozen=True)
class Dealt:
    """A reduction's chunks as they are dealt out: `chunks` of each of so many `tiles`, `share` of them to each share.

    `number` is the number of a tile, and `chunk` that of a chunk in it, as isl reads them, in the dimensions d0, d1, ….
    """

    tiles: int
    chunks: int
    share: int
    number: str
    chunk: str

    def __str__(self) -> str:
        """A description in words."""
        return f"{quantity(self.tiles, 'tile')} of {quantity(self.chunks, 'chunk')} in shares of {self.share}"

    @property
    def part(self) -> str:
        """Return the part of its result to which an instance belongs, as isl text: its share minus the tile's first
        one.
        """
        first = f"{self.chunks}*({self.number})"
        return f"floor(({first} + {self.chunk})/{self.share}) - floor(({first})/{self.share})"


def dealt(nest: Nest, s: Statement, dim: int, shares: Shares) -> Dealt | str:
    """A statement's work, along one dimension and over all tiles of its results, in shares; or why it is not."""
    wanted = {s.dims[dim]: shares.steps, **shares.tile}
    written = _dims_written(s)
    others = [name for name in shares.tile if name not in s.dims or s.dims.index(name) not in written]
    if others:
        return f"{others[0]} is not a dimension of the results of {s.name}"
    if shares.count < 1 or any(size < 1 for size in wanted.values()):
        return (
            "there is at least one share, and a tile and a chunk have at least one value along each dimension"
        )
    box = _box(nest, s)
    if isinstance(box, str):
        return box
    sizes = {d: wanted.get(s.dims[d], 1) for d in (*written, dim)}
    counts = {d: ceil(box[d] / size) for d, size in sizes.items()}
    number = "0"
    for d in written:
        number = f"{counts[d]}*({number}) + floor(d{d}/{sizes[d]})"
    tiles = prod(counts[d] for d in written)
    share = ceil(tiles * counts[dim] / shares.count)
    return Dealt(tiles, counts[dim], share, number, f"floor(d{dim}/{sizes[dim]})")


def _dims_written(s: Statement) -> tuple[int, ...]:
    """The dimensions that tell a statement's results apart, in order."""
    subscripts = s.write.subscripts()
    axes = [subscripts.get_pw_aff(axis) for axis in range(s.write.map.dim(OUT))]
    return tuple(d for d in range(len(s.dims)) if any(axis.involves_dims(IN, d, 1) for axis in axes))


def _box(nest: Nest, s: Statement) -> tuple[int, ...] | str:
    """The extents of a statement's dimensions, if each result has the same steps; or what stands against it."""
    domain = nest.domains[s.name].gist_params(nest.context)
    if nest.params and domain.involves_dims(isl.dim_type.param, 0, domain.dim(isl.dim_type.param)):
        return f"sizes of {s.name} are known in a call only, and shares are equal for known ones"
    ends = [(domain.dim_min_val(d), domain.dim_max_val(d)) for d in range(domain.dim(SET))]
    if not all(low.is_zero() and high.is_int() for low, high in ends):
        return f"not all dimensions of {s.name} count from 0 to a number"
    box = isl.Set.universe(domain.get_space())
    for d, (low, high) in enumerate(ends):
        box = box.lower_bound_val(SET, d, low).upper_bound_val(SET, d, high)
    if not box.is_subset(domain):
        return (
            f"not all results of {s.name} have the same steps, and shares of chunks would not be equal work"
        )
    return tuple(int(high.to_python()) + 1 for _, high in ends)

"""Compute the footprint of a tile of consumers: the producers' instances and the elements that it needs.

y[i] = T[i] * T[i + 1], tiles { C[i] -> [floor(i/32)] }
needs        { [t] -> P[i] : 32t <= i <= 32t + 32 }            through the flow { P[i] -> C[i]; P[i] -> C[i - 1] }
window       T[32t … 32t + 32]: corner 32t, shape 33
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import islpy as isl

from polyfuse.ir import Nest, Statement
from polyfuse.ir.tree import date_map, statements
from polyfuse.sets import IN, OUT, dimension, greatest

Needs = Mapping[str, isl.Map]
"""For each statement { [tile] -> instances that run in it }."""


@dataclass(frozen=True)
class Grid:
    """The tiles: for each consumer { instance -> [tile] }, one dimension for each tiled loop."""

    dims: tuple[str, ...]
    sizes: tuple[int, ...]
    of: Mapping[str, isl.Map]


@dataclass(frozen=True)
class Window:
    """A box that holds what any tile accesses: from a corner, which depends on the tile, with a constant shape."""

    corner: tuple[isl.PwAff, ...]
    shape: tuple[int, ...]


def grid_of(nest: Nest, tiles: Mapping[str, Mapping[str, int]]) -> Grid:
    """{ C[i, j] -> [floor(i/32), floor(j/256)] } for every consumer."""
    of = {}
    for name, sizes in tiles.items():
        domain = nest.domains[name]
        dims = nest.statement(name).dims
        dates: list[isl.PwAff | int] = [
            dimension(domain, dims.index(d)).scale_down_val(isl.Val(size)).floor()
            for d, size in sizes.items()
        ]
        of[name] = date_map(isl.Set.universe(domain.get_space()), dates)
    first = next(iter(tiles.values()))
    return Grid(tuple(first), tuple(first.values()), of)


def needs(nest: Nest, grid: Grid, producers: Iterable[str]) -> Needs:
    """Return the instances of each tile: its consumers' instances, and those of producers whose values reach them.

    Producers are taken from the last to the first, so all readers of one must come after it in the nest's order.
    """
    found = {name: tile.intersect_domain(nest.domains[name]).reverse() for name, tile in grid.of.items()}
    place = {name: position for position, name in enumerate(statements(nest.order))}
    flow = [pair for pair in nest.dependences().pairs if pair.kind == "flow"]
    for name in sorted(producers, key=place.__getitem__, reverse=True):
        used = [
            found[p.sink].apply_range(p.map.reverse()) for p in flow if p.source == name and p.sink in found
        ]
        if used:
            total = used[0]
            for other in used[1:]:
                total = total.union(other)
            found[name] = total.coalesce()
    return found


def touched(need: Needs, readers: Iterable[Statement], tensor: str) -> isl.Map:
    """{ [tile] -> elements of a tensor } that some statements access in a tile."""
    parts = [
        need[s.name].apply_range(access.map)
        for s in readers
        for access in s.accesses
        if access.tensor == tensor
    ]
    total = parts[0]
    for other in parts[1:]:
        total = total.union(other)
    return total.coalesce()


def window(footprint: isl.Map) -> Window | None:
    """The smallest box with an affine corner around each tile's part; None if it has no constant shape.

    { [t] -> T[i] : 0, 32t - 1 <= i <= 32t + 32 }  ->  corner 32t - 1, shape 34: no case for the first tile, which
    leaves the box's first element alone
    """
    corner, shape = [], []
    for d in range(footprint.dim(OUT)):
        side = _side(footprint.dim_min(d), footprint.dim_max(d))
        if side is None:
            return None
        corner.append(side[0])
        shape.append(side[1])
    return Window(tuple(corner), tuple(shape))


def _side(low: isl.PwAff, high: isl.PwAff) -> tuple[isl.PwAff, int] | None:
    """A start that is one function of the tile, not after any low, and the shortest extent from there to every high."""
    best: tuple[isl.PwAff, int] | None = None
    for _, piece in low.get_pieces():
        start = isl.PwAff.from_aff(piece)
        if not low.domain().is_subset(low.ge_set(start)):
            continue
        extent = greatest(high.sub(start))
        if extent.is_int() and (best is None or int(extent.to_python()) + 1 < best[1]):
            best = start, int(extent.to_python()) + 1
    return best


def advance(corner: isl.PwAff) -> float:
    """Return the distance between the windows of consecutive tiles, over all loops; 0 if a window does not move.

    >>> advance(isl.PwAff("{ [t] -> [(floor(31t/2) - 1)] }"))
    15.5
    """
    far = 64
    moved, stays = 1.0, True
    for d in range(corner.dim(IN)):
        later = isl.MultiAff.identity(corner.get_domain_space().map_from_set())
        later = later.set_aff(d, later.get_aff(d).add_constant_val(isl.Val(far)))
        distance = greatest(corner.pullback_multi_aff(later).sub(corner))
        if not distance.is_zero():
            moved, stays = moved * distance.to_python() / far, False
    return 0.0 if stays else moved

"""The shapes of tiles that a product may take on a GPU: in a thread's registers, by tensor cores, by warpgroups."""

from __future__ import annotations

from functools import lru_cache

from polyfuse.machine import Gpu, Machine
from polyfuse.strategy.cuda.tiles.cluster import cluster_shapes
from polyfuse.strategy.cuda.tiles.fma import Shape
from polyfuse.strategy.cuda.tiles.mma import tensor_shapes
from polyfuse.strategy.cuda.tiles.mma_f64 import double_shapes
from polyfuse.strategy.cuda.tiles.tile_cost import shapes
from polyfuse.strategy.cuda.tiles.warp_specialized import own_warp_shapes
from polyfuse.strategy.cuda.tiles.wgmma import warpgroup_shapes
from polyfuse.strategy.cuda.tiles.wgmma_cp_async import kept_shapes
from polyfuse.strategy.cuda.tiles.wgmma_tma import bulk_shapes
from polyfuse.strategy.match.gemm_problem import Extents


@lru_cache(maxsize=64)
def tiles_for(extents: Extents, itemsize: int, machine: Machine, gpu: Gpu) -> tuple[Shape, ...]:
    """The shapes that a product may take, the cheapest first: tensor cores' where the machine's `math` has some.

    Of tensor cores' shapes that take equally long, to a nanosecond, the one whose copies are fewer instructions. Those
    of float64 numbers round nothing and compete with the others. Kept, since a network's layers ask the same.
    """
    found: list[Shape] = [*tensor_shapes(extents, itemsize, machine, gpu)]
    if found:
        found += warpgroup_shapes(extents, machine.math, machine, gpu)
        found += kept_shapes(extents, machine.math, machine, gpu)
        found += bulk_shapes(extents, machine.math, machine, gpu)
        found += own_warp_shapes(extents, machine.math, machine, gpu)
        found += cluster_shapes(extents, machine.math, machine, gpu)
        return tuple(sorted(found, key=lambda s: (round(s.seconds, 9), s.tiles * s.copies)))
    found = [*double_shapes(extents, itemsize, machine, gpu), *shapes(extents, itemsize, machine, gpu)]
    return tuple(sorted(found, key=lambda s: s.seconds))

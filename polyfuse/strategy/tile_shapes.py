"""The shapes of tiles that a product may take on a GPU: in a thread's registers, by tensor cores, by warpgroups."""

from __future__ import annotations

from functools import lru_cache

from polyfuse.machine import Gpu, Machine
from polyfuse.strategy.bulk_shapes import bulk_shapes
from polyfuse.strategy.cluster_shapes import cluster_shapes
from polyfuse.strategy.double_shapes import double_shapes
from polyfuse.strategy.extents import Extents
from polyfuse.strategy.kept_shapes import kept_shapes
from polyfuse.strategy.own_warp_shapes import own_warp_shapes
from polyfuse.strategy.register_shapes import Shape
from polyfuse.strategy.tensor_shapes import tensor_shapes
from polyfuse.strategy.tile_costs import shapes
from polyfuse.strategy.warpgroup_shapes import warpgroup_shapes


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

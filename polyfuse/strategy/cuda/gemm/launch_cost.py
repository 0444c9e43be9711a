"""Price a GPU's kernel around one product alone in its launch: in register tiles if that is cheaper.

    for i: { for j: mac1;  for j: mac2 }   one result a thread: two products in one kernel have no tiles
    against
    for i: for j: mac1;  for i: for j: mac2   each in the tiles that it would get (tile_choice.py)

The search asks this where it weighs two products together against each alone.
"""

from __future__ import annotations

from dataclasses import replace

from polyfuse.ir import Nest
from polyfuse.machine import GpuMachine
from polyfuse.strategy.cost.kernel_model import Kernel
from polyfuse.strategy.cost.roofline import KernelCost
from polyfuse.strategy.cuda.gemm.schedule import band_by_dimension, of_one_step
from polyfuse.strategy.cuda.tiles.tile_candidates import tiles_for
from polyfuse.strategy.cuda.tiles.tile_cost import waiting_seconds
from polyfuse.strategy.match.gemm import products_among
from polyfuse.strategy.remarks import Refused
from polyfuse.strategy.rewrites.split_k import extents_of


def tiled_alone(nest: Nest, kernel: Kernel, plain: KernelCost, machine: GpuMachine) -> KernelCost:
    """The cost of a kernel with its product in tiles, if it has one that gets some, and that is cheaper.

    With symbolic sizes the tiles that it gets are not known yet.
    """
    products = products_among(nest, kernel.names, by_value=True)
    known = len(products) == 1 and kernel.band and not nest.params
    product = of_one_step(products[0]) if known else None
    if product is None or isinstance(band_by_dimension(kernel, product), Refused):
        return plain
    itemsize = nest.tensor(nest.statement(product.statement).write.tensor).itemsize
    shapes = tiles_for(extents_of(nest, product, machine), itemsize, machine, machine.gpu)
    if not shapes or shapes[0].seconds > plain.total + waiting_seconds(shapes[0], machine):
        return plain
    cost = replace(plain, compute=shapes[0].issuing, memory=shapes[0].moving)
    return replace(cost, waiting=max(0.0, shapes[0].seconds - replace(cost, waiting=0.0).total))

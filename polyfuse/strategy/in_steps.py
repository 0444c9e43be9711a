"""What joining products in a loop costs, where each would run in blocks.

    for t: x[t] @ w;  for t: h[t] @ u, gates   ->   for t: { x[t] @ w;  h[t] @ u, gates }

In a loop whose steps wait for each other nothing goes through memory between the two. But a step then reads both
weights, and if they do not stay in L2 from one step to the next, both come from beyond it each time.

    for i: for j: { y += a @ b };  for i: for j: { z += c @ d }   ->   for i: for j: { y += a @ b;  z += c @ d }

In another loop two products have no blocks (products.py): together they are tiles of the loops that they share.
"""

from __future__ import annotations

from dataclasses import replace

from polyfuse.ir import Nest
from polyfuse.ir.tree import Loop, Tree
from polyfuse.strategy.contraction import products_among
from polyfuse.strategy.cost import CACHED, KernelCost, Model, evenly, in_blocks
from polyfuse.strategy.kernel import kernel_of


def joined_in_steps(
    nest: Nest, model: Model, first: Tree, second: Tree, together: Tree
) -> tuple[list[KernelCost], KernelCost] | None:
    """(costs apart, cost together), all in blocks; None unless both hold a product and come into serial steps."""
    serial = isinstance(together, Loop) and not model.counts.parallel(together)
    if model.machine.kind != "cpu" or not serial:
        return None
    if not all(products_among(nest, model.kernel(part).names) for part in (first, second)):
        return None
    return [blocked_cost(model, part) for part in (first, second)], blocked_cost(model, together)


def joined_in_tiles(
    nest: Nest, model: Model, first: Tree, second: Tree, together: Tree
) -> tuple[list[KernelCost], KernelCost] | None:
    """(costs apart, in blocks where that is cheaper; the cost together); None unless both hold a product."""
    if model.machine.kind != "cpu":
        return None
    if not all(products_among(nest, model.kernel(part).names, triangles=True) for part in (first, second)):
        return None
    return [alone_cost(nest, model, part) for part in (first, second)], model.cost(together)


def alone_cost(nest: Nest, model: Model, part: Tree) -> KernelCost:
    """A kernel that is not joined to others: around one product in blocks, where that is cheaper."""
    usual = model.cost(part)
    if model.machine.kind != "cpu" or not model.kernel(part).band:
        return usual
    if len(products_among(nest, model.kernel(part).names, triangles=True)) != 1:
        return usual
    return min(usual, blocked_cost(model, part), key=lambda cost: cost.total)


def blocked_cost(model: Model, part: Tree) -> KernelCost:
    """A kernel of products in blocks; a serial loop around it reads again what does not stay in L2."""
    counts, machine, kernel = model.counts, model.machine, model.kernel(part)
    several = kernel.band and machine.units > 1
    at_work = evenly(kernel.extents[0], machine.units) if several else None
    cost = in_blocks(kernel, machine, counts.total_bytes, at_work)
    if kernel.band or not isinstance(part, Loop):
        return cost
    step = kernel_of(counts, part, (part,))
    held = sum(u.bytes_in((1,), step.extents) for u in step.uses)
    if held <= machine.levels[CACHED].size:
        return cost
    same = sum(u.elements * u.itemsize for u in step.uses if u.read and u.ratios[0] == 1.0)
    again = (step.extents[0] - 1) * same
    return replace(cost, again=again, memory=cost.memory + again / machine.reading(machine.level(held), 1.0))

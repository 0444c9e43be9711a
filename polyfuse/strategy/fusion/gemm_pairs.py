"""Price the fusion of products in a loop, where each would run in blocks by itself.

    for t: x[t] @ w;  for t: h[t] @ u, gates   ->   for t: { x[t] @ w;  h[t] @ u, gates }

In a loop whose steps wait for each other nothing goes through memory between the two. But a step then reads both
weights, and if they do not stay in L2 from one step to the next, both come from beyond it each time. Apart, the first
product is in blocks inside its loop over batches, those of times or those of rows, and reads its weights once a batch;
and its sums go through memory, tile by tile, where the second one adds to them.

    for i: for j: { y += a @ b };  for i: for j: { z += c @ d }   ->   for i: for j: { y += a @ b;  z += c @ d }

In another loop two products have no blocks (schedule.py): together they are tiles of the loops that they share.

    for i < 2: for j < 16: x[16i + j] = …;  for i < 32: for j: { y[i, j] += x[i, k] * w[j, k] }
    ->  for i < 32: for j: { where i < 2 and j < 16: x[16i + j] = …;  y[i, j] += … }

    for i: for j: y += a @ b;  for j: for i: s[j] += b[i, j]        stay apart, with the product in blocks

What only reads what a product reads finds no place in its blocks.

    for i: for p: for c: y[c, p] += w[c, k] * x[k, p];  for c: for p: out = y[c, p] + b[c]       come together

Sums that are not columns along memory have blocks only where what reads them is in the same kernel.

What shares loops with a product by a dependence that these carry, as a layer norm of sentences does that of words,
takes its parallel loops from it, and with them its blocks.
"""

from __future__ import annotations

from dataclasses import replace

from polyfuse.ir import Nest
from polyfuse.ir.tree import Loop, Tree
from polyfuse.machine import Machine
from polyfuse.rewrite.reductions.own_accumulator import lie_apart
from polyfuse.strategy.cost.counts import Counts, dims_of
from polyfuse.strategy.cost.kernel_model import internal
from polyfuse.strategy.cost.read_again import STRIDED, held_and_again, reading
from polyfuse.strategy.cost.roofline import CACHED, KernelCost, Model, evenly, in_blocks, in_short_rows
from polyfuse.strategy.match.epilogue import block_of, needs_of
from polyfuse.strategy.match.gemm import products_among


def joined_in_steps(
    nest: Nest, model: Model, first: Tree, second: Tree, together: Tree
) -> tuple[list[KernelCost], KernelCost] | None:
    """(costs apart, cost together), all in blocks; None unless both hold a product and come into serial steps."""
    serial = isinstance(together, Loop) and not model.counts.parallel(together)
    if model.machine.kind != "cpu" or not serial:
        return None
    if not all(products_among(nest, model.kernel(part).names) for part in (first, second)):
        return None
    apart = [in_steps_cost(nest, model, part) for part in (first, second)]
    return apart, in_steps_cost(nest, model, together)


def joined_in_tiles(
    nest: Nest, model: Model, first: Tree, second: Tree, together: Tree
) -> tuple[list[KernelCost], KernelCost] | None:
    """(costs apart, in tiles if that is cheaper; the cost together); None unless both hold a product.

    A convolution in groups is one on a CPU, too: 440 channels of 2 x 2 by 1 x 1 windows, then by 3 x 3 in groups of 8,
    took 335 µs in one kernel, of loops, and 11 in two (one Zen 5 core).
    """
    if model.machine.kind != "cpu" and model.tiled is None:
        return None
    kernels = [model.kernel(part).names for part in (first, second)]
    groups = model.machine.kind == "cpu"
    if not all(products_among(nest, names, triangles=True, groups=groups) for names in kernels):
        return None
    whole = in_short_rows(model.kernel(together), model.cost(together), model.machine)
    return [alone_cost(nest, model, part) for part in (first, second)], whole


def joined_in_order(
    nest: Nest, model: Model, first: Tree, second: Tree, together: Tree
) -> tuple[list[KernelCost], KernelCost] | None:
    """(costs apart, in blocks if that is cheaper; the cost together); None unless a product loses its parallel loops.

    GPT-2 of one layer took 202 ms with all behind its attention in one kernel, its last product 32 × 768 × 50257 with
    it, and 92 with its products in blocks (one core of a Zen 4 with AVX2).
    """
    if model.machine.kind != "cpu" or model.kernel(together).band:
        return None
    if not any(
        model.kernel(part).band and products_among(nest, model.kernel(part).names, triangles=True)
        for part in (first, second)
    ):
        return None
    return [alone_cost(nest, model, part) for part in (first, second)], model.cost(together)


def joined_behind_sums(
    nest: Nest, model: Model, first: Tree, second: Tree, together: Tree
) -> tuple[list[KernelCost], KernelCost] | None:
    """(costs apart, the product's in loops; the cost together, in blocks); None unless only both together have blocks.

    Sums that are not columns along memory need a buffer of the kernel's own (cpu/gemm/schedule.py). 2 images of 64
    channels of 5 x 14, by 1 x 1 windows in two groups, took 39.6 µs where bias and ReLU were a kernel of their own and
    3.8 with them in the product's (one Zen 5 core).
    """
    kernels = [model.kernel(part) for part in (first, second)]
    whole = model.kernel(together)
    if model.machine.kind != "cpu" or not whole.band:
        return None
    held = [products_among(nest, kernel.names, triangles=True, groups=True) for kernel in kernels]
    if sorted(map(len, held)) != [0, 1]:
        return None
    own = 0 if held[0] else 1
    product = held[own][0][0]
    sums = nest.statement(product.statement).write.tensor
    if not product.across or sums in internal(kernels[own]) or sums not in internal(whole):
        return None
    apart = [model.cost(part) for part in (first, second)]
    apart[own] = in_short_rows(kernels[own], apart[own], model.machine)
    return apart, min(model.cost(together), blocked_cost(model, together), key=lambda cost: cost.total)


def joined_beside(
    nest: Nest, model: Model, first: Tree, second: Tree, together: Tree
) -> tuple[list[KernelCost], KernelCost] | None:
    """(costs apart, the product's in blocks; the cost together, without); None if both may be in one product's blocks.

    They may unless one kernel holds a product, and no value passes between the two. `blocked` leaves the other kernel's
    statements in loops of their own, one by one: a bias' gradient and its update, which read what the gradient of the
    weights reads, were four kernels so.
    """
    if model.machine.kind != "cpu" or not model.kernel(together).band:
        return None
    held = [products_among(nest, model.kernel(part).names, triangles=True) for part in (first, second)]
    if sum(map(bool, held)) != 1:
        return None
    pairs = nest.dependences().among((*first.members, *second.members))
    if any(p.is_value and (p.source in first.members) != (p.sink in first.members) for p in pairs):
        return None
    return [alone_cost(nest, model, part) for part in (first, second)], model.cost(together)


def joined_over_windows(
    nest: Nest, model: Model, first: Tree, second: Tree, together: Tree
) -> tuple[list[KernelCost], KernelCost] | None:
    """(costs apart, the product's in blocks; the cost together, without); None unless windows overlap over its rows.

    The tiles of a product that goes from row to row of an image hold no whole window of 3 x 3, so that `blocked` runs
    all windows behind all tiles: 144 channels of 56 x 56 by 1 x 1 windows, then by 3 x 3 each, took 0.99 ms in one
    kernel and 0.65 in two (one Zen 3 core).
    """
    if model.machine.kind != "cpu" or not model.kernel(together).band:
        return None
    before, behind = (model.kernel(part).names for part in (first, second))
    products = products_among(nest, before, triangles=True, groups=True)
    if len(products) != 1 or products_among(nest, behind, triangles=True, groups=True):
        return None
    product = products[0][0]
    if not product.others or not any(_reads_often(nest, name) for name in behind):
        return None
    after = (*before[before.index(product.statement) + 1 :], *behind)
    needs = {name: need for name, need in needs_of(nest, product.statement, after).items() if name in behind}
    if all(block_of(nest, product, d, needs) is not None for d in product.others):
        return None
    return [alone_cost(nest, model, part) for part in (first, second)], model.cost(together)


def _reads_often(nest: Nest, name: str) -> bool:
    """True if a statement may need several values of one array at once: it sums up, or reads that twice."""
    s = nest.statement(name)
    read = [access.tensor for access in s.reads]
    return s.is_reduction or len(set(read)) < len(read)


def alone_cost(nest: Nest, model: Model, part: Tree) -> KernelCost:
    """A kernel that is not joined to others: around one product in blocks, if that is cheaper."""
    usual = model.cost(part)
    if model.tiled is not None:
        return model.tiled(nest, model.kernel(part), usual)
    if model.machine.kind != "cpu" or not model.kernel(part).band:
        return usual
    products = products_among(nest, model.kernel(part).names, triangles=True)
    if len(products) != 1 or lie_apart(nest.statement(products[0][0].statement).write):
        return usual  # tiles in registers need neighbours in memory
    return min(usual, blocked_cost(model, part), key=lambda cost: cost.total)


def in_steps_cost(nest: Nest, model: Model, part: Tree) -> KernelCost:
    """A kernel of products in blocks: alone, with what its batches read again, or in the steps of a serial loop.

    A tile's sums are short rows, far apart, that nobody fetches ahead: where they come from behind L2, tiles wait.
    50 x 512 x 2048, 50 times, took 22.4 ms where its sums were in L2 and 24.6 where they came from L3 (one Zen 5 core).
    """
    counts, machine, kernel = model.counts, model.machine, model.kernel(part)
    cost, products = blocked_cost(model, part), products_among(nest, kernel.names)
    units = cost.utilisation * machine.units
    if kernel.band:
        batches = [
            tuple(x for x in kernel.band if dims_of(x.date(one.statement)) <= set(one.others))
            for one in products[0]
        ]
        cost = min(
            (_with_misses(cost, counts, part, around, machine, units) for around in batches),
            key=lambda c: c.total,
        )
    if counts.total_bytes <= machine.levels[CACHED].size:
        return cost
    sums = {nest.statement(one.statement).write.tensor for one, *_ in products}
    far = sum(
        u.elements * u.itemsize * (u.read + u.written)
        for u in kernel.uses
        if u.tensor in sums and not u.internal
    )
    return replace(cost, waiting=STRIDED * far / machine.bandwidth(machine.level(counts.total_bytes), units))


def blocked_cost(model: Model, part: Tree) -> KernelCost:
    """A kernel of products in blocks, with what each step of a serial loop around it reads again from behind L2."""
    counts, machine, kernel = model.counts, model.machine, model.kernel(part)
    several = kernel.band and machine.units > 1
    at_work = evenly(kernel.extents[0], machine.units) if several else None
    cost = in_blocks(kernel, machine, counts.total_bytes, at_work)
    if kernel.band or not isinstance(part, Loop):
        return cost
    return _with_misses(cost, counts, part, (part,), machine)


def _with_misses(
    cost: KernelCost, counts: Counts, part: Tree, around: tuple[Loop, ...], machine: Machine, units: float = 1
) -> KernelCost:
    """`with_again` where L2 does not hold what one value of these loops touches: what it holds waits for nothing."""
    held, again = held_and_again(counts, part, around)
    kept = held <= machine.levels[CACHED].size
    return cost if kept else reading(cost, held, again, machine, units)

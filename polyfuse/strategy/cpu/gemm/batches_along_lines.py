"""Find the batches of a product along which what follows it moves inside cache lines.

momentum[f, c, n, p] <- sums[n, p, c, f]: outside of the tiles each of 3 x 3 values of n and p would bring in every line
of momentum for a ninth of its numbers. A step of ResNet-18's filters of 512 x 512 x 3 x 3 took 57 ms so, and 8 to 13
with n and p inside (one core of a Zen 3).
"""

from __future__ import annotations

import islpy as isl

from polyfuse.ir import Nest
from polyfuse.machine import CpuMachine
from polyfuse.sets import SET
from polyfuse.strategy.cost.counts import Counts, dims_of
from polyfuse.strategy.cost.kernel_model import LINE, Kernel, internal
from polyfuse.strategy.cost.roofline import CACHED
from polyfuse.strategy.match.epilogue import Needs
from polyfuse.strategy.match.gemm import Product


def along_lines(
    nest: Nest, counts: Counts, kernel: Kernel, product: Product, needs: Needs, machine: CpuMachine
) -> frozenset[int]:
    """Return the dimensions of batches of the same right factor that are better inside of tiles.

    Along these a follower of the product moves by less than a line in a tensor that L2 does not hold.

    Args:
        nest: The nest.
        counts: The facts about it.
        kernel: The kernel around the product.
        product: The product.
        needs: For each statement behind the product, whose sums it reads.
        machine: The CPU.

    Returns:
        The dimensions, of those that `product.alike` has.
    """
    hidden, space = internal(kernel), nest.domains[product.statement].get_space()
    found: set[int] = set()
    for d in product.alike:
        value = isl.Map.from_aff(isl.Aff.var_on_domain(isl.LocalSpace.from_space(space), SET, d))
        for follower, need in needs.items():
            batch = need.apply_range(value)
            if not batch.is_single_valued():
                continue
            own = dims_of(isl.PwMultiAff.from_map(batch).get_pw_aff(0).gist(batch.domain()))
            for access in nest.statement(follower).accesses if len(own) == 1 else ():
                moved = counts.elements_between(access, *own) * nest.tensor(access.tensor).itemsize
                far = counts.tensor_bytes(access.tensor) > machine.levels[CACHED].size
                if access.tensor not in hidden and far and 0 < moved < LINE:
                    found.add(d)
    return frozenset(found)

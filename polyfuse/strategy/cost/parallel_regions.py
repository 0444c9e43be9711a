"""Price kernels that are joined into one parallel region, in which the cores wait for each other.

seconds = launch + region + Σ of the parts, each as a kernel without these + a wait between every two
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import ON_CORES, Loop, Tree, loops, parts
from polyfuse.machine import CpuMachine
from polyfuse.schedule.binding import extent
from polyfuse.strategy.cost.roofline import WAIT_SECONDS, KernelCost, combined


def is_on_cores(tree: Tree) -> bool:
    """True if a kernel is a parallel region."""
    return any(loop.bind in ON_CORES for loop in loops(tree))


def joined_kernels(nest: Nest, kernel: Tree) -> tuple[Tree, ...]:
    """The kernels that one is joined of, in order; none if it is not: no loop of one value around several on cores.

    for region in 0: { for i (cores): A;  for j (cores): B }   ->   for i (cores): A,  for j (cores): B
    """
    if not isinstance(kernel, Loop) or kernel.bind is not None or extent(nest, kernel) != 1:
        return ()
    inside = parts(kernel.body)
    return inside if sum(map(is_on_cores, inside)) > 1 else ()


def region_cost(kernels: Sequence[Tree], costs: Sequence[KernelCost], machine: CpuMachine) -> KernelCost:
    """The cost of kernels in one region, from what each costs as one of its own."""
    launch, region = machine.launch_seconds, machine.region_seconds
    starts = [launch + (region if is_on_cores(kernel) else 0.0) for kernel in kernels]
    found = [
        (replace(cost, overhead=cost.overhead - start), 1) for cost, start in zip(costs, starts, strict=True)
    ]
    waits = len(kernels) - 1
    return combined(found, launch + region, waits, waits * WAIT_SECONDS)

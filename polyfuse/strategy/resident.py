"""What the model expects of a kernel whose blocks wait for each other, part by part between its grid barriers.

    seconds = launch + Σ of the parts that blocks share out, each as a kernel without a launch + grid barriers

A part inside loops in order is counted with all its instances: what it finds in shared memory, or in L2, from one value
to the next is read from memory once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from polyfuse.analysis.storage import BLOCKS
from polyfuse.ir.tree import Leaf, Loop, Sequence, Tree, children, loops
from polyfuse.machine import Machine
from polyfuse.strategy.cost import KernelCost, Tiling
from polyfuse.strategy.counts import Counts

Priced = Callable[[Tree], KernelCost]


def resident_cost(counts: Counts, kernel: Tree, machine: Machine, priced: Priced) -> KernelCost:
    """The cost of a kernel of several parts, each `priced` as a kernel of its own."""
    assert machine.gpu is not None, "blocks are a GPU's"
    launch = machine.launch_seconds
    found = [(priced(part), times) for part, times in _parts(counts, kernel, 1)]
    costs = [cost for cost, _ in found]
    meetings = grid_meetings(counts, kernel)
    waits = meetings * machine.gpu.grid_barrier_seconds
    flops = sum(cost.flops for cost in costs)
    return KernelCost(
        Tiling((), ()),
        flops,
        sum(cost.compulsory for cost in costs),
        sum(cost.again for cost in costs),
        max(cost.tiles for cost in costs),
        sum(cost.utilisation * cost.flops for cost in costs) / max(1, flops),
        sum(cost.compute for cost in costs),
        sum(cost.memory for cost in costs),
        launch + sum((cost.overhead - launch) * times for cost, times in found) + waits,
        max(cost.exposed for cost in costs),
        sum(cost.waiting for cost in costs),
        meetings,
        waits,
    )


def grid_meetings(counts: Counts, kernel: Tree) -> int:
    """How often all blocks meet in one launch."""
    return sum(times for node, times in _nodes(counts, kernel, 1) for _ in range(_at(node)))


def _at(node: Tree) -> int:
    """The grid barriers of a node: one at the end of a loop's iterations, several in a sequence."""
    if isinstance(node, Leaf):
        return 0
    return int(node.grid) if isinstance(node, Loop) else len(node.grid)


def _nodes(counts: Counts, tree: Tree, times: int) -> Iterator[tuple[Tree, int]]:
    """Every node with the number of times that it runs; a loop with that of its iterations."""
    times *= counts.extent(tree) if isinstance(tree, Loop) else 1
    yield tree, times
    for child in children(tree):
        yield from _nodes(counts, child, times)


def _parts(counts: Counts, tree: Tree, times: int) -> Iterator[tuple[Tree, int]]:
    """The largest parts that a loop over blocks is around, or that none is in, with the number of times they run."""
    split = isinstance(tree, Sequence) or (isinstance(tree, Loop) and tree.bind not in BLOCKS)
    if not split or not any(loop.bind in BLOCKS for loop in loops(tree)):
        yield tree, times
        return
    inside = times * (counts.extent(tree) if isinstance(tree, Loop) else 1)
    for child in children(tree):
        yield from _parts(counts, child, inside)

"""Price a kernel with grid barriers, part by part between them.

    seconds = launch + Σ of the parts that blocks share out, each as a kernel without a launch + grid barriers

A part inside loops in order is counted with all its instances: what it finds in shared memory, or in L2, from one value
to the next is read from memory once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from polyfuse.analysis.across_blocks import is_resident
from polyfuse.analysis.storage import BLOCKS
from polyfuse.ir.tree import Leaf, Loop, Tree, children
from polyfuse.machine import GpuMachine
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.roofline import KernelCost, combined

Priced = Callable[[Tree], KernelCost]


def resident_cost(counts: Counts, kernel: Tree, machine: GpuMachine, priced: Priced) -> KernelCost:
    """The cost of a kernel of several parts, each `priced` as a kernel of its own."""
    found = [(priced(part), times) for part, times in _parts(counts, kernel, 1)]
    return together(found, grid_meetings(counts, kernel), machine)


def together(found: Sequence[tuple[KernelCost, int]], meetings: int, machine: GpuMachine) -> KernelCost:
    """The cost of one launch of what would be kernels, each so many times, whose blocks meet so often."""
    launch = machine.launch_seconds
    without = [(replace(cost, overhead=cost.overhead - launch), times) for cost, times in found]
    return combined(without, launch, meetings, machine.gpu.meeting_seconds(meetings))


def with_meetings(cost: KernelCost, counts: Counts, kernel: Tree, machine: GpuMachine) -> KernelCost:
    """The cost with the grid barriers that a kernel has now that they are placed."""
    if not is_resident(kernel):
        return cost
    meetings = grid_meetings(counts, kernel)
    waits = machine.gpu.meeting_seconds(meetings)
    overhead = cost.overhead - cost.meeting_seconds + waits
    return replace(cost, overhead=overhead, meetings=meetings, meeting_seconds=waits)


def grid_meetings(counts: Counts, kernel: Tree) -> int:
    """The number of grid barriers that one launch executes."""
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
    """The largest parts that loops over blocks are around, or that none is in, with the number of times they run.

    for i (block.y): { S; for j (block.x): T }   ->   for i (block.y): S   and   for i (block.y): for j (block.x): T
    """
    if not is_resident(tree):
        yield tree, times
    elif isinstance(tree, Loop) and tree.bind in BLOCKS:
        for part, often in _parts(counts, tree.body, times):
            yield _around(tree, part), often
    else:
        inside = times * (counts.extent(tree) if isinstance(tree, Loop) else 1)
        for child in children(tree):
            yield from _parts(counts, child, inside)


def _around(loop: Loop, part: Tree) -> Loop:
    """The loop with a part of its body alone."""
    return replace(loop, dates=tuple((n, date) for n, date in loop.dates if n in part.members), body=part)

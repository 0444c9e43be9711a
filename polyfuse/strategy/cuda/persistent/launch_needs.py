"""What kernels need of one launch: blocks, threads and shared memory, and how many such blocks a GPU holds at once."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from polyfuse.analysis.storage import BLOCKS, CLUSTERS, LANE, THREADS, buffers_of, geometry
from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import CLUSTER, Tree, loops
from polyfuse.machine import GpuMachine
from polyfuse.schedule.microkernel_verb import MOST_REGISTERS
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.occupancy import WARP, occupancy


@dataclass(frozen=True)
class Needs:
    """What a launch needs: blocks and threads along x, y and z, bytes of shared memory, and whether its threads are
    `warps`.

    Lanes and tensor cores' fragments depend on the whole block's shape, which then has to be the kernel's own.
    """

    blocks: tuple[int, ...]
    threads: tuple[int, ...]
    shared: int
    warps: bool

    def beside(self, other: Needs) -> Needs | None:
        """What one launch needs for both; None where their threads cannot be one block's."""
        if (self.warps or other.warps) and self.threads != other.threads:
            return None
        blocks, threads = (
            tuple(map(max, *pair)) for pair in ((self.blocks, other.blocks), (self.threads, other.threads))
        )
        return Needs(blocks, threads, self.shared + other.shared, self.warps or other.warps)

    def held(self, machine: GpuMachine) -> int:
        """Blocks that are on the GPU at once, whatever registers they take."""
        gpu, threads = machine.gpu, prod(self.threads)
        if threads > gpu.max_threads_per_block or self.shared > gpu.shared_per_block:
            return 0
        return machine.sms * occupancy(gpu, threads, MOST_REGISTERS, self.shared).blocks


def needs_of(counts: Counts, kernel: Tree) -> Needs:
    """What a kernel needs as it stands."""
    along = dict.fromkeys((*BLOCKS, *THREADS), 1)
    for loop in loops(kernel):
        axis = THREADS[0] if loop.bind == LANE else loop.bind
        if axis in along:
            count = counts.extent(loop)
            along[axis] = max(along[axis], -(-count // WARP) * WARP if loop.bind == LANE else count)
    warps = any(loop.bind == LANE or loop.math != "ieee" for loop in loops(kernel))
    blocks = tuple(along[axis] * along[own] for axis, own in zip(CLUSTERS, CLUSTER, strict=True))
    return Needs(blocks, tuple(along[axis] for axis in THREADS), _shared(counts.nest, kernel), warps)


def _shared(nest: Nest, kernel: Tree) -> int:
    """Bytes of a block's shared memory."""
    return sum(
        prod(geometry(nest, kernel, loop, buffer).shape) * nest.tensor(buffer.tensor).itemsize
        for loop, buffer in buffers_of(kernel)
        if buffer.memory == "shared"
    )

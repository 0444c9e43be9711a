"""The limits of a GPU: what a block and an SM can hold, and what barriers cost."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from polyfuse.machine.levels import KiB

GRID_BARRIER_SECONDS = 1.2e-6
"""One barrier of all blocks of a Hopper GPU, a way to L2 and back for an addition and one for what waits, and two
barriers of a block: an assumption, in the order of what others report for cooperative groups, and not a measurement."""

BARRIER_SECONDS = 20e-9
"""One barrier of a block: some 30 cycles, an order of magnitude and not a measurement."""


@dataclass(frozen=True)
class Gpu:
    """The limits and costs of a GPU.

    Attributes:
        compute_capability: (major, minor).
        registers_per_sm: 32-bit registers of an SM.
        shared_per_block: Bytes of shared memory that a launch can request per block.
        shared_per_sm: Bytes of shared memory of an SM.
        max_threads_per_block: Threads of a block.
        max_threads_per_sm: Threads resident on an SM.
        barrier_seconds: Seconds of a block's barrier.
        shared_static: Bytes of shared memory that a block has without a request at launch.
        max_blocks_per_sm: Blocks resident on an SM.
        grid_barrier_seconds: Seconds of a barrier of all blocks; None if blocks run one after the other.
        meeting_cycles: Cycles in which the tensor cores are idle between two tiles of a block: the last products
            drain, a barrier, the next descriptors. An assumption, not measured.
        cluster: The largest number of blocks in a cluster; 1 if there are no clusters.
    """

    compute_capability: tuple[int, int]
    registers_per_sm: int
    shared_per_block: int
    shared_per_sm: int
    max_threads_per_block: int
    max_threads_per_sm: int
    barrier_seconds: float
    shared_static: int = 48 * KiB
    max_blocks_per_sm: int = 32
    grid_barrier_seconds: float | None = GRID_BARRIER_SECONDS
    meeting_cycles: int = 100
    cluster: int = 1

    def meeting_seconds(self, times: int) -> float:
        """Return the seconds of a number of grid barriers."""
        if self.grid_barrier_seconds is None:
            return inf if times else 0.0
        return times * self.grid_barrier_seconds


def limits_of(
    capability: tuple[int, int], shared_per_sm: int, threads_per_sm: int = 2048, blocks_per_sm: int = 32
) -> Gpu:
    """The limits of a compute capability (CUDA C++ Programming Guide, table of technical specifications)."""
    return Gpu(
        capability,
        65536,
        shared_per_sm - 1 * KiB,
        shared_per_sm,
        1024,
        threads_per_sm,
        BARRIER_SECONDS,
        max_blocks_per_sm=blocks_per_sm,
        cluster=8 if capability >= (9, 0) else 1,
    )

"""Loop bindings: a CPU's cores and vector lanes, a GPU's blocks, threads and lanes, or one instruction.

A loop without a binding runs its values in order. Members are strings, so that a user may write bind(i="block.x").
"""

from __future__ import annotations

from enum import StrEnum


class Binding(StrEnum):
    """Hardware that runs a loop's values, for `Schedule.bind`, which takes members and their strings alike.

    `VECTOR`, `UNROLL` and `MICROKERNEL` have verbs of their own: `vectorize`, `unroll` and `microkernel`.
    """

    CORES = "cores"
    """Cores, equally many values each, in no order."""
    DYNAMIC = "dynamic"
    """Cores: whichever is free takes the next value."""
    PIPELINE = "pipeline"
    """Cores: each value waits for the one before it at every value of the loop directly inside."""
    BLOCK_X = "block.x"
    """Blocks of a GPU's grid along x, in no order."""
    BLOCK_Y = "block.y"
    """The same along y."""
    BLOCK_Z = "block.z"
    """The same along z."""
    CLUSTER_X = "cluster.x"
    """Blocks of one cluster along x, at once on neighbouring multiprocessors."""
    CLUSTER_Y = "cluster.y"
    """The same along y."""
    CLUSTER_Z = "cluster.z"
    """The same along z."""
    THREAD_X = "thread.x"
    """Threads of a block along x, neighbours in a warp."""
    THREAD_Y = "thread.y"
    """Threads of a block along y."""
    THREAD_Z = "thread.z"
    """Threads of a block along z."""
    LANE = "lane"
    """The 32 threads of a warp, along thread.x, which combine a reduction's values."""
    VECTOR = "vector"
    """The lanes of vector instructions."""
    UNROLL = "unroll"
    """Copies of the body, one for each value."""
    MICROKERNEL = "microkernel"
    """A tile of a product in registers, with the loops inside."""
    BULK = "bulk"
    """One instruction of the block's first thread, with the loops inside."""
    BULK_WARP = "bulk.warp"
    """The same of a warp that only copies."""

    def __repr__(self) -> str:
        """As a user writes it: printed schedules have strings."""
        return repr(self.value)

    @property
    def on_gpu(self) -> bool:
        """True if a CPU has no such place."""
        return self not in (*ON_CORES, Binding.VECTOR, Binding.UNROLL, Binding.MICROKERNEL)


SHARED = (Binding.CORES, Binding.DYNAMIC)
"""The bindings of parallel loops on a CPU's cores: iterations in any order, shared equally or dynamically."""

ON_CORES = (*SHARED, Binding.PIPELINE)
"""The bindings of loops that run on several cores of a CPU."""

BULK = (Binding.BULK, Binding.BULK_WARP)
"""Bindings of loops that one instruction runs, with the loops inside: by the block's first thread, or by a warp that
only copies."""

OWN_WARP = Binding.BULK_WARP

CLUSTER = (Binding.CLUSTER_X, Binding.CLUSTER_Y, Binding.CLUSTER_Z)
"""The bindings of loops over the blocks of one cluster, which run at once on neighbouring multiprocessors."""

"""Occupancy: the blocks of threads that an SM holds at once, and the resource that limits them.

    warps × registers a lane, in pieces of 256    shared memory + what the system keeps of it    threads    blocks

CUDA C++ Programming Guide, tables of compute capabilities; what is allocated at a time, from NVIDIA's occupancy
calculator.
"""

from __future__ import annotations

from dataclasses import dataclass

from polyfuse.errors import quantity
from polyfuse.machine import Gpu

WARP = 32

REGISTERS_AT_A_TIME = 256
"""Registers that a warp gets at a time."""

WARPS_AT_A_TIME = 4
"""An SM's quarters have registers of their own, and warps are shared out among them: nine are three in one of them."""

SYSTEM_SHARED = 1024
"""Bytes of shared memory that the system keeps of each block, from compute capability 8.0 on."""


@dataclass(frozen=True)
class Occupancy:
    """Blocks that are resident in an SM, the part of its threads that they are, and what there is too little of."""

    blocks: int
    fraction: float
    limit: str

    def __str__(self) -> str:
        return f"{quantity(self.blocks, 'block')} on an SM, {self.fraction:.0%} of its threads ({self.limit})"


def occupancy(gpu: Gpu, threads: int, registers: int | None, shared_bytes: int) -> Occupancy:
    """The occupancy of an SM by blocks with so many threads; 0 blocks if one does not fit. Registers may be unknown.

    >>> from polyfuse.machine import GpuMachine
    >>> gpu = GpuMachine.preset("h200").gpu
    >>> print(occupancy(gpu, 256, 128, 20480))
    2 blocks on an SM, 25% of its threads (registers)
    >>> print(occupancy(gpu, 32, None, 0))
    32 blocks on an SM, 50% of its threads (blocks)
    """
    warps = -(-threads // WARP)
    fits = {
        "threads": gpu.max_threads_per_sm // (warps * WARP),
        "blocks": gpu.max_blocks_per_sm,
        "shared memory": gpu.shared_per_sm // (shared_bytes + SYSTEM_SHARED),
    }
    if registers is not None:
        of_warp = -(-registers * WARP // REGISTERS_AT_A_TIME) * REGISTERS_AT_A_TIME
        fits["registers"] = gpu.registers_per_sm // of_warp // WARPS_AT_A_TIME * WARPS_AT_A_TIME // warps
    blocks = min(fits.values())
    limit = next(what for what, most in fits.items() if most == blocks)
    return Occupancy(blocks, blocks * warps * WARP / gpu.max_threads_per_sm, limit)

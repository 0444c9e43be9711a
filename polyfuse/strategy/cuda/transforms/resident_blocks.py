"""Limit the blocks of a kernel with grid barriers to those that the GPU holds at once.

    for t: for i: for j: …   ->   for t: for ij: for ij_in: …      ij_in are blocks; ij runs in order, if it has to

A block that waits for one that has not begun would wait forever.
"""

from __future__ import annotations

from polyfuse.machine import GpuMachine
from polyfuse.schedule import Schedule
from polyfuse.strategy.cost.kernel_model import Kernel
from polyfuse.strategy.transforms.band_verbs import constant_extent, inside

BLOCKS_OF_AN_SM = 1
"""Blocks that an SM is sure to hold, whatever registers and shared memory a kernel takes."""


def blocks_at_once(
    schedule: Schedule, kernel: Kernel, blocks: tuple[str, ...], machine: GpuMachine
) -> tuple[Schedule, tuple[str, ...], int]:
    """The schedule, which of some loops over blocks may be bound, and how many loops in order are around these.

    All of them and none where nothing runs around the kernel: its blocks wait for nobody. Else one loop, so that the
    grid of a launch has no more blocks than its largest part: an axis is as long as the longest of any part on it.
    """
    if not kernel.around:
        return schedule, blocks, 0
    most, name = machine.units * BLOCKS_OF_AN_SM, kernel.names[0]
    for _ in blocks[1:]:
        two = [loop.name for loop in schedule.loops(name)[len(kernel.around) :]][:2]
        schedule = schedule.collapse(name, *two)
    block = schedule.loops(name)[len(kernel.around)]
    size = constant_extent(schedule, block)
    if size is not None and size <= most:
        return schedule, (block.name,), 0
    rounds = 1 if size is None else -(-size // most)
    schedule = schedule.split(name, block.name, most if size is None else -(-size // rounds))
    return schedule, (inside(schedule, name, block.name).name,), 1

"""Predict each GPU launch: resident blocks, and the time's parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil, prod

from polyfuse.codegen.program import Program
from polyfuse.errors import quantity
from polyfuse.machine import Gpu
from polyfuse.measure import duration
from polyfuse.strategy import KernelCost
from polyfuse.strategy.cost.occupancy import Occupancy, occupancy


@dataclass(frozen=True)
class GpuLimits:
    """What the occupancy of a launch depends on: the SMs and the limits of the machine that was planned for."""

    sms: int
    limits: Gpu


@dataclass(frozen=True)
class KernelTime:
    """The predicted time of one kernel launch.

    Attributes:
        kernel: The kernel's name.
        blocks: Blocks of the launch.
        threads: Threads of a block.
        registers: Registers planned for a thread; None if the compiler is free to choose.
        shared_bytes: Shared memory of a block.
        occupancy: Resident blocks and warps of an SM.
        waves: Rounds in which the SMs run all blocks.
        cost: Seconds: `cost.compute` to issue the instructions, `cost.memory` to move the bytes.
    """

    kernel: str
    blocks: int
    threads: int
    registers: int | None
    shared_bytes: int
    occupancy: Occupancy
    waves: int
    cost: KernelCost

    def __str__(self) -> str:
        registers = "registers not planned" if self.registers is None else f"{self.registers} registers"
        waves = quantity(self.waves, "wave")
        return (
            f"{self.kernel}: {duration(self.cost.total)}: {self.cost.before}, "
            f"{duration(self.cost.compute)} of instructions, {duration(self.cost.memory)} of bytes; "
            f"{self.blocks} × {self.threads} threads, {registers}, {self.shared_bytes} bytes shared: "
            f"{self.occupancy}, {waves}"
        )


def kernel_times(
    program: Program, machine: GpuLimits | None, costs: tuple[KernelCost, ...], sizes: Mapping[str, int]
) -> Iterator[KernelTime]:
    """The launches of a call for given sizes, in order; none on a CPU."""
    if machine is None:
        return
    for launch, cost in zip(program.launches, costs, strict=True):
        if launch.once:
            continue
        blocks, threads = map(prod, launch.extents(sizes))
        code = launch.code
        held = occupancy(machine.limits, max(1, threads), code.registers, code.shared_bytes)
        waves = ceil(blocks / (machine.sms * max(1, held.blocks)))
        yield KernelTime(launch.name, blocks, threads, code.registers, code.shared_bytes, held, waves, cost)

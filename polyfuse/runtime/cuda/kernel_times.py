"""What the model expects of each of a GPU's launches: how many blocks run at once, where its time goes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil, prod

from polyfuse.codegen.program import Program
from polyfuse.machine import Gpu
from polyfuse.strategy import KernelCost
from polyfuse.strategy.cost.occupancy import Occupancy, occupancy
from polyfuse.strategy.cost.roofline import microseconds


@dataclass(frozen=True)
class GpuCosts:
    """The machine that was planned for, and the model's cost of each launch."""

    sms: int
    limits: Gpu
    costs: tuple[KernelCost, ...]


@dataclass(frozen=True)
class KernelTime:
    """One launch. `registers` are those planned for a thread, None where the compiler is free to choose.

    `cost.compute` is the time in which its instructions are issued, `cost.memory` that in which its bytes are moved.
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
        waves = "1 wave" if self.waves == 1 else f"{self.waves} waves"
        return (
            f"{self.kernel}: {microseconds(self.cost.total)}: {self.cost.before}, "
            f"{microseconds(self.cost.compute)} of instructions, {microseconds(self.cost.memory)} of bytes; "
            f"{self.blocks} × {self.threads} threads, {registers}, {self.shared_bytes} bytes shared: "
            f"{self.occupancy}, {waves}"
        )


def kernel_times(
    program: Program, machine: GpuCosts | None, sizes: Mapping[str, int]
) -> Iterator[KernelTime]:
    """The launches of a call for given sizes, in order; none on a CPU."""
    if machine is None:
        return
    for launch, cost in zip(program.launches, machine.costs, strict=True):
        if launch.once:
            continue
        blocks, threads = map(prod, launch.extents(sizes))
        code = launch.code
        held = occupancy(machine.limits, max(1, threads), code.registers, code.shared_bytes)
        waves = ceil(blocks / (machine.sms * max(1, held.blocks)))
        yield KernelTime(launch.name, blocks, threads, code.registers, code.shared_bytes, held, waves, cost)

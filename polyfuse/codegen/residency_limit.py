"""Check that all blocks of a launch with grid barriers are resident: its blocks against what the machine holds.

Those of a cluster are, where there are clusters.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from polyfuse.codegen.program import Code, Launch, Program
from polyfuse.errors import InvalidSchedule
from polyfuse.machine import GpuMachine, Machine
from polyfuse.schedule.microkernel_verb import MOST_REGISTERS
from polyfuse.strategy.cost.occupancy import occupancy


def check_residence(program: Program, machine: Machine) -> None:
    """Raises InvalidSchedule for a kernel with grid barriers and more blocks than the machine holds at once.

    A block that waits for one that has not begun waits forever. Registers count where they are planned; what the
    compiler takes, and sizes that a call brings, are checked when the kernel is launched (driver.py).
    """
    for launch in program.launches:
        if isinstance(machine, GpuMachine) and launch.code.grid_barriers and not program.sizes:
            _check(launch, machine)


def check_clusters(program: Program, machine: Machine) -> None:
    """Raises InvalidSchedule for a kernel in clusters of blocks, where the machine has none."""
    if not isinstance(machine, GpuMachine):
        return
    for code in program.codes:
        if prod(code.cluster) > machine.gpu.cluster:
            major, minor = machine.gpu.compute_capability
            raise InvalidSchedule(
                f"kernel {code.name} has clusters of {' × '.join(map(str, code.cluster))} blocks, which GPUs have from "
                f"compute capability 9.0 on, and {machine.name} has {major}.{minor}: bind the loop to blocks"
            )


def with_room(program: Program, machine: Machine) -> Program:
    """The program whose kernels have as many registers as leave their blocks on the GPU at once, where these are.

    More blocks than a launch has need no room, and what is planned for a tile may be too little: for each of a
    kernel's parts (of float64 numbers 4 × 4 results in 120 registers spill 120 bytes in four layers, and none in one),
    and for tiles that are written out twice, whole ones and those that are cut.
    """
    if program.sizes or not isinstance(machine, GpuMachine):
        return program
    roomy: dict[int, Code] = {}
    for launch in program.launches:
        code = launch.code
        if code.registers is not None:
            most = _most_registers(launch, code.registers, machine)
            kept = roomy.get(id(code))
            if kept is None or kept.registers is None or most < kept.registers:
                roomy[id(code)] = replace(code, registers=most)
    launches = tuple(replace(x, code=roomy.get(id(x.code), x.code)) for x in program.launches)
    return replace(program, launches=launches) if roomy else program


def _most_registers(launch: Launch, planned: int, machine: GpuMachine) -> int:
    blocks, threads = map(prod, launch.extents({}))
    fits = (
        registers
        for registers in range(MOST_REGISTERS, planned, -1)
        if occupancy(machine.gpu, max(1, threads), registers, launch.code.shared_bytes).blocks * machine.sms
        >= blocks
    )
    return next(fits, planned)


def _check(launch: Launch, machine: GpuMachine) -> None:
    blocks, threads = map(prod, launch.extents({}))
    held = occupancy(machine.gpu, max(1, threads), launch.code.registers, launch.code.shared_bytes)
    most = held.blocks * machine.sms
    if blocks > most:
        raise InvalidSchedule(
            f"the {blocks} blocks of kernel {launch.name} wait for each other at a grid barrier, and {machine.name} "
            f"holds {most} of them at once: {held}, {machine.sms} SMs; give each block more values, so that there are "
            "fewer"
        )

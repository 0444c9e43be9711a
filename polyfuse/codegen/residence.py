"""Whether blocks that wait for each other are on the GPU at once: what a launch has, and what the machine holds."""

from __future__ import annotations

from math import prod

from polyfuse.codegen.program import Launch, Program
from polyfuse.errors import InvalidSchedule
from polyfuse.machine import Machine
from polyfuse.strategy.occupancy import occupancy


def check_residence(program: Program, machine: Machine) -> None:
    """Raises InvalidSchedule for a kernel with grid barriers and more blocks than the machine holds at once.

    A block that waits for one that has not begun waits forever. Registers count where they are planned; what the
    compiler takes, and sizes that a call brings, are checked when the kernel is launched (runtime/cuda_driver.py).
    """
    for launch in program.launches:
        if launch.code.grid_barriers and not program.sizes:
            _check(launch, machine)


def _check(launch: Launch, machine: Machine) -> None:
    assert machine.gpu is not None, "blocks are a GPU's"
    blocks, threads = map(prod, launch.extents({}))
    held = occupancy(machine.gpu, max(1, threads), launch.code.registers, launch.code.shared_bytes)
    most = held.blocks * machine.sms
    if blocks > most:
        raise InvalidSchedule(
            f"the {blocks} blocks of kernel {launch.name} wait for each other at a grid barrier, and {machine.name} "
            f"holds {most} of them at once: {held}, {machine.sms} SMs; give each block more values, so that there are "
            "fewer"
        )

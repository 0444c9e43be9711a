"""The result of a compile: all decisions, and the part that runs, prints and reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from polyfuse.analysis.validation import Validation
from polyfuse.codegen.program import Program
from polyfuse.errors import quantity
from polyfuse.machine import GpuMachine, Machine
from polyfuse.rewrite.storage.expansion import Expansion
from polyfuse.runtime.cuda.kernel_times import GpuLimits
from polyfuse.runtime.memory.memory_plan import Memory
from polyfuse.schedule import Schedule
from polyfuse.strategy import KernelCost, Plan
from polyfuse.strategy.cost.composite import roofline_bounds
from polyfuse.strategy.explanation import Explanation, Kernel

Device = Literal["cpu", "gpu", "lockstep", "simulator", "none"]
"""The place where an executable runs: the CPU, a GPU, an emulator, or nowhere (it can be printed)."""


@dataclass(frozen=True)
class Work:
    """The cost model's figures for one call: operations, bytes moved, seconds."""

    flops: int
    bytes_moved: int
    seconds: float


@dataclass(frozen=True)
class Product:
    """All that an executable needs to run, to print its kernels and to report; without schedule and isl objects.

    `costs` are the model's, and `bounds` the seconds that the roofline allows at least: one for each launch.
    """

    program: Program
    memory: Memory
    machine: str
    work: Work
    explanation: Explanation
    costs: tuple[KernelCost, ...]
    bounds: tuple[float, ...]
    gpu: GpuLimits | None = None


@dataclass(frozen=True)
class Compiled:
    """Everything a compile decided, from the schedule on."""

    schedule: Schedule
    plan: Plan | None
    costs: tuple[KernelCost, ...]
    validation: Validation
    program: Program
    machine: Machine
    device: Device
    seconds: Mapping[str, float]
    expansions: tuple[Expansion, ...] = ()

    @property
    def product(self) -> Product:
        """The part that a call, a listing and a report need."""
        launches, s = self.program.launches, self.schedule
        memory = Memory.of(s.source, s.nest, s.tree, tuple(launch.once for launch in launches))
        costs = [c for c, launch in zip(self.costs, launches, strict=True) if not launch.once]
        work = Work(
            flops=sum(cost.flops for cost in costs),
            bytes_moved=sum(cost.compulsory + cost.again for cost in costs),
            seconds=sum(cost.total for cost in costs),
        )
        machine, gpu = self.machine, None
        if isinstance(machine, GpuMachine):
            gpu = GpuLimits(machine.units, machine.gpu)
        bounds = roofline_bounds(s, self.costs, machine)
        return Product(self.program, memory, machine.label, work, self.explanation, self.costs, bounds, gpu)

    @property
    def explanation(self) -> Explanation:
        """Each fusion taken and each refused, with the reason; then what validation checked."""
        remarks = () if self.plan is None else self.plan.log
        kernels = (Kernel(launch.name, launch.statements, str(launch)) for launch in self.program.launches)
        return Explanation(self._told, kernels, remarks)

    @property
    def _told(self) -> str:
        count = len(self.program.launches)
        lines = [f"{quantity(count, 'kernel')} on {self.machine.label}"]
        lines += [f"  {launch}" for launch in self.program.launches]
        if self.plan is None:
            lines.append("the schedule was given by hand; no fusion was searched for")
        else:
            lines += [f"- {expansion}" for expansion in self.expansions]
            lines += [f"- {decision}" for decision in self.plan.decisions]
            lines += [f"- {note}" for note in self.plan.notes]
        lines += [f"- {_untiled(name)}" for launch in self.program.launches for name in launch.untiled]
        return "\n".join([*lines, str(self.validation)])


def _untiled(name: str) -> str:
    return (
        f"{name} has no tile of results in registers, though it is in a microkernel: its sums lie in memory, or its "
        "factors in no spread panels, and it runs as plain loops"
    )

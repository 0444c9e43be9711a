"""Options of the planner: assumptions of the cost model besides the facts of a machine.

A pass that compares two ways of running kernels plans for both, with an option for what differs between them. The
machine stays what it is; `PlannerOptions.on` makes the one that the model is asked about, here and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import overload

from polyfuse.machine import CpuMachine, GpuMachine, Machine
from polyfuse.strategy.cost.roofline import WAIT_SECONDS

CODE_SECONDS = 0.5
"""The extra seconds of compiling a parallel loop: the price of a region in a kernel that runs once."""


@dataclass(frozen=True)
class PlannerOptions:
    """The assumptions of the cost model.

    Attributes:
        joined_regions: kernels are going to share one parallel region, so that one more loop over cores costs a wait
            for the other cores and not the start of a region (parallel_region.py).
        copying_warps: blocks of a GPU may have a warp that only copies, and form clusters. Without, blocks may meet
            in one launch, and nothing is gained by such warps (cooperative_launch.py).
        one_core: a kernel is one core's alone (wavefront.py).
        runs_once: a kernel runs once for all calls, so that a loop over cores has to save what its machine code takes
            longer to make.
        rows_ahead: rows come from the second cache ahead of their use, so that the first one plays no part
            (shared_sweep.py).
    """

    joined_regions: bool = False
    copying_warps: bool = True
    one_core: bool = False
    runs_once: bool = False
    rows_ahead: bool = False

    @overload
    def on(self, machine: CpuMachine) -> CpuMachine: ...

    @overload
    def on(self, machine: Machine) -> Machine: ...

    def on(self, machine: Machine) -> Machine:
        """The machine that the model is asked about."""
        if self.joined_regions and isinstance(machine, CpuMachine):
            machine = replace(machine, region_seconds=min(WAIT_SECONDS, machine.region_seconds))
        if self.runs_once and isinstance(machine, CpuMachine):
            machine = replace(machine, region_seconds=CODE_SECONDS)
        if self.one_core:
            machine = replace(machine, units=1)
        if self.rows_ahead:
            machine = replace(machine, levels=machine.levels[1:])
        if not self.copying_warps and isinstance(machine, GpuMachine):
            machine = replace(machine, gpu=replace(machine.gpu, meeting_cycles=0, cluster=1))
        return machine

"""Run CUDA programs without a GPU: the same source in an emulator, launch by launch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from polyfuse.codegen.looptree.half_types import as_held
from polyfuse.codegen.program import Program
from polyfuse.simulator.lockstep import run as run_lockstep
from polyfuse.simulator.numba_simulator import simulate

StandIn = Literal["lockstep", "simulator"]


class EmulatedProgram:
    """Runs kernels on "lockstep" (NumPy, all threads at once, races and bounds checked) or numba's "simulator"."""

    def __init__(self, program: Program, stand_in: StandIn) -> None:
        self.program = program
        self._in_lockstep = stand_in == "lockstep"

    def run(self, arrays: Mapping[str, npt.NDArray[Any]], sizes: Mapping[str, int]) -> None:
        """Run every launch in order on the arrays, in place."""
        extra = [sizes[name] for name in self.program.sizes]
        for launch in self.program.launches:
            grid, block = launch.extents(sizes)
            if 0 in grid or 0 in block:
                continue
            flat = [as_held(np.reshape(arrays[name], -1, copy=False)) for name in launch.tensors]
            counter = [np.zeros(1, np.int32)] if launch.code.grid_barriers else []
            maps = [each.of(flat[each.position], sizes) for each in launch.code.maps]
            arguments = [*flat, *counter, *extra, *maps]
            if self._in_lockstep:
                run_lockstep(launch.source, launch.name, grid, block, arguments, cluster=launch.code.cluster)
            else:
                simulate(launch.source, launch.name, grid, block, arguments)

"""Time each kernel of a CPU's program inside its calls, where it finds in the caches what the kernels before it left.

    t0 = clock; kernel 0; t1 = clock; kernel 1; t2 = clock; …        seconds of kernel k: t(k+1) - t(k)

The machine code is the program's own but for the reads of the clock in its entry, some 20 ns each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from polyfuse.codegen.program import Program
from polyfuse.measure import settle
from polyfuse.runtime.cpu.native import machine_code
from polyfuse.runtime.cpu.runner import CpuProgram
from polyfuse.runtime.interface import Phases

Array = npt.NDArray[Any]

TURN_SECONDS = 0.004
"""The time of a turn, or of one call where a call takes longer."""

MOST_CALLS = 256
"""Calls of a turn: the clock is read after each kernel, so that more of a short call add little."""


def timed_program(
    program: Program, phases: Phases, constants: Mapping[str, Array]
) -> Callable[[Mapping[str, Array], Mapping[str, int]], Array]:
    """Return a function that runs a program once, on arrays by name, and gives the seconds of each launch."""
    stamps = np.zeros(len(phases.calls.launches) + 1, np.int64)
    runner = CpuProgram(machine_code(program, phases, timed=True), phases, constants, stamps)

    def run(arrays: Mapping[str, Array], sizes: Mapping[str, int]) -> Array:
        runner.run(arrays, sizes)
        found: Array = np.diff(stamps) * 1e-9
        return found

    return run


def seconds_of_launches(
    run: Callable[[], Array], restore: Callable[[], object], turns: int, pause: float
) -> tuple[list[Array], int]:
    """Return the seconds of each launch in each turn: the mean over the calls of the turn, and their number.

    Args:
        run: Runs the program and gives the seconds of its launches.
        restore: Called before each run: gives the arrays that a call changes their values again.
        turns: The number of turns.
        pause: Seconds to wait before each.
    """
    restore()
    run()
    restore()
    once = float(run().sum())
    calls = min(MOST_CALLS, max(1, round(TURN_SECONDS / max(once, 1e-9))))
    found = []
    for _ in range(turns):
        settle(pause)
        taken = []
        for _ in range(calls + 1):
            restore()
            taken.append(run())
        found.append(np.mean(taken[1:], axis=0))  # the first one wakes the threads and the processor
    return found, calls

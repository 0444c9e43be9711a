"""The GPU emulator: run a CUDA kernel's source for all threads at once, in lock-step, with NumPy.

Every statement is executed once for all threads of many blocks; divergent control flow runs under a mask of
active threads. Lock-step order alone would hide a missing barrier, so every access is also checked against
every other one (`lockstep_memory`): a run that ends without an error has no race for these sizes, whatever
order a GPU picks. Blocks that wait for each other run together, all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from polyfuse.analysis.banks import MOST_THREADS
from polyfuse.codegen.cuda.cluster_axes import ALONE
from polyfuse.codegen.cuda.kernel_grammar import (
    DTYPES,
    KernelSource,
    UnsupportedKernel,
    meets_all,
    parse,
    waits_by_block,
)
from polyfuse.codegen.cuda.tensor_maps import MappedArray
from polyfuse.errors import BadArgument, quantity
from polyfuse.simulator.agents import run_body
from polyfuse.simulator.grid import Grid
from polyfuse.simulator.interpreter import Machine
from polyfuse.simulator.races import (
    LINE_BITS,
    THREAD_BITS,
    BarrierError,
    OutOfBounds,
    RaceError,
    Team,
    pointers,
)
from polyfuse.simulator.values import Value

__all__ = ["BarrierError", "OutOfBounds", "RaceError", "Report", "UnsupportedKernel", "run"]

MEMORY_LIMIT = 1 << 29  # bytes of shared and private memory held at once
TEAM = 1 << 16  # threads: longer vectors leave the cache and are no faster per thread


@dataclass(frozen=True)
class Report:
    """The counts of a launch, over all threads; `barriers` is the most that any one block passed, `grid_barriers`
    how often all blocks met, which is among them.
    """

    statements: int  # assignments executed
    barriers: int
    global_loads: int  # elements
    global_stores: int  # elements
    waits: int | None  # turns that accesses to shared memory waited for banks; None if not counted
    grid_barriers: int = 0


def run(
    source: str,
    name: str,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    args: Sequence[Any],
    memory_limit: int = MEMORY_LIMIT,
    counts_waits: bool = False,
    cluster: tuple[int, int, int] = ALONE,
) -> Report:
    """Runs kernel `name` of `source` over `grid` blocks of `block` threads (1 to 3 numbers each, x first), so many of
    them in a `cluster`.

    `args` are flat C-contiguous NumPy arrays, changed in place, maps of such (MappedArray), and numbers (int -> int64,
    float -> float64, NumPy scalars keep their type). At most `memory_limit` bytes of shared and private memory are held
    at a time. `counts_waits` asks for the bank conflicts of shared memory, which takes as long again.

    Raises RaceError, BarrierError and OutOfBounds for what the kernel does wrong, UnsupportedKernel for
    source outside the subset of `kernel_grammar`, BadArgument for arguments the kernel cannot take.
    """
    kernel = parse(source, name)
    launch = Grid(_extent(grid), _extent(block), cluster)
    if any(n % each for n, each in zip(launch.blocks, cluster, strict=True)):
        raise BadArgument(f"{launch.blocks} blocks are no clusters of {cluster}")
    if launch.per_block > MOST_THREADS:
        raise BadArgument(f"a block has at most {MOST_THREADS} threads on a GPU, not {launch.per_block}")
    arrays, scalars, maps = _bind(kernel, args)
    blocks = math.prod(launch.blocks)
    if blocks * launch.per_block >= 1 << THREAD_BITS or len(kernel.lines) >= 1 << LINE_BITS:
        raise BadArgument(
            f"{blocks} blocks of {launch.per_block} threads are more than the stand-in can number"
        )
    memories = pointers(kernel, arrays, launch)
    step = _blocks_at_once(kernel, launch, memory_limit)
    statements = barriers = loads = stores = waits = meetings = 0
    with np.errstate(all="ignore"):
        for first in range(0, blocks, step):
            team = Team(launch, first, min(step, blocks - first))
            machine = Machine(kernel, team, memories, scalars, counts_waits, maps)
            run_body(machine, kernel)
            statements += machine.statements
            barriers = max(barriers, int(team.epoch.max()))
            loads += machine.loads
            stores += machine.stores
            waits += machine.waits
            meetings += team.meetings
    return Report(statements, barriers, loads, stores, waits if counts_waits else None, meetings)


def _extent(given: int | Sequence[int]) -> tuple[int, int, int]:
    numbers = [int(given)] if isinstance(given, int | np.integer) else [int(n) for n in given]
    if not 1 <= len(numbers) <= 3 or min(numbers) < 1:
        raise BadArgument(f"a grid or block is 1 to 3 positive numbers, {given!r} was given")
    x, y, z = (*numbers, 1, 1)[:3]
    return x, y, z


def _bind(
    kernel: KernelSource, args: Sequence[Any]
) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Value], dict[str, MappedArray]]:
    if len(args) != len(kernel.params):
        raise BadArgument(
            f"{kernel.name} takes {quantity(len(kernel.params), 'argument')}, given {len(args)}"
        )
    arrays: dict[str, npt.NDArray[Any]] = {}
    scalars: dict[str, Value] = {}
    maps = {
        name: given for name, given in zip(kernel.params, args, strict=True) if isinstance(given, MappedArray)
    }
    every = (given.array if isinstance(given, MappedArray) else given for given in args)
    for name, given in zip(kernel.params, every, strict=True):
        if not isinstance(given, np.ndarray):
            scalars[name] = np.int64(given) if isinstance(given, int) else np.asarray(given)[()]
        elif given.ndim == 1 and given.flags.c_contiguous and given.dtype.name in DTYPES:
            arrays[name] = given
        else:
            raise BadArgument(
                f"argument {name!r} of {kernel.name} is {given.dtype}{list(given.shape)}; expected is a "
                f"flat, contiguous array of {', '.join(DTYPES)}"
            )
    return arrays, scalars, maps


def _blocks_at_once(kernel: KernelSource, grid: Grid, limit: int) -> int:
    """One where some blocks wait for their copies more often: a team has one list of what is on its way.

    All where blocks wait for each other, and always whole clusters.
    """
    if meets_all(kernel):
        return math.prod(grid.blocks)
    if waits_by_block(kernel):
        return grid.whole
    scratch = 64 * 8 * grid.per_block  # private scalars and the temporaries of one expression, generously
    for array in kernel.arrays:
        item = np.dtype(array.dtype).itemsize
        scratch += array.size * (item + 24 if array.space == "shared" else item * grid.per_block)
    return grid.whole * max(1, min(limit // scratch, TEAM // grid.per_block) // grid.whole)

"""One PolyBench kernel at its LARGE sizes, in this process: each side built, checked, then timed in turns.

    polyfuse   pf.compile(nest, sizes=…)
    numba      numba.njit(fastmath=True, parallel=True) of the same Python function
    gcc        the same loops in C (c_loops.py), gcc -O3 -march=native -ffast-math -fopenmp
    gcc_auto   and with -ftree-parallelize-loops=THREADS, where there are several threads
    polly      the same C by clang with Polly, if one is installed: clang -O3 -march=native -ffast-math -mllvm -polly
               and -mllvm -polly-parallel, where there are several threads
    numpy      what a person would write with NumPy, where that takes no steps in Python

Sizes are numbers for every side when it compiles. All sides run on the same arrays, which are given their first values
again before each call, outside the clock. A peer that was far behind in its first, checked call is not called again,
nor is Polly where it computes something else.

python -m benchmarks.polybench_sides KERNEL THREADS BESIDE    prints a row of results as JSON
"""

from __future__ import annotations

import inspect
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FunctionType
from typing import Any

import numba
import numpy as np

import polyfuse as pf
from benchmarks.beside import running
from benchmarks.c_loops import compiled, python_of
from papers.polybench import KERNELS, Kernel
from polyfuse.frontend import PythonNest
from polyfuse.ir.tree import loops

Arrays = Mapping[str, Any]

STRICT = ("-O3", "-march=native", "-ffp-contract=off")
"""The reference: without fast-math, gcc keeps Python's order and rounding (at MINI, every bit of it)."""

FAST = ("-O3", "-march=native", "-ffast-math", "-fopenmp")

POLLY = ("-O3", "-march=native", "-ffast-math", "-mllvm", "-polly")
CLANGS = ("clang", *(f"clang-{version}" for version in range(23, 12, -1)))
"""Names of clang's executables, the newest of Debian's first behind the one that a user has chosen."""

BOUND = 1e-9
"""The largest difference to the reference that is allowed, relative to the largest element of the array. Sums in
another order differ by 1e-16 × their length, and NumPy's solvers take other steps."""

STEPS_IN_PYTHON = frozenset({"fdtd-2d", "floyd-warshall", "heat-3d", "jacobi-2d", "lu", "ludcmp"})
"""NumPy's form goes over whole arrays hundreds of times: 10 s to minutes."""

SECONDS = 1.5
"""What the turns of a side take together, where calls are short."""

LONG = 2.0
"""Seconds of a call from which on the first, checked call is a turn, so that two more are enough."""

BEHIND = (0.1, 4.0)
"""A peer that took more seconds than this, and so many times what the fastest of numba and gcc took, is timed once."""

PEERS = ("numba", "gcc", "gcc_auto", "polly")
"""The sides of which the fastest counts."""

MAY_BE_WRONG = frozenset({"polly"})
"""Peers that are left out where they compute something else, as Polly's gemver does."""


class WrongResult(Exception):
    """A side does not compute what the reference computes."""


@dataclass(frozen=True)
class Side:
    """A way to run a kernel: in place, or giving some of its arrays."""

    call: Callable[..., Any]
    build_seconds: float


def row(
    name: str, kernel: Kernel, threads: int, most: int = 25, beside: Sequence[str] = ()
) -> dict[str, Any]:
    """Everything known of one kernel with this process's threads. WrongResult if a side computes something else."""
    first = kernel.inputs(kernel.large, np.random.default_rng(0))
    net, ours = polyfuse_side(kernel)
    sides = {"polyfuse": ours, "numba": numba_side(kernel), "gcc": c_side(kernel, FAST)}
    if threads > 1:
        sides["gcc_auto"] = c_side(kernel, (*FAST, f"-ftree-parallelize-loops={threads}"))
    if (clang := with_polly()) is not None:
        parallel = ("-mllvm", "-polly-parallel") if threads > 1 else ()
        sides["polly"] = c_side(kernel, (*POLLY, *parallel), clang)
    if kernel.closed is not None and name not in STEPS_IN_PYTHON:
        form = kernel.closed
        sides["numpy"] = Side(lambda **arrays: form(arrays), 0.0)
    errors, once = checked(kernel, first, sides)
    sides = {n: side for n, side in sides.items() if n in once}
    best = min(once[n] for n in PEERS if n in once)
    left = {n: once[n] for n in once if n != "polyfuse" and once[n] > max(BEHIND[0], BEHIND[1] * best)}
    with running(beside):
        taken = in_turns(first, {n: side for n, side in sides.items() if n not in left}, once, most)
    return {
        "kernel": name, "threads": threads, **timed(taken, left), **compiled_as(net), **built(sides, errors)
    }  # fmt: skip


def in_turns(
    first: Arrays, sides: Mapping[str, Side], once: Mapping[str, float], most: int
) -> dict[str, tuple[float, ...]]:
    """Seconds of each side's turns; the checked calls are a turn too where calls are long."""
    work = {n: value.copy() if isinstance(value, np.ndarray) else value for n, value in first.items()}
    calls = {n: partial(side.call, **work) for n, side in sides.items()}
    long = max(once[n] for n in sides) > LONG
    turns = (2, most) if long else (min(3, most), most)
    taken = pf.measure.in_turns_prepared(calls, partial(refill, work, first), SECONDS, turns)
    return {n: (once[n], *seconds) for n, seconds in taken.items()} if long else taken


def polyfuse_side(kernel: Kernel) -> tuple[pf.Executable, Side]:
    start = time.perf_counter()
    net = pf.compile(kernel.nest, target="cpu", sizes=kernel.large)
    return net, Side(net, time.perf_counter() - start)


def numba_side(kernel: Kernel) -> Side:
    """numba's own compilation of the Python function, with the sizes it finds around itself."""
    function = inspect.unwrap(python_of(kernel.nest))
    assert isinstance(function, FunctionType)
    inner = FunctionType(function.__code__, {**function.__globals__, **kernel.large}, function.__name__)
    jitted = numba.njit(fastmath=True, parallel=True)(inner)
    given = kernel.inputs(kernel.mini, np.random.default_rng(0))
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", numba.NumbaPerformanceWarning
        )  # no loop is parallel for numba: it is compared
        jitted.compile(tuple(numba.typeof(value) for value in given.values()))
    seconds = time.perf_counter() - start
    return Side(lambda **arrays: jitted(*arrays.values()), seconds)


def c_side(kernel: Kernel, flags: tuple[str, ...], compiler: str = "gcc") -> Side:
    start = time.perf_counter()
    call = in_c(kernel.nest, kernel.large, flags, compiler)
    return Side(call, time.perf_counter() - start)


def in_c(
    nest: PythonNest, sizes: Mapping[str, int], flags: tuple[str, ...], compiler: str = "gcc"
) -> Callable[..., None]:
    with TemporaryDirectory() as folder:  # once loaded, the library is not needed any more
        return compiled(nest, sizes, flags, Path(folder), compiler)


@cache
def with_polly() -> str | None:
    """The first clang that has Polly; None if there is none."""
    for name in filter(shutil.which, CLANGS):
        command = [name, *POLLY, "-x", "c", "-c", os.devnull, "-o", os.devnull]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return name
    return None


def checked(
    kernel: Kernel, first: Arrays, sides: Mapping[str, Side]
) -> tuple[dict[str, float], dict[str, float]]:
    """(each side's largest difference to the reference, the seconds of its first call if it may be timed)."""
    expected = after(in_c(kernel.nest, kernel.large, STRICT), kernel, first)[0]
    errors, seconds = {}, {}
    for name, side in sides.items():
        found, once = after(side.call, kernel, first)
        errors[name] = max(difference(found[tensor], expected[tensor]) for tensor in found)
        if errors[name] <= BOUND:
            seconds[name] = once
        elif name not in MAY_BE_WRONG:
            raise WrongResult(f"{name} differs from the reference by {errors[name]:.2g}")
    return errors, seconds


def after(call: Callable[..., Any], kernel: Kernel, first: Arrays) -> tuple[dict[str, Any], float]:
    """(what a call leaves in the arrays that the kernel writes, or those of them that it gives; its seconds)."""
    work = {n: value.copy() if isinstance(value, np.ndarray) else value for n, value in first.items()}
    start = time.perf_counter()
    given = call(**work)
    seconds = time.perf_counter() - start
    return given or {tensor.name: work[tensor.name] for tensor in kernel.nest.outputs}, seconds


def difference(found: Any, expected: Any) -> float:
    """The largest difference, relative to the largest element; infinite where something is not a number."""
    worst = float(np.abs(found - expected).max()) / max(1.0, float(np.abs(expected).max()))
    return worst if np.isfinite(worst) else float("inf")


def refill(work: Arrays, first: Arrays) -> None:
    for name, value in first.items():
        if isinstance(value, np.ndarray):
            np.copyto(work[name], value)


def timed(taken: Mapping[str, tuple[float, ...]], left: Mapping[str, float]) -> dict[str, Any]:
    """Median milliseconds, and the median over turns of each peer's seconds over ours; `once`: not timed in turns."""
    ours = taken["polyfuse"]
    medians = {**{name: statistics.median(values) for name, values in taken.items()}, **left}
    ratios = {name: seconds / medians["polyfuse"] for name, seconds in left.items()}
    for name in taken.keys() - {"polyfuse"}:
        ratios[name] = statistics.median(theirs / own for theirs, own in zip(taken[name], ours, strict=True))
    best = min((name for name in PEERS if name in ratios), key=lambda name: ratios[name])
    return {
        "turns": len(ours),
        **{
            f"{name}_ms": round(1e3 * medians[name], 4)
            for name in ("polyfuse", *PEERS, "numpy")
            if name in medians
        },
        "best": best,
        "best_ratio": round(ratios[best], 3),
        **{f"{name}_ratio": round(ratios[name], 3) for name in (*PEERS, "numpy") if name in ratios},
        "once": " ".join(left),
    }


def compiled_as(net: pf.Executable) -> dict[str, Any]:
    """What was decided: kernels, loops on cores and on vector lanes, tiles, budgets that ran out."""
    found = tuple(loops(net.schedule.tree))
    tiles = [
        f"{loop} by {size}"
        for step in net.schedule.steps
        for loop, size in (
            step.options if step.verb == "tile" else [step.args[1:]] if step.verb == "split" else []
        )
    ]
    spent = ("stopped", "given up", "not asked", "did not finish", "too many")
    return {
        "schedule_s": round(net.compiled.seconds["schedule"], 3),
        "kernels": len(net.kernels),
        "parallel": " ".join(loop.name for loop in found if loop.bind in ("cores", "pipeline")),
        "vector": " ".join(loop.name for loop in found if loop.bind == "vector"),
        "tiled": ", ".join(dict.fromkeys(tiles)),
        "budget": "; ".join(x for x in net.explain().splitlines() if any(word in x for word in spent)),
    }


def built(sides: Mapping[str, Side], errors: Mapping[str, float]) -> dict[str, Any]:
    return {
        **{
            f"{name}_compile_s": round(side.build_seconds, 2)
            for name, side in sides.items()
            if side.build_seconds
        },
        **{f"{name}_error": float(f"{error:.2g}") for name, error in errors.items()},
    }


if __name__ == "__main__":
    print(
        json.dumps(row(sys.argv[1], KERNELS[sys.argv[1]], int(sys.argv[2]), beside=shlex.split(sys.argv[3])))
    )

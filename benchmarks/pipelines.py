"""Image pipelines of 2048² pixels in float32 against Halide's autoschedulers, numba and NumPy, in turns.

    polyfuse        pf.compile(nest, sizes=…), and any_size: one executable for all
    Mullapudi2016   Halide (sides/by_halide.py, in an environment of its own), by this autoscheduler
    Adams2019       and by this one
    numba           numba.njit(fastmath=True, parallel=True) of the same Python function
    numpy           the stages as NumPy expressions

python -m benchmarks.pipelines [--turns N] [--out DIR] installs Halide into build/halide first.
"""

from __future__ import annotations

import os

os.environ.pop("OPENBLAS_CORETYPE", None)

import argparse
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FunctionType
from typing import Any

import numba
import numpy as np

import polyfuse as pf
from benchmarks import results
from benchmarks.fresh import fresh
from benchmarks.sides.environments import ENVIRONMENTS, install
from benchmarks.sides.steering import Refused, Timed, Worker, hand_over, in_turns
from papers.pipelines import PIPELINES, Pipeline

AUTOSCHEDULERS = ("Mullapudi2016", "Adams2019")

BOUND = 1e-5
"""The largest difference to NumPy in float64, relative to the largest element."""


def timed(call: Callable[[], object]) -> Timed:
    """The seconds of a call, after one that is not counted."""

    def seconds() -> float:
        call()
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    return seconds


def by_numba(pipeline: Pipeline, arguments: Mapping[str, Any]) -> Callable[[], object]:
    """numba's own compilation of the Python function, with the sizes as numbers around it."""
    assert pipeline.nest.python is not None, "the nest was read from a function"
    function = getattr(pipeline.nest.python, "__wrapped__", pipeline.nest.python)
    inner = FunctionType(function.__code__, {**function.__globals__, **pipeline.large}, function.__name__)
    jitted = numba.njit(fastmath=True, parallel=True)(inner)
    given = tuple(arguments.values())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", numba.NumbaPerformanceWarning)
        jitted(*given)
    return lambda: jitted(*given)


def in_this_process(turns: int, threads: int) -> list[dict[str, Any]]:
    """A row for each pipeline and side, with the threads that this process has."""
    rows: list[dict[str, Any]] = []
    halide = ENVIRONMENTS["halide"]
    with TemporaryDirectory() as path, ExitStack() as stack:
        workers = [Worker("halide", form, threads, halide.python, Path(path)) for form in AUTOSCHEDULERS]
        sides = {worker.form: stack.enter_context(worker) for worker in workers if halide.ready()}
        for name, pipeline in PIPELINES.items():
            rows += measured(name, pipeline, turns, sides)
    return rows


def measured(name: str, pipeline: Pipeline, turns: int, halide: Mapping[str, Worker]) -> list[dict[str, Any]]:
    """One pipeline: every side built, checked and timed in turns."""
    arguments = pipeline.inputs(pipeline.large, np.random.default_rng(0))
    exact = pipeline.closed({n: _double(value) for n, value in arguments.items()})
    sides: dict[str, Timed] = {}
    errors: dict[str, float] = {}
    for label, sizes in (("polyfuse", pipeline.large), ("any_size", None)):
        net = pf.compile(pipeline.nest, target="cpu", sizes=sizes)
        net(**arguments)
        errors[label] = _error({n: arguments[n] for n in exact}, exact)
        sides[label] = timed(lambda net=net: net(**arguments))  # type: ignore[misc]
    jitted = by_numba(pipeline, arguments)
    errors["numba"] = _error({n: arguments[n] for n in exact}, exact)
    sides["numba"] = timed(jitted)
    errors["numpy"] = _error(pipeline.closed(arguments), exact)
    sides["numpy"] = timed(lambda: pipeline.closed(arguments))
    for autoscheduler, worker in halide.items():
        hand_over(worker.folder, name, {"image": arguments["image"]})
        try:
            worker.build(name, name)
        except Refused as why:
            # Adams2019's schedule of Harris for two threads reads the image at -16
            print(f"{name}: {autoscheduler} is left out: {why}", file=sys.stderr)
            continue
        errors[autoscheduler] = _error(dict(zip(exact, worker.results(name), strict=True)), exact)
        sides[autoscheduler] = worker.seconds
    wrong = {label: error for label, error in errors.items() if error > BOUND}
    if wrong:
        raise SystemExit(f"{name}: wrong results {wrong}")
    taken = in_turns(sides, turns, halide.values())
    best = min((min(taken[a]) for a in AUTOSCHEDULERS if a in taken), default=None)
    return [_row(name, label, taken[label], errors[label], best) for label in sides]


def _row(name: str, label: str, taken: list[float], error: float, best: float | None) -> dict[str, Any]:
    return {
        "pipeline": name,
        "candidate": label,
        "median_ms": round(1e3 * statistics.median(taken), 3),
        "best_ms": round(1e3 * min(taken), 3),
        "best_to_best_halide": round(min(taken) / best, 3) if best else None,
        "turns": len(taken),
        "largest_error": float(f"{error:.2g}"),
    }


def _double(value: Any) -> Any:
    return np.asarray(value, np.float64) if isinstance(value, np.ndarray) else value


def _error(found: Mapping[str, Any], exact: Mapping[str, Any]) -> float:
    """The largest difference, but for one element in 100000: at unsharp's threshold rounding decides which value."""
    return max(_largest(np.abs(found[n] - exact[n])) / float(np.abs(exact[n]).max()) for n in exact)


def _largest(differences: Any) -> float:
    last = differences.size - 1 - differences.size // 100_000
    return float(np.partition(differences, last, axis=None)[last])


def measure(turns: int) -> list[dict[str, Any]]:
    """The rows for one thread and for all."""
    install(["halide"])  # where it does not, its rows are missing
    rows = []
    for threads in sorted({1, pf.measure.usable_cpus()}):
        for row in fresh(
            "benchmarks.pipelines", "--threads", str(threads), "--turns", str(turns), threads=threads
        ):
            rows.append({"threads": threads, **row})
            ratio = f"  {row['best_to_best_halide']:.2f} x Halide" if row["best_to_best_halide"] else ""
            print(
                f"{threads} threads, {row['pipeline']:<8} {row['candidate']:<14} {row['median_ms']:>9.2f} ms "
                f"(best {row['best_ms']:.2f}){ratio}",
                flush=True,
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.pipelines", description="Image pipelines, in turns.")
    parser.add_argument("--turns", type=int, default=25, help="how often each side is timed")
    parser.add_argument("--out", type=Path, default=results.FOLDER, help="folder for the results")
    parser.add_argument(
        "--threads", type=int, help="print the rows of a process with so many threads as JSON"
    )
    options = parser.parse_args()
    if options.threads is not None:
        print(json.dumps(in_this_process(options.turns, options.threads)))
        return
    about = pf.measure.environment()
    for path in results.write(options.out, "pipelines", about, measure(options.turns)):
        print(f"wrote {path}")


if __name__ == "__main__":
    main()

"""Gradients of PolyBench's 30 kernels: right or refused, and the time of forward and backward over that of forward.

python -m benchmarks.gradients [--kernels gemm,lu] [--timed gemm] [--seconds 120] [--resume] [--out DIR]

Right: the gradients by all inputs agree with central differences of the interpreter in float64, at sizes of 3 to 9. The
times are processor times of one thread at a tenth of LARGE, compiled without a search, in turns. Each kernel
has a process of its own, which is given up after so many seconds for each of the two steps. Ten kernels are timed
beside JAX and Enzyme, where they are installed, and the gradients compared.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

import polyfuse as pf
from benchmarks import results
from benchmarks.fresh import with_threads
from benchmarks.options import some_of
from papers.polybench import KERNELS
from polyfuse.rewrite import reverse

Array = np.ndarray[Any, Any]

STEP = 1e-6
"""The step of the central differences, whose truncation error grows with its square."""

ENOUGH = 1e-5
"""The largest error of a right gradient, of the derivative or of 1."""

PEERS = {
    "jax": ("JAX", "jax", "benchmarks.gradients_by_jax"),
    "enzyme": ("Enzyme", "enzyme_ad", "benchmarks.gradients_by_enzyme"),
}
"""Other sides: the name in tables, the package, and the module whose `gradient` calls it."""

TURNS = 7
PART = 10
"""Times are those of the sizes of LARGE divided by this."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.gradients", description="Gradients of PolyBench.")
    parser.add_argument(
        "--kernels", type=some_of(KERNELS), default=list(KERNELS), help="some of the 30, with commas"
    )
    parser.add_argument("--seconds", type=float, default=120.0, help="the limit of a step of a kernel")
    parser.add_argument("--timed", type=some_of(KERNELS), help="those that are timed too, by default all")
    parser.add_argument("--out", type=Path, default=results.FOLDER, help="folder for the results")
    parser.add_argument("--resume", action="store_true", help="keep what today's files of this commit have")
    options = parser.parse_args()
    os.environ.update(with_threads(1))  # numba reads it where the kernels' processes load it
    run = results.Run.begin(options.out, "gradients", pf.measure.environment(), options.resume)
    for name in [name for name in options.kernels if name not in {row["kernel"] for row in run.rows}]:
        row = {"kernel": name, **within(options.seconds, checked, name)}
        if row["result"] == "right" and name in (options.timed or options.kernels):
            row |= within(options.seconds, timed, name)
        run.add([row])
        print(line(row), flush=True)
    print(summary(run.rows))


def checked(name: str) -> dict[str, Any]:
    """Compare a directional derivative of a random combination of the results with a central difference."""
    kernel, rng = KERNELS[name], np.random.default_rng(4)
    sizes = {size: 3 + extent % 5 + (2 if size == "M" else 0) for size, extent in kernel.mini.items()}
    known = {t.name for t in kernel.nest.inputs}
    given = {key: np.asarray(array) for key, array in kernel.inputs(sizes, rng).items() if key in known}
    symbolic = {size: extent for size, extent in sizes.items() if size in kernel.nest.params}
    try:
        found = reverse(kernel.nest)
    except (pf.IllegalRewrite, pf.BadArgument) as error:
        return {"result": "refused", "why": str(error)}

    def run(nest: pf.Nest, values: Mapping[str, Array]) -> Mapping[str, Array]:
        return pf.interpret(nest, values, sizes=symbolic)

    towards = {key: rng.normal(size=given[key].shape) for key in found.gradients}
    plain = run(kernel.nest, given)
    weights = {key: rng.normal(size=plain[key].shape) for key in found.cotangents}

    def combined(step: float) -> float:
        moved = {**given, **{key: given[key] + step * towards[key] for key in towards}}
        values = run(kernel.nest, moved)
        return float(sum((values[key] * weights[key]).sum() for key in weights))

    expected = (combined(STEP) - combined(-STEP)) / (2 * STEP)
    gradients = run(found.nest, {**given, **{found.cotangents[key]: weights[key] for key in weights}})
    backward = float(sum((gradients[found.gradients[key]] * towards[key]).sum() for key in towards))
    error = abs(backward - expected) / max(1.0, abs(expected))
    row = {
        "error": float(f"{error:.1e}"),
        "kept": len(found.stored),
        "statements": len(found.nest.statements),
    }
    return {"result": "right" if error <= ENOUGH else "wrong", **row}


def timed(name: str) -> dict[str, Any]:
    """The time of a call with gradients, and of one without."""
    kernel, rng = KERNELS[name], np.random.default_rng(4)
    sizes = {size: max(extent // PART, 4) for size, extent in kernel.large.items()}
    known = {t.name for t in kernel.nest.inputs}
    given = {key: np.asarray(array) for key, array in kernel.inputs(sizes, rng).items() if key in known}
    symbolic = {size: extent for size, extent in sizes.items() if size in kernel.nest.params}
    found = reverse(kernel.nest, values=True)
    start = time.process_time()
    forward = pf.compile(kernel.nest, target="cpu", sizes=symbolic)
    first = time.process_time()
    both = pf.compile(found.nest, target="cpu", sizes=symbolic)
    second = time.process_time()
    shapes = {t.name: tuple(int(size) for size in t.shape) for t in found.nest.with_sizes(symbolic).inputs}
    seeds = {key: np.ones(shapes[key]) for key in found.cotangents.values()}

    def alone() -> None:
        forward(**_copies(given))

    def whole() -> None:
        both(**_copies(given), **seeds)

    row = {"compile_ratio": round((second - first) / (first - start), 2)}
    cotangents = {of: seeds[key] for of, key in found.cotangents.items()}
    peers = by_peers(name, given, cotangents, sizes.get("T", 0))
    ours = dict(zip((t.name for t in found.nest.outputs), both(**_copies(given), **seeds), strict=True))
    gradients = {of: ours[key] for of, key in found.gradients.items()}
    errors = {side: difference(gradients, call()[1]) for side, call in peers.items()}
    one, two, *others = in_turns(alone, whole, *peers.values())
    for (side, error), other in zip(errors.items(), others, strict=True):
        row |= {f"{side}_error": error, f"{side}_s": other, f"{side}_ratio": round(other / two, 2)}
    return {"forward_s": one, "forward_backward_s": two, "ratio": round(two / one, 2), **row}


def _copies(given: Mapping[str, Array]) -> dict[str, Array]:
    return {key: array.copy() for key, array in given.items()}


def by_peers(
    name: str, given: Mapping[str, Array], seeds: Mapping[str, Array], steps: int
) -> dict[str, Callable[[], tuple[Any, Any]]]:
    """Calls of the other sides that are installed for results and gradients, on one core; none for other kernels."""
    installed = {
        side: module for side, (_, package, module) in PEERS.items() if find_spec(package) is not None
    }
    if installed and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # JAX has a thread for each CPU
    modules = {side: import_module(module) for side, module in installed.items()}
    return {
        side: module.gradient(name, given, seeds, steps)
        for side, module in modules.items()
        if name in module.PROGRAMS
    }


def difference(found: Mapping[str, Array], expected: Mapping[str, Any]) -> float:
    """The largest difference of a gradient, relative to the largest element of its array."""
    arrays = {key: np.asarray(expected[key]).reshape(array.shape) for key, array in found.items()}
    errors = [np.abs(found[key] - one).max() / max(np.abs(one).max(), 1e-30) for key, one in arrays.items()]
    return float(f"{max(errors):.1e}")


def in_turns(*calls: Callable[[], object]) -> tuple[float, ...]:
    """The smallest processor time of each."""
    best = [math.inf] * len(calls)
    for _ in range(TURNS):
        for number, call in enumerate(calls):
            start = time.process_time()
            call()
            best[number] = min(best[number], time.process_time() - start)
    return tuple(best)


def within(seconds: float, step: Callable[[str], dict[str, Any]], name: str) -> dict[str, Any]:
    """Return a step's row from a process of its own, or a row with its time-out or its error."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_reported, args=(step, name, there))
    process.start()
    there.close()
    try:
        found: dict[str, Any] = here.recv() if here.poll(seconds) else {"why": f"more than {seconds:.0f} s"}
    except EOFError:
        found = {"why": "the process ended"}
    process.terminate()
    process.join()
    return found if step is timed or "result" in found else {"result": "failed", **found}


def _reported(step: Callable[[str], dict[str, Any]], name: str, pipe: Connection) -> None:
    try:
        found = step(name)
    except Exception as error:  # noqa: BLE001  a row of the table says so
        found = {"why": f"{type(error).__name__}: {error}"}
    pipe.send(found)


def line(row: Mapping[str, Any]) -> str:
    """One line of the table."""
    ratio = f"{row['ratio']:6.2f} times forward" if "ratio" in row else ""
    error = f"error {row['error']:.0e}" if "error" in row else ""
    peers = ", ".join(
        f"{called} {row[f'{side}_ratio']:.2f} x, differs by {row[f'{side}_error']:.0e}"
        for side, (called, *_) in PEERS.items()
        if f"{side}_ratio" in row
    )
    return f"{row['kernel']:15} {row['result']:8} {error:12} {ratio} {peers} {row.get('why', '')}".rstrip()


def summary(rows: list[dict[str, Any]]) -> str:
    """How many are right, and the geometric means of the ratios to the forward pass and to the other sides."""
    right = sum(row["result"] == "right" for row in rows)
    ratios = [row["ratio"] for row in rows if "ratio" in row]
    mean = f"; {statistics.geometric_mean(ratios):.2f} times forward over {len(ratios)}" if ratios else ""
    for side, (called, *_) in PEERS.items():
        peers = [row[f"{side}_ratio"] for row in rows if f"{side}_ratio" in row]
        if peers:
            mean += f"; {called} takes {statistics.geometric_mean(peers):.2f} times as long over {len(peers)}"
    return f"{right} of {len(rows)} right{mean}"


if __name__ == "__main__":
    main()

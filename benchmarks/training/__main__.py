"""Training steps of networks beside torch eager, torch.compile and JAX.

    python -m benchmarks.training --networks "digits CNN, batch 32; DLRM" --sides eager,jax --threads 1

Each network has a process of its own for each number of threads, with the sides that are installed; it ends after
`--seconds`. Times on one thread are processor times, on several those of the clock.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import polyfuse as pf
from benchmarks import results
from benchmarks.fresh import fresh
from benchmarks.training.networks import NETWORKS

SIDES = {"eager": "torch", "compile": "torch", "jax": "jax"}
"""The package that each side needs."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.training", description="Training steps of networks.")
    parser.add_argument("--networks", type=_some, default=list(NETWORKS), help="some, with semicolons")
    parser.add_argument("--sides", default=",".join(SIDES), help=f"some of {', '.join(SIDES)}, with commas")
    parser.add_argument("--threads", default="1", help="numbers of threads, with commas")
    parser.add_argument("--turns", type=int, default=15, help="how often each side is timed")
    parser.add_argument("--seconds", type=float, default=1200.0, help="the limit of a network")
    parser.add_argument("--out", type=Path, default=results.FOLDER, help="folder for the results")
    parser.add_argument("--resume", action="store_true", help="keep what today's files of this commit have")
    options = parser.parse_args()
    sides = [side for side in options.sides.split(",") if find_spec(SIDES[side]) is not None]
    run = results.Run.begin(options.out, "training", pf.measure.environment(), options.resume)
    done = {(row["network"], row["threads"]) for row in run.rows}
    for threads in map(int, options.threads.split(",")):
        for name in options.networks:
            if (name, threads) not in done:
                row = measured(name, options.turns, sides, threads, options.seconds)
                run.add([{"threads": threads, **row}])
                print(line(run.rows[-1]), flush=True)
    print(summary(run.rows))


def _some(given: str) -> list[str]:
    names = [name.strip() for name in given.split(";")]
    for name in names:
        if name not in NETWORKS:
            raise argparse.ArgumentTypeError(f"no network {name!r}; there are {'; '.join(NETWORKS)}")
    return names


def measured(name: str, turns: int, sides: Sequence[str], threads: int, seconds: float) -> Mapping[str, Any]:
    """A network's row from a process of its own, or why there is none."""
    try:
        row: Mapping[str, Any] = fresh(
            "benchmarks.training.measured",
            name,
            str(turns),
            ",".join(sides),
            threads=threads,
            seconds=seconds,
            POLYFUSE_CACHE="off",  # compiles are cold
        )
    except subprocess.TimeoutExpired:
        return {"network": name, "why": f"more than {seconds:.0f} s"}
    except subprocess.CalledProcessError as error:
        return {"network": name, "why": (error.stderr.strip().splitlines() or ["failed"])[-1]}
    return row


def line(row: Mapping[str, Any]) -> str:
    """One line of the table."""
    if "why" in row:
        return f"{row['network']:<30} {row['threads']} thread: {row['why']}"
    times = ", ".join(f"{side} {time / 1e3:.3f}" for side, time in row["median_us"].items())
    ratio = f"{row['ratio']:.2f} x" if "ratio" in row else ""
    right = {True: "right", False: f"differs: {row.get('errors')}"}.get(row.get("right"), "not compared")
    compile_ = f"compile {row['compile_ratio']:.1f} x"
    return f"{row['network']:<30} {row['threads']} thread: {ratio} ({times} ms), {compile_}, {right}"


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """How many rows are right and not slower than the best side, and the geometric mean."""
    ratios = [row["ratio"] for row in rows if "ratio" in row]
    right = sum(bool(row.get("right")) for row in rows)
    mean = (
        f"; geometric mean {statistics.geometric_mean(ratios):.2f}, worst {min(ratios):.2f}" if ratios else ""
    )
    return f"{right} of {len(rows)} right{mean}; {sum(r >= 1 for r in ratios)} of {len(ratios)} at least 1"


if __name__ == "__main__":
    main()

"""`make bench-polybench`: PolyBench's 30 kernels at LARGE against numba, gcc, Polly and NumPy.

python -m benchmarks.polybench [--kernels gemm,lu] [--threads 1,2] [--beside COMMAND] [--resume] [--out DIR]

Each kernel runs in a process of its own for each number of threads (polybench_sides.py); Polly is a peer where a clang
has it. The files, in benchmarks/results/, are written anew after every kernel, so an interrupted run has lost one
kernel; `--resume` keeps what today's files of the same commit have.
"""

from __future__ import annotations

import os

os.environ.pop("OPENBLAS_CORETYPE", None)  # before NumPy loads: its product must suit this CPU

import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polyfuse as pf
from benchmarks import results
from benchmarks.fresh import fresh
from benchmarks.options import numbers, some_of
from benchmarks.polybench_sides import with_polly
from benchmarks.polybench_table import counted, summary, table
from papers.polybench import KERNELS

LIMIT = 900.0
"""Seconds after which a kernel is given up."""


def main() -> None:
    options = arguments()
    about = pf.measure.environment()
    about["versions"] = {**pf.measure.versions(), **compilers()}
    run = results.Run.begin(options.out, "polybench", about, options.resume)
    run.rows = [row for row in run.rows if "failed" not in row]
    done = {(row["kernel"], row["threads"]) for row in run.rows}
    for name in options.kernels:
        for threads in options.threads:
            if (name, threads) in done:
                continue
            start = time.perf_counter()
            row = measured(name, threads, options.beside)
            run.add([{**row, "whole_s": round(time.perf_counter() - start, 1)}])
            print(line(row), flush=True)
            write_table(run)
    print("\n".join([*summary(run.rows), f"results are in {options.out}"]))
    if any("failed" in row for row in run.rows):
        sys.exit(1)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks.polybench", description="PolyBench LARGE, side by side."
    )
    parser.add_argument(
        "--kernels", type=some_of(KERNELS), default=list(KERNELS), help="some of the 30, with commas"
    )
    threads = sorted({1, pf.measure.usable_cpus()})
    parser.add_argument("--threads", type=numbers, default=threads, help="numbers of threads, with commas")
    parser.add_argument(
        "--beside", default="", metavar="COMMAND", help="runs while turns are timed (beside.py)"
    )
    parser.add_argument("--resume", action="store_true", help="keep what today's run of this commit measured")
    parser.add_argument("--out", type=Path, default=results.FOLDER, help="folder for the results")
    return parser.parse_args()


def measured(name: str, threads: int, beside: str) -> dict[str, Any]:
    """A kernel's row; one that says why it failed, if it did."""
    try:
        row: dict[str, Any] = fresh(
            "benchmarks.polybench_sides", name, str(threads), beside, threads=threads, seconds=LIMIT
        )
    except subprocess.CalledProcessError as error:
        why = error.stderr.strip().splitlines()[-1:] or [f"ended with {error.returncode}"]
        return {"kernel": name, "threads": threads, "failed": why[0]}
    except subprocess.TimeoutExpired:
        return {"kernel": name, "threads": threads, "failed": f"given up after {LIMIT:g} s"}
    return row


def write_table(run: results.Run) -> None:
    head = results.header("PolyBench 4.2, LARGE, float64", run.about)
    run.path("md").write_text(
        "\n".join([*head, *table(run.rows), "", *summary(run.rows), ""]), encoding="utf-8"
    )


def line(row: dict[str, Any]) -> str:
    start = f"{row['kernel']:<15} {counted(row['threads']):<9}"
    if "failed" in row:
        return f"{start}  failed: {row['failed']}"
    return f"{start}  {row['polyfuse_ms']:>10.2f} ms  {row['best']} / polyfuse = {row['best_ratio']:.2f}"


def compilers() -> dict[str, str]:
    """The versions of gcc, and of clang where one has Polly."""
    commands = {"gcc": ["gcc", "-dumpfullversion"]}
    if (clang := with_polly()) is not None:
        commands["clang"] = [clang, "-dumpversion"]
    return {
        name: subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
        for name, command in commands.items()
    }


if __name__ == "__main__":
    main()

"""`make bench-polybench`: PolyBench's 30 kernels at LARGE against numba, gcc and NumPy; a table in benchmarks/results/.

python -m benchmarks.polybench [--kernels gemm,lu] [--threads 1,2] [--resume] [--out DIR]

Each kernel runs in a process of its own for each number of threads (polybench_sides.py). The files are written anew
after every kernel, so an interrupted run has lost one kernel; `--resume` keeps what today's files of the same commit
have.
"""

from __future__ import annotations

import os

os.environ.pop("OPENBLAS_CORETYPE", None)  # before NumPy loads: its product must suit this CPU

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polyfuse as pf
from benchmarks import results
from benchmarks.fresh import fresh
from benchmarks.polybench_table import counted, summary, table
from papers.polybench import KERNELS

LIMIT = 300.0
"""Seconds after which a kernel is given up."""


def main() -> None:
    options = arguments()
    about = {**pf.measure.environment(), "gcc": gcc_version()}
    rows = kept(options.out, about) if options.resume else []
    done = {(row["kernel"], row["threads"]) for row in rows}
    for name in options.kernels:
        for threads in options.threads:
            if (name, threads) in done:
                continue
            start = time.perf_counter()
            row = measured(name, threads)
            rows.append({**row, "whole_s": round(time.perf_counter() - start, 1)})
            print(line(row), flush=True)
            results.write(options.out, "polybench", about, rows)
            write_table(options.out, about, rows)
    print("\n".join([*summary(rows), f"results are in {options.out}"]))
    if any("failed" in row for row in rows):
        sys.exit(1)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks.polybench", description="PolyBench LARGE, side by side."
    )
    parser.add_argument("--kernels", type=names, default=list(KERNELS), help="some of the 30, with commas")
    threads = sorted({1, pf.measure.usable_cpus()})
    parser.add_argument("--threads", type=numbers, default=threads, help="numbers of threads, with commas")
    parser.add_argument("--resume", action="store_true", help="keep what today's run of this commit measured")
    parser.add_argument("--out", type=Path, default=results.FOLDER, help="folder for the results")
    return parser.parse_args()


def names(text: str) -> list[str]:
    unknown = set(text.split(",")) - set(KERNELS)
    if unknown:
        raise argparse.ArgumentTypeError(f"no kernel {', '.join(unknown)}; there are {', '.join(KERNELS)}")
    return text.split(",")


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def measured(name: str, threads: int) -> dict[str, Any]:
    """A kernel's row; one that says why it failed, if it did."""
    try:
        row: dict[str, Any] = fresh(
            "benchmarks.polybench_sides", name, str(threads), threads=threads, seconds=LIMIT
        )
    except subprocess.CalledProcessError as error:
        why = error.stderr.strip().splitlines()[-1:] or [f"ended with {error.returncode}"]
        return {"kernel": name, "threads": threads, "failed": why[0]}
    except subprocess.TimeoutExpired:
        return {"kernel": name, "threads": threads, "failed": f"given up after {LIMIT:g} s"}
    return row


def kept(folder: Path, about: dict[str, object]) -> list[dict[str, Any]]:
    """The rows of today's file that did not fail, if it is of this commit and this CPU."""
    path = folder / f"polybench-{str(about['date'])[:10]}.json"
    if not path.exists():
        return []
    found = json.loads(path.read_text(encoding="utf-8"))
    same = all(found[key] == about[key] for key in ("commit", "cpu", "cpus", "versions"))
    return [row for row in found["rows"] if "failed" not in row] if same else []


def write_table(folder: Path, about: dict[str, object], rows: list[dict[str, Any]]) -> None:
    path = folder / f"polybench-{str(about['date'])[:10]}.md"
    path.write_text("\n".join([*head(about), *table(rows), "", *summary(rows), ""]), encoding="utf-8")


def head(about: dict[str, object]) -> Iterator[str]:
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())  # type: ignore[attr-defined]
    yield "# PolyBench 4.2, LARGE, float64"
    yield ""
    yield f"{about['date']}, {about['cpu']}, {about['cpus']} CPUs, load {about['load']}, commit {about['commit']}; "
    yield f"{versions}, gcc {about['gcc']}."
    yield ""


def line(row: dict[str, Any]) -> str:
    start = f"{row['kernel']:<15} {counted(row['threads']):<9}"
    if "failed" in row:
        return f"{start}  failed: {row['failed']}"
    return f"{start}  {row['polyfuse_ms']:>10.2f} ms  {row['best']} / polyfuse = {row['best_ratio']:.2f}"


def gcc_version() -> str:
    done = subprocess.run(["gcc", "-dumpfullversion"], check=True, capture_output=True, text=True)
    return done.stdout.strip()


if __name__ == "__main__":
    main()

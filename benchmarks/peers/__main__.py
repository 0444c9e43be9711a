"""`make bench-peers`: every workload against what a user would pick instead; a table and a picture.

python -m benchmarks.peers [--workloads mlp-8x64-b1,…] [--peers torch,jax] [--threads 1,2] [--turns N] [--resume]
python -m benchmarks.peers --images                 layers of networks for images that the table does not have
python -m benchmarks.peers --grid [--long] [--batches 2,4] [--widths 128,512] [--peers onnxruntime]
                                                    dense networks against torch.compile and onnxruntime
python -m benchmarks.peers --memory                 the most that a call needs, against torch and onnxruntime
python -m benchmarks.peers --tuning [--trials N]    the model's order of schedules and the measured one

Peers are installed first, each into an environment of its own under build/. The files in benchmarks/results/ (or --out)
are written anew after each workload or cell, so that an interrupted run has lost one; `--resume` keeps what the latest
files of the same commit have.
"""

from __future__ import annotations

import os

os.environ.pop("OPENBLAS_CORETYPE", None)  # before NumPy loads: its product must suit this CPU

import argparse
import sys
from pathlib import Path

import polyfuse as pf
from benchmarks import results
from benchmarks.options import numbers, some_numbers_of, some_of
from benchmarks.peers import comparison, grid, memory, tuning
from benchmarks.peers.rows import LABELS, Effort
from benchmarks.peers.workloads import EVERY, IMAGES, TABLE
from benchmarks.sides.environments import ENVIRONMENTS


def main() -> None:
    options = arguments()
    part = next((name for name in ("grid", "memory", "tuning", "images") if getattr(options, name)), None)
    name = f"peers-{part}" if part else "peers"
    run = results.Run.begin(options.out, name, pf.measure.environment(), options.resume)
    try:
        measure(run, part, options)
    except KeyboardInterrupt:
        sys.exit(
            f"interrupted; {len(run.rows)} rows are in {run.path('json')}, and --resume goes on with them"
        )
    print(f"results are in {run.path('json')} and beside it")


def measure(run: results.Run, part: str | None, options: argparse.Namespace) -> None:
    effort = Effort(options.turns, options.seconds)
    if part == "grid":
        cells = [
            cell
            for cell in grid.cells(options.long)
            if cell[1] in options.batches and cell[2] in options.widths
        ]
        labels = [label for label in grid.PEERS if label.split()[0] in options.peers]
        grid.measure(run, cells, labels, options.threads, effort)
    elif part == "memory":
        memory.measure(run, options.workloads)
    elif part == "tuning":
        tuning.measure(run, options.workloads, options.trials)
    else:
        labels = [label for label in LABELS if label.split()[0] in options.peers]
        comparison.measure(run, options.workloads, labels, options.threads, effort)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.peers", description="Side by side, in one run.")
    parser.add_argument(
        "--workloads", type=some_of(EVERY), help="some of them, with commas; else the table's"
    )
    parser.add_argument("--images", action="store_true", help="those for images that the table does not have")
    parser.add_argument(
        "--peers", type=some_of(ENVIRONMENTS), default=list(ENVIRONMENTS), help="some, with commas"
    )
    threads = sorted({1, min(2, pf.measure.usable_cpus())})
    parser.add_argument("--threads", type=numbers, default=threads, help="numbers of threads, with commas")
    parser.add_argument(
        "--turns", type=int, default=Effort.turns, help="how often each side is timed at most"
    )
    parser.add_argument(
        "--seconds", type=float, default=Effort.seconds, help="for a workload's turns, at most"
    )
    parser.add_argument("--resume", action="store_true", help="keep what this commit's latest run measured")
    parser.add_argument("--out", type=Path, default=results.FOLDER, help="folder for the results")
    parser.add_argument("--grid", action="store_true", help="the grid of dense networks")
    parser.add_argument("--long", action="store_true", help="the grid up to width 4096: 168 cells")
    for name, choices in (("--batches", grid.BATCHES), ("--widths", (*grid.WIDTHS, grid.LONG))):
        some = some_numbers_of(choices)
        parser.add_argument(name, type=some, default=choices, help="some of the grid's, with commas")
    parser.add_argument("--memory", action="store_true", help="the most memory of a call")
    parser.add_argument("--tuning", action="store_true", help="the model's order of schedules")
    parser.add_argument("--trials", type=int, default=24, help="schedules tried of each workload")
    options = parser.parse_args()
    options.workloads = options.workloads or list(IMAGES if options.images else TABLE)
    return options


if __name__ == "__main__":
    main()

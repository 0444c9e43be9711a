"""Products against the multiply-add peak of a core, measured in the same run, and against NumPy, in turns.

python -m benchmarks.gemm [--long] [--threads 1,2] [--turns N] [--out DIR]

Sizes from 256 to 2048, odd ones beside their round neighbours; `--long` adds 4096. Each number of threads has a process
of its own, in which the peak is that of one core times the threads.
"""

from __future__ import annotations

import os

os.environ.pop("OPENBLAS_CORETYPE", None)  # before NumPy loads: its product must suit this CPU

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import polyfuse as pf
from benchmarks import results
from benchmarks.fresh import fresh
from benchmarks.peak import peak_of

SIDES = (
    (256, 256, 256),
    (512, 512, 512),
    (511, 511, 511),
    (1024, 1024, 1024),
    (1023, 1023, 1023),
    (256, 320, 1024),
    (257, 333, 1000),
    (2048, 2048, 2048),
)
"""Rows, columns, steps."""

LONG = ((4096, 4096, 4096),)


@pf.nest
def single(x: "f32[M, K]", w: "f32[K, N]", y: "f32[M, N]"):
    for i in range(M):
        for j in range(N):
            y[i, j] = 0
            for k in range(K):
                y[i, j] += x[i, k] * w[k, j]


@pf.nest
def double(x: "f64[M, K]", w: "f64[K, N]", y: "f64[M, N]"):
    for i in range(M):
        for j in range(N):
            y[i, j] = 0
            for k in range(K):
                y[i, j] += x[i, k] * w[k, j]


PRODUCTS = {"float32": single, "float64": double}


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.gemm", description="Products against the peak.")
    parser.add_argument("--long", action="store_true", help="4096 too")
    parser.add_argument("--threads", default="1", help="numbers of threads, with commas")
    parser.add_argument("--turns", type=int, default=15, help="how often each candidate is timed")
    parser.add_argument("--out", type=Path, default=results.FOLDER, help="folder for the results")
    options = parser.parse_args()
    run = results.Run.begin(options.out, "gemm", pf.measure.environment())
    for threads in map(int, options.threads.split(",")):
        for dtype in PRODUCTS:
            for sides in (*SIDES, *(LONG if options.long else ())):
                arguments = dtype, *map(str, sides), str(options.turns)
                row = {"threads": threads, **fresh("benchmarks.gemm", *arguments, threads=threads)}
                run.add([row])
                print(line(row), flush=True)
    for kind in ("json", "csv"):
        print(f"wrote {run.path(kind)}")


def measured(dtype: str, sides: tuple[int, int, int], turns: int) -> dict[str, Any]:
    """A product of these sides, NumPy's and the peak, in turns: GFLOP/s, and parts of the peak."""
    m, n, k = sides
    rng, kind = np.random.default_rng(0), np.dtype(dtype).type
    x, w = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    ours, theirs = np.empty((m, n), dtype), np.empty((m, n), dtype)
    net = pf.compile(PRODUCTS[dtype], target="cpu", sizes={"M": m, "N": n, "K": k})
    multiply_adds, operations = peak_of(kind)
    candidates = {"polyfuse": partial(net, x, w, ours), "numpy": partial(np.matmul, x, w, theirs)}
    times = pf.measure.in_turns({**candidates, "peak": multiply_adds}, turns)
    threads = int(os.environ.get("NUMBA_NUM_THREADS", "1"))
    work = {"polyfuse": 2 * m * n * k, "numpy": 2 * m * n * k, "peak": operations * threads}
    rates = {name: work[name] / time.median for name, time in times.items()}
    bound = k * np.finfo(dtype).eps * (np.abs(x) @ np.abs(w))
    assert (np.abs(ours - theirs) <= 2 * bound).all(), "the two products differ by more than their rounding"
    return {
        "dtype": dtype,
        "rows": m,
        "columns": n,
        "steps": k,
        **{f"{name}_gflops": round(rate / 1e9, 1) for name, rate in rates.items()},
        "polyfuse_of_peak": round(rates["polyfuse"] / rates["peak"], 3),
        "numpy_of_peak": round(rates["numpy"] / rates["peak"], 3),
        "best_of_peak": round(
            work["polyfuse"] / times["polyfuse"].best / work["peak"] * times["peak"].best, 3
        ),
        "turns": turns,
    }


def line(row: dict[str, Any]) -> str:
    """A row for a person."""
    sides = " x ".join(str(row[side]) for side in ("rows", "columns", "steps"))
    return (
        f"{row['threads']} threads, {row['dtype']}, {sides}: {row['polyfuse_gflops']} GFLOP/s, "
        f"{row['polyfuse_of_peak']:.1%} of the peak (best {row['best_of_peak']:.1%}); "
        f"NumPy {row['numpy_gflops']}, {row['numpy_of_peak']:.1%}"
    )


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in PRODUCTS:
        dtype, *numbers = sys.argv[1:]
        m, n, k, turns = map(int, numbers)
        print(json.dumps(measured(dtype, (m, n, k), turns)))
    else:
        main()

"""Strassen's product against the classical one, in every form that `fast_matmul="auto"` prices, in turns.

python -m benchmarks.fast_products [--long] [--threads 1,2] [--turns N] [--out DIR]

Squares from 1024 to 4096, where the crossover is; `--long` adds 8192, with two levels. Each size has a process of its
own. A ratio is the classical product's median time over the form's: above 1, the fast product pays.
"""

from __future__ import annotations

import os

os.environ.pop("OPENBLAS_CORETYPE", None)  # before NumPy loads: its product must suit this CPU

import argparse
import json
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import polyfuse as pf
from benchmarks import results
from benchmarks.fresh import fresh
from benchmarks.options import numbers

SIDES = (1024, 2048, 3072, 4096)
LONG = (8192,)

FORMS: Mapping[str, Mapping[str, Any]] = {
    "batched": {},
    "apart": {"apart": True},
    "right in loads": {"apart": True, "inline": ("right",)},
    "both in loads": {"apart": True, "inline": ("left", "right")},
}
"""Options of the rewrite."""

TWO_LEVELS = "two levels, batched"


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.fast_products", description="Where Strassen pays.")
    parser.add_argument("--long", action="store_true", help="8192 too, and two levels there")
    parser.add_argument("--threads", type=numbers, default=(1,), help="numbers of threads, with commas")
    parser.add_argument("--turns", type=int, default=7, help="how often each form is timed")
    parser.add_argument("--out", type=Path, default=results.FOLDER, help="folder for the results")
    options = parser.parse_args()
    about, rows = pf.measure.environment(), []
    for threads in options.threads:
        for side in (*SIDES, *(LONG if options.long else ())):
            found = fresh("benchmarks.fast_products", str(side), str(options.turns), threads=threads)
            rows += [{"threads": threads, **row} for row in found]
            print(line(rows[-len(found) :]), flush=True)
    for path in results.write(options.out, "fast-products", about, rows):
        print(f"wrote {path}")


def measured(side: int, turns: int) -> list[dict[str, Any]]:
    """A row for each form, checked against NumPy's product: a wrong block is off by about the results themselves."""
    nest = pf.einsum("ik,kj->ij", dict.fromkeys("ijk", side), dtype="float32")
    strassen = pf.bilinear.strassen
    nests = {name: pf.rewrite.bilinear(nest, "mac", strassen, **form).nest for name, form in FORMS.items()}
    if side in LONG:
        nests[TWO_LEVELS] = pf.rewrite.bilinear(nest, "mac", pf.bilinear.named("strassen2")).nest
    nets = {name: pf.compile(each, target="cpu") for name, each in {"classical": nest, **nests}.items()}
    nets["auto"] = pf.compile(nest, target="cpu", fast_matmul="auto")
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(-1, 1, (side, side)).astype("float32") for _ in range(2))
    expected, out = a @ b, np.empty((side, side), np.float32)
    for name, net in nets.items():
        off = float(np.abs(net(a, b, out=out) - expected).max())
        allowed = 1e-3 * float(np.abs(expected).max())
        assert off <= allowed, f"{name}: off by {off}, {allowed} allowed"
    times = pf.measure.in_turns({name: partial(net, a, b, out=out) for name, net in nets.items()}, turns)
    return [
        {
            "side": side,
            "form": name,
            "kernels": nets[name].report().launches,
            "median_ms": round(1e3 * time.median, 3),
            "best_ms": round(1e3 * time.best, 3),
            "ratio": round(times["classical"].median / time.median, 3),
            "best_ratio": round(times["classical"].best / time.best, 3),
            "turns": turns,
        }
        for name, time in times.items()
    ]


def line(rows: list[dict[str, Any]]) -> str:
    """A size for a person."""
    forms = ", ".join(f"{row['form']} {row['ratio']:.3f}" for row in rows[1:])
    first = rows[0]
    return f"{first['threads']} threads, {first['side']}: classical {first['median_ms']} ms; {forms}"


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1].isdigit():
        print(json.dumps(measured(*map(int, sys.argv[1:]))))
    else:
        main()

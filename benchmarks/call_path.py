"""What a call costs from Python: an 8-layer network of width 64 at batch 1, in turns with NumPy, and a call of nothing.

Wanted: at most 1.5 µs a call of the network, and no allocation but its result.
"""

from __future__ import annotations

import json
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

import polyfuse as pf
from benchmarks.fresh import fresh
from benchmarks.networks import by_numpy
from polyfuse import nn

LAYERS, WIDTH = 8, 64


def measure(turns: int) -> list[dict[str, Any]]:
    """A row for each candidate, one thread; ratios are to a call of the network with `out`."""
    rows: list[dict[str, Any]] = fresh("benchmarks.call_path", str(turns), threads=1)
    for row in rows:
        print(
            f"{row['candidate']:<28} {row['median_ns']:>8.0f} ns (best {row['best_ns']:.0f}), "
            f"{row['allocated_bytes']} bytes allocated"
        )
    return rows


def in_this_process(turns: int) -> list[dict[str, Any]]:
    """Times, in turns, and the bytes that Python and NumPy allocate during one call."""
    modules = [m for n in range(LAYERS) for m in (nn.Linear(WIDTH, WIDTH, seed=n), nn.ReLU())]
    nest = pf.lower(nn.Sequential(*modules), batch=1)
    net, weights = pf.compile(nest, target="cpu"), dict(nest.constants)
    nothing = pf.compile(pf.lower(nn.ReLU(), batch=1, features=(1,)), target="cpu")
    x, out = (
        np.random.default_rng(0).standard_normal((1, WIDTH), np.float32),
        np.empty((1, WIDTH), np.float32),
    )
    one, target = x[:, :1].copy(), out[:, :1].copy()
    assert np.abs(net(x) - by_numpy(weights, LAYERS, x)).max() < 1e-5
    candidates: dict[str, Callable[[], object]] = {
        "network, out": lambda: net(x, out=out),
        "network": lambda: net(x),
        "one element, out": lambda: nothing(one, out=target),
        "one element": lambda: nothing(one),
        "numpy, network": lambda: by_numpy(weights, LAYERS, x),
    }
    times = pf.measure.in_turns(candidates, turns)
    return [
        {
            "candidate": name,
            "median_ns": round(1e9 * time.median, 1),
            "low_ns": round(1e9 * time.low, 1),
            "best_ns": round(1e9 * time.best, 1),
            "ratio": round(time.median / times["network, out"].median, 3),
            "allocated_bytes": allocated(candidates[name]) - allocated(lambda: None),
            "turns": time.turns,
            "calls_per_turn": time.calls,
        }
        for name, time in times.items()
    ]


def allocated(call: Callable[[], object]) -> int:
    """The most bytes in use during a call beyond those before it."""
    call()
    tracemalloc.start()
    call()
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    call()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak - before


if __name__ == "__main__":
    print(json.dumps(in_this_process(int(sys.argv[1]))))

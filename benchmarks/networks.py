"""The demo's networks: fused, unfused and NumPy, in turns, in one process for each number of threads."""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import Any

import numpy as np

import polyfuse as pf
from benchmarks.fresh import fresh
from polyfuse import nn

NETWORKS = ((4, 512, 64), (8, 64, 1), (8, 64, 16))
"""Layers, width, batch."""


def measure(turns: int) -> list[dict[str, Any]]:
    """A row for each number of threads, network and candidate; ratios are to polyfuse, fused."""
    rows = []
    for threads in sorted({1, pf.measure.usable_cpus()}):
        for row in fresh("benchmarks.networks", str(turns), threads=threads):
            rows.append({"threads": threads, **row})
            print(
                f"{threads} threads, {row['network']}: {row['candidate']:<9} {row['median_us']:>9} µs "
                f"(best {row['best_us']})  {row['ratio_to_polyfuse']:.2f} ×"
            )
    return rows


def in_this_process(turns: int) -> list[dict[str, Any]]:
    """A row for each network and candidate, with the threads this process has."""
    rows = []
    for layers, width, batch in NETWORKS:
        modules = [m for n in range(layers) for m in (nn.Linear(width, width, seed=n), nn.ReLU())]
        nest = pf.lower(nn.Sequential(*modules), batch=batch)
        x = np.random.default_rng(0).standard_normal((batch, width), np.float32)
        nets = {
            "polyfuse": pf.compile(nest, target="cpu"),
            "unfused": pf.compile(nest, target="cpu", fuse=False),
        }
        reference = partial(by_numpy, dict(nest.constants), layers, x)
        errors = {name: float(np.abs(net(x) - reference()).max()) for name, net in nets.items()}
        candidates = {**{name: partial(net, x) for name, net in nets.items()}, "numpy": reference}
        times = pf.measure.in_turns(candidates, turns)
        for name, time in times.items():
            rows.append(
                {
                    "network": f"{layers} x {width}, batch {batch}",
                    "candidate": name,
                    "kernels": len(nets[name].kernels) if name in nets else None,
                    "median_us": round(1e6 * time.median, 3),
                    "low_us": round(1e6 * time.low, 3),
                    "high_us": round(1e6 * time.high, 3),
                    "best_us": round(1e6 * time.best, 3),
                    "ratio_to_polyfuse": round(time.median / times["polyfuse"].median, 3),
                    "turns": time.turns,
                    "calls_per_turn": time.calls,
                    "largest_error": errors.get(name),
                }
            )
    return rows


def by_numpy(weights: dict[str, Any], layers: int, x: Any) -> Any:
    """What the network computes, as a person would write it with NumPy."""
    for layer in range(layers):
        x = np.maximum(x @ weights[f"w{layer}"] + weights[f"b{layer}"], 0)
    return x


if __name__ == "__main__":
    print(json.dumps(in_this_process(int(sys.argv[1]))))

"""What the cache is worth: the same compile in a first and in a second process.

Wanted: lowering and compiling the 8-layer network of width 1024 in 0.4 s after import, the second time.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from typing import Any

import polyfuse as pf
from benchmarks.fresh import fresh
from polyfuse import nn

REPEATS = 5
NETWORKS = ((8, 1024, 64), (8, 64, 1))
"""Layers, width, batch."""


def measure(turns: int) -> list[dict[str, Any]]:
    """A row for each network and process: median and best seconds after import, over empty caches."""
    rows = []
    for network in NETWORKS:
        runs: dict[str, list[dict[str, Any]]] = {"first process": [], "second process": []}
        for _ in range(REPEATS):
            with tempfile.TemporaryDirectory() as place:
                for found in runs.values():
                    arguments = map(str, network)
                    found.append(
                        fresh("benchmarks.second_process", *arguments, threads=1, POLYFUSE_CACHE=place)
                    )
        rows += [row(network, name, found) for name, found in runs.items()]
    return rows


def row(network: tuple[int, int, int], name: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    layers, width, batch = network
    seconds = [run["seconds"] for run in runs]
    print(
        f"{layers} × {width}, {name}: {statistics.median(seconds):.3f} s (best {min(seconds):.3f}); {runs[0]['cache']}"
    )
    return {
        "network": f"{layers} x {width}, batch {batch}",
        "process": name,
        "median_s": round(statistics.median(seconds), 4),
        "best_s": round(min(seconds), 4),
        "import_s": round(statistics.median(run["import"] for run in runs), 4),
        "cache": runs[0]["cache"].split()[0],
        "repeats": len(runs),
    }


def in_this_process(layers: int, width: int, batch: int) -> dict[str, Any]:
    """Seconds to lower and compile one network, once everything is imported."""
    start = time.perf_counter()
    _ = pf.compile, pf.lower
    imported = time.perf_counter() - start
    model = nn.Sequential(*[m for n in range(layers) for m in (nn.Linear(width, width, seed=n), nn.ReLU())])
    start = time.perf_counter()
    net = pf.compile(pf.lower(model, batch=batch), target="cpu")
    seconds = time.perf_counter() - start
    return {"import": imported, "seconds": seconds, "cache": net.report().cache}


if __name__ == "__main__":
    print(json.dumps(in_this_process(*map(int, sys.argv[1:]))))

"""How long compiling takes: the stages of an 8-layer network of width 1024 and of a convolution, in fresh processes.

Wanted: lowering + dependences + schedule + validation of the network at most 1 s, a whole cold compile at most 4 s.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from typing import Any

REPEATS = 3
CANDIDATES: dict[str, dict[str, Any]] = {
    "cpu": {"target": "cpu"},
    "cpu, unfused": {"target": "cpu", "fuse": False},
    "cuda, sm_90 (source only)": {"target": "cuda", "machine": "h200", "device": "none"},
}
"""Options of compile() by name."""

NETWORKS = {
    "8 x 1024, batch 64": "nest = pf.lower(nn.Sequential(*(layer for n in range(8) for layer in "
    "(nn.Linear(1024, 1024, seed=n), nn.ReLU()))), batch=64)",
    "convolution 3 x 3 of 64 x 56 x 56, bias, ReLU": "nest = pf.lower(nn.Sequential("
    "nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()), batch=1, features=(64, 56, 56))",
}
"""What makes each nest."""

FRESH = """
import json, sys, time
start = time.perf_counter()
import polyfuse as pf
from polyfuse import nn
seconds = {"import": time.perf_counter() - start}
start = time.perf_counter()
exec(sys.argv[2])
seconds["lower"] = time.perf_counter() - start
start = time.perf_counter()
nest.dependences()
seconds["dependences"] = time.perf_counter() - start
net = pf.compile(nest, **json.loads(sys.argv[1]))
seconds.update(net.report().compile_seconds)
print(json.dumps({"seconds": seconds, "kernels": len(net.kernels), "whole": time.perf_counter() - began}))
"""


def measure(turns: int) -> list[dict[str, Any]]:
    """A row for each network and candidate: the median seconds of each stage over fresh processes."""
    both = [(network, candidate) for network in NETWORKS for candidate in CANDIDATES]
    runs: dict[tuple[str, str], list[dict[str, Any]]] = {pair: [] for pair in both}
    for _ in range(REPEATS):
        for network, candidate in both:
            runs[network, candidate].append(cold(NETWORKS[network], CANDIDATES[candidate]))
    return [row(*names, found) for names, found in runs.items()]


def cold(network: str, options: dict[str, Any]) -> dict[str, Any]:
    """One compile in a process of its own, without a cache."""
    code = f"import time\nbegan = time.perf_counter()\n{FRESH}"
    command, environment = (
        [sys.executable, "-c", code, json.dumps(options), network],
        {**os.environ, "POLYFUSE_CACHE": "off"},
    )
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def row(network: str, name: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians, and the two sums the targets are about."""
    stages = {stage: statistics.median(run["seconds"][stage] for run in runs) for stage in runs[0]["seconds"]}
    analysis = sum(stages[stage] for stage in ("lower", "dependences", "schedule", "validation"))
    whole = statistics.median(run["whole"] for run in runs)
    print(f"{network}, {name}: {runs[0]['kernels']} kernels")
    print("  " + ", ".join(f"{stage} {seconds:.3f} s" for stage, seconds in stages.items()))
    print(f"  lower + dependences + schedule + validation {analysis:.3f} s (wanted: 1 s)")
    print(f"  the whole process {whole:.3f} s (wanted: 4 s)")
    rounded = {f"{stage}_s": round(seconds, 4) for stage, seconds in stages.items()}
    return {
        "network": network,
        "candidate": name,
        "kernels": runs[0]["kernels"],
        **rounded,
        "analysis_s": round(analysis, 4),
        "whole_s": round(whole, 4),
        "repeats": len(runs),
    }

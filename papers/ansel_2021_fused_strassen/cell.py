"""One cell of the grid, in a process of its own: four variants of a network and NumPy's, checked and timed in turns.

python -m papers.ansel_2021_fused_strassen.cell TARGET LAYERS BATCH WIDTH TURNS
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

os.environ.pop("OPENBLAS_CORETYPE", None)  # before NumPy loads: its product must suit this CPU

import numpy as np

import polyfuse as pf
from papers.places import Place, place
from polyfuse import nn

VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "unfused": {"fuse": False},
    "fused": {},
    "strassen": {"fast_matmul": "strassen"},
    "auto": {"fast_matmul": "auto"},
}
"""Options of pf.compile. Unfused, every operation is a kernel; fused, bias and ReLU are in the product's."""

BASELINE = "numpy"


def network(layers: int, batch: int, width: int) -> pf.Nest:
    """Linear(width) + ReLU, so many times, float32."""
    every = [m for n in range(layers) for m in (nn.Linear(width, width, seed=n), nn.ReLU())]
    return pf.lower(nn.Sequential(*every), batch=batch)


def measured(where: Place, layers: int, batch: int, width: int, turns: int) -> list[dict[str, Any]]:
    """A row for each variant; variants that are the same program are timed once.

    Times are of the process, not of the wall, on the CPU: other work on the machine counts less. Ratios are of the
    best turns: NumPy's time over the variant's, and the variant's over the best of those that are not auto.
    """
    nest = network(layers, batch, width)
    x = np.random.default_rng(0).standard_normal((batch, width), np.float32)
    nets = {name: pf.compile(nest, **where.options, **options) for name, options in VARIANTS.items()}
    same = same_programs(nets)
    exact = _network(nest, layers, x.astype(np.float64))
    errors = {name: float(np.abs(net(x) - exact).max()) for name, net in nets.items()}
    allowed = 1e-3 * max(
        1.0, float(np.abs(exact).max())
    )  # a wrong block is off by about the results themselves
    assert max(errors.values()) <= allowed, f"largest errors {errors}, {allowed} allowed"
    rows = [
        {
            "layers": layers,
            "batch": batch,
            "width": width,
            "variant": name,
            "launches": net.report().launches,
            "launches_once": net.report().launches_once,
            "fast_layers": sum(" is computed by " in line for line in net.explain().splitlines()),
            "same_program_as": same[name] if same[name] != name else None,
            "largest_error": errors[name],
        }
        for name, net in nets.items()
    ]
    if not where.timed:
        return rows
    own = {name: partial(net, x) for name, net in nets.items() if same[name] == name}
    candidates = {BASELINE: partial(_network, nest, layers, x), **own}
    clock = time.process_time if where.target == "cpu" else time.perf_counter
    times = pf.measure.in_turns(candidates, turns, clock=clock)
    times |= {name: times[same[name]] for name in nets}
    others = min(times[name].best for name in VARIANTS if name != "auto")
    for row in rows:
        timing = times[row["variant"]]
        row |= {
            "median_us": round(1e6 * timing.median, 3),
            "best_us": round(1e6 * timing.best, 3),
            "numpy_best_us": round(1e6 * times[BASELINE].best, 3),
            "speedup_over_numpy": round(times[BASELINE].best / timing.best, 3),
            "time_over_best_variant": round(timing.best / others, 3),
            "turns": turns,
        }
    return rows


def same_programs(nets: Mapping[str, pf.Executable]) -> dict[str, str]:
    """For each variant, the first one whose kernels and launches are the same."""
    first: dict[str, str] = {}
    programs = {name: (net.source, tuple(map(str, net.kernels))) for name, net in nets.items()}
    for name, program in programs.items():
        first[name] = next(other for other, known in programs.items() if known == program)
    return first


def _network(nest: pf.Nest, layers: int, x: Any) -> Any:
    """What the network computes, as a person would write it with NumPy."""
    for layer in range(layers):
        x = np.maximum(x @ nest.constants[f"w{layer}"] + nest.constants[f"b{layer}"], 0)
    return x


if __name__ == "__main__":
    target, *numbers = sys.argv[1:]
    print(json.dumps(measured(place(target), *map(int, numbers))))

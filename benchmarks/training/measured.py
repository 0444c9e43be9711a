"""One network in a process of its own: python -m benchmarks.training.measured NAME TURNS SIDES prints its row as JSON.

rows are compared first: the losses of three steps, and the weights after them, beside torch eager's or NumPy's
compile: processor seconds of the step, and of the forward pass alone
times: in turns; processor time on one thread, where other programs do not count, and the clock on several
memory: the most that is resident during a step, beyond what was before it, and what is kept between steps
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import polyfuse as pf
from benchmarks.sides import memory
from benchmarks.training.by_polyfuse import PolyfuseStep, forward_nest
from benchmarks.training.networks import NETWORKS, Array, Network
from benchmarks.training.steps import Step

LR, STEPS = 1e-3, 3
OURS = "polyfuse"

ENOUGH = 5e-3
"""The largest difference of a weight, of the largest that a weight of its array has moved, that counts as the same."""


def measured(name: str, turns: int, sides: list[str]) -> dict[str, Any]:
    """The row of a network."""
    threads = int(os.environ["NUMBA_NUM_THREADS"])
    if threads == 1 and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # JAX has a thread for each CPU
    network = NETWORKS[name]()
    pf.compile(forward_nest(NETWORKS["4 x 64, batch 1"]()), target="cpu")  # what the first compile alone does
    row: dict[str, Any] = {"network": name}
    row["forward_compile_s"] = seconds(lambda: pf.compile(forward_nest(network), target="cpu"))[0]
    row["compile_s"], ours = seconds(lambda: PolyfuseStep(network, LR, target="cpu"))
    row["compile_ratio"] = row["compile_s"] / row["forward_compile_s"]
    steps: dict[str, Step] = {OURS: ours}
    if "eager" in sides:
        steps["torch eager"] = by_torch(network, threads, compiled=False)
    if "compile" in sides:
        steps["torch.compile"] = by_torch(network, threads, compiled=True)
    if "jax" in sides:
        steps["jax jit"] = by_jax(network)
    results = {side: trained(step) for side, step in steps.items()}
    if len(results) > 1:
        expected = results[next(side for side in results if side != OURS)]
        row["errors"] = {
            side: difference(network, result, expected)
            for side, result in results.items()
            if result is not expected
        }
        row["right"] = all(error <= ENOUGH for error in row["errors"].values())
    clock = time.process_time if threads == 1 else time.perf_counter
    timings = pf.measure.in_turns(steps, turns, clock=clock)
    row["median_us"] = {side: 1e6 * timing.median for side, timing in timings.items()}
    row["best_us"] = {side: 1e6 * timing.best for side, timing in timings.items()}
    row["call_bytes"] = {side: memory.of(step, 0)["call_bytes"] for side, step in steps.items()}
    peers = [timing.median for side, timing in timings.items() if side != OURS]
    if peers:
        row["ratio"] = min(peers) / timings[OURS].median
    row["kernels"] = len(ours.step.net.kernels)
    return row


def seconds(made: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    found = made()
    return time.process_time() - start, found


def by_torch(network: Network, threads: int, compiled: bool) -> Step:
    import torch

    from benchmarks.training.by_torch import TorchStep

    torch.set_num_threads(threads)
    return TorchStep(network, LR, compiled)


def by_jax(network: Network) -> Step:
    from benchmarks.training.by_jax import JaxStep

    return JaxStep(network, LR)


def trained(step: Step) -> tuple[list[float], Mapping[str, Array]]:
    """The losses of some steps, and the weights after them."""
    losses = [step() for _ in range(STEPS)]
    return losses, {name: array.copy() for name, array in step.parameters().items()}


def difference(
    network: Network,
    found: tuple[list[float], Mapping[str, Array]],
    expected: tuple[list[float], Mapping[str, Array]],
) -> float:
    """The largest of a loss, relative to it, and of a weight, relative to how far those of its array have moved."""
    losses = np.abs(np.subtract(found[0], expected[0])) / np.abs(expected[0])
    moved = [
        np.abs(found[1][name] - array).max() / max(np.abs(array - network.weights[name]).max(), 1e-6)
        for name, array in expected[1].items()
    ]
    return float(max(losses.max(), *moved))


if __name__ == "__main__":
    print(json.dumps(measured(sys.argv[1], int(sys.argv[2]), sys.argv[3].split(","))))

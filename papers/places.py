"""Where an experiment runs: on the CPU, on a GPU, or on the stand-in for one, which counts and does not time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import polyfuse as pf
from polyfuse.checks.gpu_facts import gpu_facts
from polyfuse.runtime.cuda.driver import available


@dataclass(frozen=True)
class Place:
    """A target as this machine has it.

    `options` are compile's: pf.compile(nest, **place.options). `timed`: whether times here say anything of the target.
    `about` is what a results file says of the machine and of the device.
    """

    target: str
    options: Mapping[str, Any]
    timed: bool
    about: dict[str, Any] = field(default_factory=dict)


def place(target: str) -> Place:
    """The CPU for "cpu"; for "cuda" the GPU, or without one kernels for an H200 in lock-step on the CPU."""
    facts = pf.measure.environment()
    if target == "cpu":
        return Place(target, {"target": "cpu"}, True, {**facts, "device": "cpu"})
    if available():
        gpu = gpu_facts()
        about = {**facts, "device": f"{gpu['name']}, driver {gpu['driver']}", "gpu": gpu}
        return Place(target, {"target": "cuda"}, True, about)
    stand_in = {"target": "cuda", "machine": "h200", "device": "lockstep"}
    return Place(target, stand_in, False, {**facts, "device": "lockstep, a stand-in on the CPU: no GPU"})


def on_one_core(where: Place) -> Place:
    """On a CPU planned for one core, so that the processor's clock counts all there is."""
    if where.target != "cpu":
        return where
    return replace(where, options={**where.options, "machine": replace(pf.Machine.detect(), units=1)})

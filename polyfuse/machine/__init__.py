"""Machines: the cost model's parameters of a target; presets, and this computer's CPU as Linux describes it."""

from polyfuse.machine.model import (
    PRESETS,
    GiB,
    Gpu,
    KiB,
    Level,
    Machine,
    MiB,
    cpu,
    detect_cpu,
    gpu,
    usable_cores,
)

__all__ = [
    "PRESETS",
    "GiB",
    "Gpu",
    "KiB",
    "Level",
    "Machine",
    "MiB",
    "cpu",
    "detect_cpu",
    "gpu",
    "usable_cores",
]

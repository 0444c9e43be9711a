"""Cycles of a GPU's SM: its clock rate, and the latency of a load from global memory."""

from __future__ import annotations

from polyfuse.machine import GpuMachine

LATENCY = 700
"""Cycles from a tile's loads to its products that other work has to cover: global memory, a store, two barriers. The
order of magnitude of published microbenchmarks, not measured here."""


def seconds_of_wait(machine: GpuMachine) -> float:
    """The seconds of one load from global memory whose latency is not hidden."""
    return LATENCY / hertz(machine)


def hertz(machine: GpuMachine) -> float:
    """Cycles of an SM in a second: 128 fused multiply-adds each."""
    return machine.flops32 / (2 * 128)

"""Machines: the cost model's parameters of a target; presets, and this computer's CPU as Linux describes it."""

from polyfuse.machine.gpu_limits import Gpu
from polyfuse.machine.levels import GiB, KiB, Level, MiB
from polyfuse.machine.linux_cpu import usable_cores
from polyfuse.machine.model import PRESETS, CpuMachine, GpuMachine, Machine, cpu, detect_cpu, gpu

__all__ = [
    "PRESETS",
    "CpuMachine",
    "GiB",
    "Gpu",
    "GpuMachine",
    "KiB",
    "Level",
    "Machine",
    "MiB",
    "cpu",
    "detect_cpu",
    "gpu",
    "usable_cores",
]

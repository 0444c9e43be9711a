"""Query the driver and a GPU through the driver's library, without a context or an import of CUDA packages.

    driver's library  ->  its version: CUDA 13.0
                      ->  a GPU's facts: name, compute capability, multiprocessors, memory, what a block gets

From the facts follows the machine that plans are made for.
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any

from polyfuse.errors import TargetUnavailable
from polyfuse.machine import GiB, GpuMachine

DRIVERS = {12: "525", 13: "580"}
"""The first display driver for a major version of CUDA ("CUDA Toolkit Release Notes", minor version compatibility)."""


@dataclass(frozen=True)
class GpuFacts:
    """The properties of a GPU. Sizes are in bytes."""

    name: str
    compute_capability: tuple[int, int]
    multiprocessors: int
    memory: int
    registers_per_sm: int
    shared_per_block: int
    shared_per_sm: int
    max_threads_per_sm: int
    max_blocks_per_sm: int

    def __str__(self) -> str:
        major, minor = self.compute_capability
        return f"{self.name}, compute capability {major}.{minor}, {self.multiprocessors} SMs"


def driver_library() -> Any | None:
    """The driver's library; None if there is none."""
    try:
        return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return None


def too_old(driver: Any) -> str | None:
    """Return the reason why a driver is too old for the installed packages, with a remedy; None if it is not.

    A driver runs what is made for its own major version of CUDA or for an older one.
    """
    needed = needed_version()
    found = ctypes.c_int(0)
    if needed is None or driver.cuDriverGetVersion(ctypes.byref(found)):
        return None
    major, minor = found.value // 1000, found.value % 1000 // 10
    if major >= needed:
        return None
    branch = f" (driver {DRIVERS[needed]} or newer)" if needed in DRIVERS else ""
    return (
        f"target 'cuda' needs a driver for CUDA {needed}.0 or newer{branch}, as cuda-bindings "
        f"{metadata.version('cuda-bindings')} is installed; this one is for CUDA {major}.{minor}: update "
        "NVIDIA's driver"
    )


def needed_version() -> int | None:
    """The major version of CUDA that the installed bindings call; None where they do not say."""
    try:
        return int(metadata.version("cuda-bindings").split(".")[0])
    except (metadata.PackageNotFoundError, ValueError):
        return None


def gpu_facts(driver: Any, ordinal: int = 0) -> GpuFacts | None:
    """Return the properties of one of the machine's GPUs; None if the driver does not provide them."""
    device, memory, name = ctypes.c_int(0), ctypes.c_size_t(0), ctypes.create_string_buffer(256)
    status = (
        driver.cuInit(0)
        or driver.cuDeviceGet(ctypes.byref(device), ordinal)
        or driver.cuDeviceGetName(name, len(name), device)
        or driver.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    )
    if status:
        return None

    def ask(which: int) -> int:
        found = ctypes.c_int(0)
        driver.cuDeviceGetAttribute(ctypes.byref(found), which, device)
        return found.value

    return GpuFacts(
        name.value.decode(errors="replace"),
        (ask(_MAJOR), ask(_MINOR)),
        ask(_MULTIPROCESSORS),
        memory.value,
        ask(_REGISTERS_PER_SM),
        ask(_SHARED_PER_BLOCK),
        ask(_SHARED_PER_SM),
        ask(_THREADS_PER_SM),
        ask(_BLOCKS_PER_SM),
    )


_MULTIPROCESSORS, _MAJOR, _MINOR = 16, 75, 76
_THREADS_PER_SM, _SHARED_PER_SM, _REGISTERS_PER_SM, _SHARED_PER_BLOCK, _BLOCKS_PER_SM = 39, 81, 82, 97, 106
"""Of `CUdevice_attribute` in "CUDA Driver API"; what a block gets is what its launch may ask for ("optin")."""


def machine_for(facts: GpuFacts) -> GpuMachine:
    """The preset that is most like a GPU, with this one's multiprocessors and limits; rates stay the preset's.

    Raises TargetUnavailable for a compute capability below 8.0: no kernel here is made for it.
    """
    major, minor = facts.compute_capability
    if major < 8:
        raise TargetUnavailable(
            f"kernels are made for compute capability 8.0 and newer, and {facts.name} has {major}.{minor}; name "
            "target='cpu'"
        )
    preset = GpuMachine.preset(_preset(facts))
    limits = replace(
        preset.gpu,
        compute_capability=facts.compute_capability,
        registers_per_sm=facts.registers_per_sm,
        shared_per_block=facts.shared_per_block,
        shared_per_sm=facts.shared_per_sm,
        max_threads_per_sm=facts.max_threads_per_sm,
        max_blocks_per_sm=facts.max_blocks_per_sm,
    )
    units = facts.multiprocessors
    levels = tuple(replace(level, drawn_by=min(level.drawn_by, units)) for level in preset.levels)
    return replace(preset, units=units, levels=levels, gpu=limits, chosen_for=str(facts))


def _preset(facts: GpuFacts) -> str:
    """A preset's name: of the same compute capability, else the nearest in what its multiprocessors are."""
    if facts.compute_capability[0] == 9:
        return "h200" if "H200" in facts.name or facts.memory > 100 * GiB else "h100"
    if facts.compute_capability == (8, 0):
        return "a100"
    return "h200" if facts.compute_capability[0] in (10, 11) else "rtx4090"

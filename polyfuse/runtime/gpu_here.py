"""What the driver says of itself and of a GPU: asked of its library alone, without a context or an import of CUDA's.

driver's library  ->  its version: CUDA 13.0
                  ->  a GPU's facts: name, compute capability, multiprocessors, memory, what a block gets
"""

from __future__ import annotations

import ctypes
import sys
from importlib import metadata
from typing import Any

DRIVERS = {12: "525", 13: "580"}
"""The first display driver for a major version of CUDA ("CUDA Toolkit Release Notes", minor version compatibility)."""


def driver_library() -> Any | None:
    """The driver's library; None where there is none."""
    try:
        return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return None


def too_old(driver: Any) -> str | None:
    """Why a driver is too old for what is installed, and what would help; None if it is not.

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

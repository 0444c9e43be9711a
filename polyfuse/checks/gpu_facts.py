"""The facts of a GPU that results are recorded with."""

from __future__ import annotations

import subprocess
from dataclasses import asdict
from typing import Any

from polyfuse.runtime.cuda.driver import Gpu


def gpu_facts() -> dict[str, Any]:
    """Name, compute capability, multiprocessors and driver of the GPU the cases run on."""
    return {**asdict(Gpu().info), "driver": driver_version()}


def driver_version() -> str | None:
    """The display driver's version as nvidia-smi gives it; None if there is no nvidia-smi."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.splitlines()[0].strip() if done.stdout.strip() else None

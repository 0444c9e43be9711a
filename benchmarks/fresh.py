"""A part of a benchmark in a process of its own: libraries read their number of threads once, when they are loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

THREADS = ("NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def with_threads(threads: int) -> dict[str, str]:
    """This process's environment, with so many threads for every library."""
    return {**os.environ, **dict.fromkeys(THREADS, str(threads))}


def fresh(
    module: str, *arguments: str, threads: int, seconds: float | None = None, **environment: str
) -> Any:
    """What `python -m module arguments…` prints as JSON, with so many threads for every library.

    Raises CalledProcessError with the module's stderr if it fails, TimeoutExpired after `seconds`.
    """
    environment = {**with_threads(threads), **environment}
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True, timeout=seconds
    )
    return json.loads(done.stdout)

"""numba's threading layer: which one parallel kernels get, and what it allows."""

from __future__ import annotations

import os
from importlib import import_module

import numba


def use_openmp() -> None:
    """Ask numba for OpenMP (a region costs 0.7 µs; its work queue 43–88 µs) unless the user chose a layer.

    A thread that waits for the others spins before it sleeps, for 300,000 turns if GNU's OpenMP is not told otherwise.
    Beside other processes that costs more than it gains: 4 × Linear(512) + ReLU at batch 64 took 4.9 and 44 ms a call
    on two shared cores, 1.4 and 1.1 ms with 1,000 turns. A user's own OMP_WAIT_POLICY or GOMP_SPINCOUNT is kept.
    """
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & set(os.environ):
        os.environ["GOMP_SPINCOUNT"] = "1000"  # read once, when the library is loaded
    if numba.config.THREADING_LAYER == "default" and _has_openmp():
        numba.config.THREADING_LAYER = "omp"


def _has_openmp() -> bool:
    try:
        import_module("numba.np.ufunc.omppool")
    except ImportError:
        return False
    return True


def layer_is_thread_safe() -> bool:
    """Whether two Python threads may be in parallel kernels at once."""
    return _has_openmp() or numba.config.THREADING_LAYER in ("tbb", "omp", "safe", "threadsafe")

"""numba's threading layer: the one that parallel kernels use, and its restrictions."""

from __future__ import annotations

import os
from importlib import import_module

import numba

from polyfuse.runtime.cpu.placement import may_place

SPINS = {True: 10_000, False: 1_000}
"""Turns that a thread waits before it sleeps: of threads that are kept apart, and of others."""


def use_openmp() -> None:
    """Ask numba for OpenMP (a region costs 2 µs; its work queue 43–88 µs) unless the user chose a layer.

    A thread that waits for the others spins before it sleeps, for 300,000 turns if GNU's OpenMP is not told otherwise.
    One that sleeps takes 50 µs to wake; one that spins on the CPU of the thread it waits for keeps that from running.
    4 × Linear(512) + ReLU at batch 64, called at once and after 20 ms (ms; two CPUs of a Xeon):

        turns                  1,000           10,000
        threads kept apart     1.2, 2.5        0.7, 1.6        polyfuse.runtime.cpu.placement
        threads anywhere       1.1, 2.7        0.8, 3.8

    A user's own OMP_WAIT_POLICY or GOMP_SPINCOUNT is kept.
    """
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & set(os.environ):
        os.environ["GOMP_SPINCOUNT"] = str(SPINS[may_place()])  # read once, when the library is loaded
    if numba.config.THREADING_LAYER == "default" and _has_openmp():
        numba.config.THREADING_LAYER = "omp"


def _has_openmp() -> bool:
    try:
        import_module("numba.np.ufunc.omppool")
    except ImportError:
        return False
    return True


def layer_is_thread_safe() -> bool:
    """True if two Python threads may run parallel kernels at the same time. Starts numba's threads."""
    numba.get_num_threads()
    return bool(numba.threading_layer() in ("omp", "tbb"))

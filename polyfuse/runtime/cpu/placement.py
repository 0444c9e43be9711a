"""Thread placement: keep the workers of parallel kernels off the CPU of the calling thread.

    after a pause      CPU 0: caller and worker, in turns    CPU 1: idle
    kept apart         CPU 0: caller                         CPU 1: worker

Linux wakes a thread where the thread that wakes it runs, and moves it away only milliseconds later: of two CPUs, one
does the work of both. jacobi-1d of PolyBench, called every 50 ms, took 0.92 ms so and 0.26 with its threads apart. The
caller's own thread is left as it is: what it starts would inherit a restriction.

A worker that ends a barrier wakes the caller where the worker runs, too, and cannot leave that CPU itself. So where a
call ended on another CPU than it began on, later calls of the program hold the caller there until they end. A training
step of 4 x Linear(1024) at batch 1 took 4.2 to 6 ms of 2.4 so (two cores of a Zen 5, calls every 50 ms).
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any

import numba

from polyfuse.codegen.cpu.parallel_calls import is_forked

USERS_OWN = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
"""Environment variables by which a user places threads."""

SWITCH = "POLYFUSE_PLACE_THREADS"
"""Set to "off", it says that we do not."""

_LOOP = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)
"""A piece of numba's parallel loop: arguments, extents, steps, data."""

_PARALLEL_FOR = ctypes.CFUNCTYPE(
    None, _LOOP, *[ctypes.c_void_p] * 4, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int
)
"""numba's parallel loop: piece, arguments, extents, steps, data, inner dimensions, arrays, threads."""


def apart(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of a parallel program, which first sees to it that the workers are not where the caller is."""
    if not (may_place() and _uses_openmp()):
        return function
    cpu_of_this_thread = ctypes.CDLL(None).sched_getcpu
    wanders = False

    @wraps(function)
    def placed(*arguments: Any) -> Any:
        nonlocal wanders
        cpu = cpu_of_this_thread()
        if cpu != _TEAM.kept_off and not is_forked():
            _TEAM.keep_off(cpu)
        if wanders and not is_forked():
            return _held(cpu, function, arguments)
        result = function(*arguments)
        wanders = cpu_of_this_thread() != cpu
        return result

    return placed


def _held(cpu: int, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Call a function on one CPU; workers start before, as they would inherit the restriction."""
    _TEAM.keep_complete(cpu)
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {cpu})
    except OSError:  # a system that refuses to
        return function(*arguments)
    try:
        return function(*arguments)
    finally:
        os.sched_setaffinity(0, before)


def may_place() -> bool:
    """True if threads can be pinned, there is a choice of CPUs, and nobody else has pinned them."""
    chosen = os.environ.get(SWITCH) == "off" or any(name in os.environ for name in USERS_OWN)
    if chosen or not hasattr(os, "sched_setaffinity"):
        return False
    return len(os.sched_getaffinity(0)) > 1


def _uses_openmp() -> bool:
    numba.get_num_threads()  # chooses the threading layer
    return bool(numba.threading_layer() == "omp")


class _Team(threading.local):
    """The workers of this thread: OpenMP starts them for each thread that calls."""

    kept_off: int | None = None
    _workers: frozenset[int] = frozenset()

    def keep_complete(self, cpu: int) -> None:
        """Start the workers that a call needs where OpenMP has ended some, and keep them off a CPU."""
        there = all(os.path.exists(f"/proc/self/task/{worker}") for worker in self._workers)
        if not there or len(self._workers) + 1 < numba.get_num_threads():
            self._workers = frozenset()
            self.keep_off(cpu)

    def keep_off(self, cpu: int) -> None:
        """Keep the workers off a CPU. Those that OpenMP has replaced since the last time are found anew."""
        self.kept_off = cpu
        elsewhere = os.sched_getaffinity(0) - {cpu}
        if elsewhere and not self._placed(elsewhere):
            self._workers = _workers()
            self._placed(elsewhere)

    def _placed(self, cpus: set[int]) -> bool:
        """True if the workers exist, belong to this process and were pinned.

        A system that refuses to (a container without the right) leaves them where they are: the call runs all the same.
        """
        try:
            for worker in self._workers:
                # the number of a thread that ended may be another process's
                os.stat(f"/proc/self/task/{worker}")
                os.sched_setaffinity(worker, cpus)
        except OSError:
            return False
        return bool(self._workers)


_TEAM = _Team()


def _workers() -> frozenset[int]:
    """The threads beside this one that run a parallel loop which it starts: each is asked for its number."""
    found: set[int] = set()

    def ask(*_: Any) -> None:
        found.add(threading.get_native_id())

    threads = numba.get_num_threads()
    extents, steps = (ctypes.c_size_t * 1)(threads), (ctypes.c_ssize_t * 1)(0)
    parallel_for = _PARALLEL_FOR(import_module("numba.np.ufunc.omppool").parallel_for)
    arguments = (ctypes.c_void_p * 1)(None)
    parallel_for(
        _LOOP(ask), *(ctypes.addressof(one) for one in (arguments, extents, steps)), None, 0, 1, threads
    )
    return frozenset(found - {threading.get_native_id()})

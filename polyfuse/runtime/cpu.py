"""Programs on the CPU: numba compiles each kernel once; a call runs them in order on NumPy arrays."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numba
import numpy.typing as npt

from polyfuse.codegen.cpu import header
from polyfuse.codegen.program import Code, Program
from polyfuse.runtime.files import source_file

Array = npt.NDArray[Any]

FASTMATH = {"contract"}
"""a * b + c may become one fused multiply-add; nothing else about a body's arithmetic may change."""

_SERIAL = threading.Lock()
"""Held around parallel kernels where numba's threading layer does not allow two at once."""


class CpuProgram:
    """A program's kernels, compiled."""

    def __init__(self, program: Program) -> None:
        self.program = program
        use_openmp()
        self._functions = {code.name: compile_kernel(code) for code in program.codes}
        self._locked = any(code.parallel for code in program.codes) and not layer_is_thread_safe()

    def run(self, arrays: Mapping[str, Array], sizes: Mapping[str, int]) -> None:
        """Run every launch in order. `arrays` has every tensor the kernels touch, by name."""
        extra = [sizes[name] for name in self.program.sizes]
        if self._locked:
            with _SERIAL:
                self._run(arrays, extra)
        else:
            self._run(arrays, extra)

    def _run(self, arrays: Mapping[str, Array], extra: list[int]) -> None:
        for launch in self.program.launches:
            self._functions[launch.name](*[arrays[name] for name in launch.tensors], *extra)


def compile_kernel(code: Code) -> Callable[..., None]:
    """The kernel as a numba dispatcher with one signature, its source in a file that tracebacks can show."""
    text = f"{header(code.source)}\n\n{code.source}"
    path = source_file(code.name, text)
    space: dict[str, Any] = {}
    exec(compile(text, str(path), "exec"), space)
    options = {"parallel": code.parallel, "fastmath": FASTMATH, "error_model": "numpy", "nogil": True}
    function: Callable[..., None] = numba.njit(str(code.signature), **options)(space[code.name])
    return function


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

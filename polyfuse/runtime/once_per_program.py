"""Compute values that depend on constants only before the first call, on a GPU or emulator, and keep them as
constants.

    constants ──(the launches that run once)──> kept ──┐
    constants, inputs ─────────────────────────────────┴──(the other launches)──> results       every call

On the CPU the machine code has an entry of its own for this (cpu.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from polyfuse.codegen.program import Program
from polyfuse.runtime.memory.arenas import at_least_1d
from polyfuse.runtime.memory.memory_plan import Memory, shape_of

Array = npt.NDArray[Any]
Sizes = Mapping[str, int]


class Runner(Protocol):
    """Runs a program on arrays, by tensor name."""

    def run(self, arrays: Mapping[str, Array], sizes: Sizes) -> None:
        """Run every launch in order."""


def once_and_calls(program: Program) -> tuple[Program, Program]:
    """Split a program into the part that runs once and the part of every call."""
    once, calls = (
        replace(program, launches=tuple(one for one in program.launches if one.once == early))
        for early in (True, False)
    )
    return once, calls


class Kept:
    """The values of the tensors that launches which run once leave for all calls, for some constants."""

    def __init__(
        self, memory: Memory, constants: Mapping[str, Array], new_runner: Callable[[], Runner]
    ) -> None:
        self._memory, self._constants, self._new_runner = memory, constants, new_runner
        self._values: dict[tuple[tuple[str, int], ...], Mapping[str, Array]] = {}
        self._lock = threading.Lock()

    def values(self, sizes: Sizes) -> Mapping[str, Array]:
        """Return the values by name: computed on first use for these sizes, on a runner that is released afterwards."""
        if not self._memory.kept:
            return {}
        key = tuple(sorted(sizes.items()))
        with self._lock:
            if key not in self._values:
                self._values[key] = self._computed(sizes)
            return self._values[key]

    def _computed(self, sizes: Sizes) -> Mapping[str, Array]:
        tensors = (*self._memory.kept, *self._memory.once.tensors)
        made = {t.name: np.empty(shape_of(t, sizes), t.dtype) for t in tensors}
        every = {name: at_least_1d(array) for name, array in {**self._constants, **made}.items()}
        self._new_runner().run(every, sizes)
        return {tensor.name: every[tensor.name] for tensor in self._memory.kept}

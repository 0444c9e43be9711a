"""Run programs on the CPU: machine code with one entry, bound to sizes and constants."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any

import numpy as np
import numpy.typing as npt

from polyfuse.runtime.cpu.aligned_arrays import aligned, aligned_array
from polyfuse.runtime.cpu.entry import Held
from polyfuse.runtime.cpu.native import Library, MachineCode
from polyfuse.runtime.cpu.placement import apart
from polyfuse.runtime.cpu.threading_layer import layer_is_thread_safe
from polyfuse.runtime.interface import ENTRY, ENTRY_ONCE, Phase, Phases
from polyfuse.runtime.memory.memory_plan import shape_of
from polyfuse.runtime.memory.results import Recycled, is_large

Array = npt.NDArray[Any]
Sizes = Mapping[str, int]

MOST_SIZES = 16
"""Sizes whose functions are kept, each with an arena and the memory of large results: what was called longest ago goes,
and is made again in some 50 µs (one kernel, one Zen 5 core)."""

_SERIAL = threading.Lock()
"""Held around parallel kernels where numba's threading layer does not allow two at once, and by a fork."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_SERIAL.acquire, after_in_parent=_SERIAL.release, after_in_child=_SERIAL.release
    )


@dataclass
class _Made:
    """The functions made for some constants, by sizes, the latest last, and the one that ran last."""

    constants: Mapping[str, Array]
    functions: dict[tuple[int, ...], Callable[..., Any]] = field(default_factory=dict)
    last: Callable[..., Any] | None = None


class CpuProgram:
    """A program's machine code in this process, and the functions made from it for the latest sizes.

    What runs once does so when a function is made: for a program without symbolic sizes where it is compiled, loaded
    or given other constants, else at the first call with some sizes. What it computes belongs to that function, so
    that calls that run keep what they began with.
    """

    def __init__(
        self,
        code: MachineCode,
        phases: Phases,
        constants: Mapping[str, Array],
        stamps: Array | None = None,
    ) -> None:
        """A program for some constants. Timed machine code writes the clock to `stamps` (entry.py)."""
        assert code.tensors == phases.names, "machine code for other tensors"
        self.interface = phases.calls.interface
        self._library, self._phases = Library(code), phases
        self._parallel, self._stamps = code.parallel, stamps
        self.hold(constants)

    def hold(self, constants: Mapping[str, Array]) -> None:
        """Use these constants from now on; calls that run finish with the old ones."""
        self._made = _Made(constants)

    def function(self, sizes: Sizes) -> Callable[..., Any]:
        """The entry for some sizes (entry.py says what it takes and answers), made if none is kept.

        Threads may do this at once: each step is one of the dictionary's own, and at worst a function is made twice.
        """
        made = self._made
        key = tuple(sizes[name] for name in self.interface.sizes)
        found = made.functions.pop(key, None) or self._new_function(sizes, made.constants)
        made.functions[key] = made.last = found
        for oldest in list(made.functions)[:-MOST_SIZES]:
            made.functions.pop(oldest, None)
        return found

    def again(self, inputs: tuple[Any, ...], out: Any) -> Any:
        """Run for the sizes of the last call; NotImplemented, and nothing has run, if the arguments have others."""
        last = self._made.last
        return NotImplemented if last is None else last(inputs, out)

    def run(self, arrays: Mapping[str, Array], sizes: Sizes) -> None:
        """Run on arrays by name, all of which are known to fit."""
        inputs = tuple(arrays[tensor.name] for tensor in self.interface.inputs)
        results = tuple(arrays[tensor.name] for tensor in self.interface.results)
        out = results if len(results) > 1 else results[0] if results else None
        done = self.function(sizes)(inputs, out)
        assert done is not NotImplemented, "an entry refused arrays that were checked"

    def _new_function(self, sizes: Sizes, constants: Mapping[str, Array]) -> Callable[..., Any]:
        kept = self._kept(sizes, constants)
        return self._entry(ENTRY, self._phases.calls, new_result, sizes, {**constants, **kept})

    def _kept(self, sizes: Sizes, constants: Mapping[str, Array]) -> Mapping[str, Array]:
        """Run what runs once: the values of the tensors that calls find beside the constants."""
        once = self._phases.once
        results = once.interface.results
        if not results:
            return {}
        values = self._entry(ENTRY_ONCE, once, partial(partial, aligned_array), sizes, constants)((), None)
        return dict(zip((t.name for t in results), values if len(results) > 1 else (values,), strict=True))

    def _entry(
        self,
        name: str,
        phase: Phase,
        maker: Callable[[tuple[int, ...], np.dtype[Any]], Callable[[], Array]],
        sizes: Sizes,
        constants: Mapping[str, Array],
    ) -> Callable[..., Any]:
        interface, plan = phase.interface, phase.memory.plan(sizes)
        held = Held(
            numbers=interface.numbers(sizes, plan),
            new_results=tuple(
                maker(shape_of(tensor, sizes), np.dtype(tensor.dtype)) for tensor in interface.results
            ),
            new_arena=partial(aligned, plan.size),
            spare=[],
            constants=tuple(constants[tensor.name] for tensor in interface.constants),
            owner=self._library,
            stamps=self._stamps,
        )
        function = self._library.function(name, held)
        if not self._parallel:
            return function
        return apart(function) if layer_is_thread_safe() else _one_at_a_time(function)


def new_result(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Callable[[], Array]:
    """Return a function that allocates a result's array in each call."""
    return Recycled(shape, dtype) if is_large(shape, dtype) else partial(np.empty, shape, dtype)


def _one_at_a_time(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def locked(*arguments: Any) -> Any:
        with _SERIAL:
            return function(*arguments)

    return locked

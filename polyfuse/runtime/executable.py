"""Executables: a compiled nest that can be called, printed, measured, pickled."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from polyfuse.analysis.validation import Validation
from polyfuse.codegen.program import Launch, Program
from polyfuse.errors import BadArgument, TargetUnavailable
from polyfuse.ir.nest import Nest
from polyfuse.ir.tensor import Tensor
from polyfuse.machine import Machine
from polyfuse.rewrite.expand import Expansion
from polyfuse.runtime.arguments import bind_arguments, check_constant, check_out, give_back, matched
from polyfuse.runtime.cpu import CpuProgram
from polyfuse.runtime.cuda import CudaProgram
from polyfuse.runtime.cuda_driver import Gpu, missing
from polyfuse.runtime.device_arrays import call_in_place, is_on_gpu
from polyfuse.runtime.emulated import EmulatedProgram
from polyfuse.runtime.memory import MemoryPlan, plan_memory, shape_of
from polyfuse.runtime.report import Report
from polyfuse.schedule import Schedule
from polyfuse.strategy import KernelCost, Plan

Array = npt.NDArray[Any]

Device = Literal["cpu", "gpu", "lockstep", "simulator", "none"]
"""Where an executable runs: the CPU, a GPU, a stand-in for one, or nowhere (it can be printed)."""


class Runner(Protocol):
    """What runs a program on arrays, by tensor name."""

    def run(self, arrays: Mapping[str, Array], sizes: Mapping[str, int]) -> None:
        """Run every launch in order."""


@dataclass(frozen=True)
class Compiled:
    """Everything a compile decided, from the schedule on: what an executable runs, prints and pickles."""

    schedule: Schedule
    plan: Plan | None
    costs: tuple[KernelCost, ...]
    validation: Validation
    program: Program
    machine: Machine
    device: Device
    seconds: Mapping[str, float]
    expansions: tuple[Expansion, ...] = ()


class Executable:
    """A compiled nest. Call it; print `schedule`, `explain()`, `source`, `report()`. Safe from several threads."""

    def __init__(self, compiled: Compiled) -> None:
        self.compiled = compiled
        self.nest: Nest = compiled.schedule.source
        self.schedule = compiled.schedule
        self.program = compiled.program
        start = time.perf_counter()
        self._runner = runner_for(compiled)
        self._build_seconds = time.perf_counter() - start
        self._constants = {n: _constant_array(a) for n, a in self.nest.constants.items()}
        self._spare: dict[tuple[tuple[str, int], ...], list[dict[str, Array]]] = {}
        self._plans: dict[tuple[tuple[str, int], ...], MemoryPlan] = {}
        self._copied: dict[str, None] = {}
        self._out_is_input = any(tensor.name == "out" for tensor in self.nest.inputs)
        self._scalars = tuple(t.name for t in self.nest.tensors if t.rank == 0 and t.role != "temporary")

    def __call__(self, *args: Any, out: Any = None, **named: Any) -> Any:
        """Run on arrays given in the order of the nest's inputs, or by name.

        NumPy arrays give a NumPy array; an array of another library that speaks DLPack gives that library's. One
        output is returned by itself, several as a tuple in the nest's order, none as None. `out` is an array, or a
        tuple of them, to write to instead. Tensors with role inout are changed in place.
        """
        if out is not None and self._out_is_input:
            named, out = {**named, "out": out}, None
        if self._runner is None:
            raise TargetUnavailable(
                f"{missing() or 'no device was asked for'}; this executable was compiled for "
                f"{self.compiled.machine.name} to be read, not to be run here"
            )
        if isinstance(self._runner, CudaProgram) and any(
            is_on_gpu(value) for value in (*args, *named.values())
        ):
            given_arrays = matched(self.nest, args, named)
            return call_in_place(self._runner, self.nest, given_arrays, out, self._host_arrays)
        bound = bind_arguments(self.nest, args, named)
        if bound.copied:
            self._copied.update(dict.fromkeys(bound.copied))
        arrays: dict[str, Array] = {**self._constants, **bound.arrays}
        results = self._outputs(out, bound.sizes, arrays)
        key = tuple(sorted(bound.sizes.items()))
        temporaries = self._take(key, bound.sizes)
        try:
            arrays.update(temporaries)
            self._runner.run(arrays, bound.sizes)
        finally:
            self._spare.setdefault(key, []).append(temporaries)
        if bound.copied:
            self._write_back(bound.copied, bound.arrays, args, named)
        given = tuple(give_back(results[t.name], bound.module) for t in self.nest.results)
        return given if len(given) > 1 else given[0] if given else None

    def replace_constants(self, values: Mapping[str, Array]) -> None:
        """Give constants (weights) new values of the same shape and dtype; calls that run now finish with the old."""
        checked = {name: check_constant(self._constant(name), array) for name, array in values.items()}
        self._constants = {**self._constants, **{n: _constant_array(a) for n, a in checked.items()}}

    @property
    def constants(self) -> Mapping[str, Array]:
        """The constants' values by tensor name."""
        return dict(self._constants)

    @property
    def kernels(self) -> tuple[Launch, ...]:
        """One entry per launch, in order: name, statements, source, grid."""
        return self.program.launches

    @property
    def source(self) -> str:
        """The emitted source of all kernels."""
        return self.program.source

    def memory_plan(self, sizes: Mapping[str, int] | None = None) -> MemoryPlan:
        """Where the temporaries lie, for given symbolic sizes."""
        known = dict(sizes or {})
        key = tuple(sorted(known.items()))
        if key not in self._plans:
            self._plans[key] = plan_memory(self.nest, self.schedule.nest, self.schedule.tree, known)
        return self._plans[key]

    def explain(self) -> str:
        """Each fusion taken and each refused, with the reason; then what validation checked."""
        count = len(self.kernels)
        lines = [f"{count} kernel{'s' if count != 1 else ''} on {self.compiled.machine.name}"]
        lines += [f"  {launch}" for launch in self.kernels]
        if self.compiled.plan is None:
            lines.append("the schedule was given by hand; no fusion was searched for")
        else:
            lines += [f"- {expansion}" for expansion in self.compiled.expansions]
            lines += [f"- {decision}" for decision in self.compiled.plan.decisions]
            lines += [f"- {note}" for note in self.compiled.plan.notes]
        return "\n".join([*lines, str(self.compiled.validation)])

    def report(self, sizes: Mapping[str, int] | None = None) -> Report:
        """Kernels, work, bytes moved, predicted time and memory; from the model, not from a clock."""
        memory = self.memory_plan(sizes)
        costs = self.compiled.costs
        return Report(
            target=f"{self.program.target} ({self.compiled.machine.name})",
            launches=len(self.kernels),
            compiled_kernels=len(self.program.codes),
            flops=sum(cost.flops for cost in costs),
            bytes_moved=sum(cost.compulsory + cost.again for cost in costs),
            predicted_seconds=sum(cost.total for cost in costs),
            arena_bytes_before=memory.unplanned,
            arena_bytes=memory.size,
            copied_inputs=tuple(self._copied),
            compile_seconds={**self.compiled.seconds, "machine code": self._build_seconds},
        )

    def __reduce__(self) -> tuple[type[Executable], tuple[Compiled], dict[str, Any]]:
        """Pickled as what was decided; the kernels are compiled again where it is loaded."""
        return Executable, (self.compiled,), {"_constants": self._constants}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._constants = {name: _constant_array(array) for name, array in state["_constants"].items()}

    def _constant(self, name: str) -> Tensor:
        tensor = next((t for t in self.nest.with_role("constant") if t.name == name), None)
        if tensor is None:
            known = ", ".join(t.name for t in self.nest.with_role("constant")) or "none"
            raise BadArgument(f"there is no constant {name!r}; there are {known}")
        return tensor

    def _outputs(self, out: Any, sizes: Mapping[str, int], arrays: dict[str, Array]) -> dict[str, Array]:
        wanted = self.nest.results
        if out is None:
            found = {t.name: np.empty(shape_of(t, sizes), t.dtype) for t in wanted}
        else:
            given = out if isinstance(out, tuple) else (out,)
            if len(given) != len(wanted):
                names = ", ".join(t.name for t in wanted)
                raise BadArgument(f"out: expected {len(wanted)} arrays for {names}, given {len(given)}")
            found = {t.name: check_out(t, array, sizes) for t, array in zip(wanted, given, strict=True)}
            for name, array in found.items():
                for other, value in arrays.items():
                    if np.may_share_memory(array, value):
                        raise BadArgument(
                            f"out for {name} shares memory with {other}, which the kernels read"
                        )
        arrays.update(found)
        for name in self._scalars:
            arrays[name] = _at_least_1d(arrays[name])
        return found

    def _take(self, key: tuple[tuple[str, int], ...], sizes: Mapping[str, int]) -> dict[str, Array]:
        """Arrays for the temporaries: a spare set, or a new arena. list.pop is atomic, so threads never share one."""
        try:
            return self._spare[key].pop()
        except (KeyError, IndexError):
            plan = self.memory_plan(sizes)
        arena = np.empty(plan.size, np.uint8)
        found = {}
        for name, (start, stop) in plan.spans.items():
            tensor = self.schedule.nest.tensor(name)
            found[name] = _at_least_1d(arena[start:stop].view(tensor.dtype).reshape(shape_of(tensor, sizes)))
        return found

    def _host_arrays(self, sizes: Mapping[str, int]) -> dict[str, Array]:
        """Constants, and temporaries for the layout of their arena (never touched on the host)."""
        key = tuple(sorted(sizes.items()))
        temporaries = self._take(key, sizes)
        self._spare.setdefault(key, []).append(
            temporaries
        )  # only their layout is used, so others may have them too
        return {**self._constants, **temporaries}

    def _write_back(
        self,
        copied: tuple[str, ...],
        arrays: Mapping[str, Array],
        args: tuple[Any, ...],
        named: Mapping[str, Any],
    ) -> None:
        """An inout array that had to be copied to be contiguous gets its new values."""
        for position, tensor in enumerate(self.nest.inputs):
            if tensor.role == "inout" and tensor.name in copied:
                theirs = named[tensor.name] if tensor.name in named else args[position]
                np.asarray(theirs)[...] = arrays[tensor.name]


def runner_for(compiled: Compiled) -> Runner | None:
    """What runs the program: numba on the CPU, a GPU, or a stand-in for one; None if it is only to be read."""
    if compiled.program.target == "cpu":
        return CpuProgram(compiled.program)
    if compiled.device == "gpu":
        roles = {tensor.name: tensor.role for tensor in compiled.schedule.nest.tensors}
        return CudaProgram(compiled.program, Gpu(), roles)
    if compiled.device in ("lockstep", "simulator"):
        return EmulatedProgram(compiled.program, compiled.device)
    return None


def _constant_array(array: Array) -> Array:
    """A contiguous view that kernels and runners may not write to."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def _at_least_1d(array: Array) -> Array:
    """Kernels take a scalar tensor as an array of one element."""
    return array.reshape(1) if array.ndim == 0 else array

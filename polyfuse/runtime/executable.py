"""Executables: a compiled nest that can be called, printed, measured, pickled."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from polyfuse import measure
from polyfuse.codegen.program import Launch, Program
from polyfuse.errors import BadArgument, TargetUnavailable, quantity
from polyfuse.errors.proving import proving
from polyfuse.ir.nest import Nest
from polyfuse.ir.sizes import check_names, check_sizes
from polyfuse.ir.tensor import Role, Tensor, complex_of, pairs_of
from polyfuse.lower_bounds.bounds import Bounds, fast_memory, schedule_bounds
from polyfuse.machine import GpuMachine
from polyfuse.measure import duration
from polyfuse.runtime.arguments import bind_arguments, check_constant, check_out, give_back, matched
from polyfuse.runtime.artifact import Compiled, Device, Product
from polyfuse.runtime.captured import Captured
from polyfuse.runtime.card import executable_card
from polyfuse.runtime.cpu.aligned_arrays import in_lines
from polyfuse.runtime.cpu.assembly import assembly as cpu_assembly
from polyfuse.runtime.cpu.hardware_counters import MOST_COUNTED, counted
from polyfuse.runtime.cpu.native import MachineCode, machine_code
from polyfuse.runtime.cpu.runner import CpuProgram
from polyfuse.runtime.cpu.timed import seconds_of_launches, timed_program
from polyfuse.runtime.cuda.assembly import assembly as gpu_assembly
from polyfuse.runtime.cuda.device_arrays import call_in_place, is_on_gpu
from polyfuse.runtime.cuda.driver import Gpu, missing
from polyfuse.runtime.cuda.kernel_times import kernel_times
from polyfuse.runtime.cuda.known_calls import KnownCalls
from polyfuse.runtime.cuda.runner import CudaProgram, build_kernels
from polyfuse.runtime.emulated.runner import EmulatedProgram
from polyfuse.runtime.interface import Phases
from polyfuse.runtime.memory.arenas import Arenas, at_least_1d
from polyfuse.runtime.memory.memory_plan import MemoryPlan, shape_of
from polyfuse.runtime.named_sizes import has_sizes
from polyfuse.runtime.once_per_program import Kept, Runner, once_and_calls
from polyfuse.runtime.profile import NOT_COUNTED, Profile, profile_of, restored
from polyfuse.runtime.report import Report
from polyfuse.schedule import Schedule
from polyfuse.show.explorer import Explorer, Instruction, KernelShown, explored
from polyfuse.strategy.cost.counts import nominal_sizes
from polyfuse.strategy.explanation import Explanation
from polyfuse.strategy.remarks import Reason
from polyfuse.strategy.tuning_trials import Tuning
from polyfuse.strategy.why_not_fused import FusionAnswer, why_not_fused

Array = npt.NDArray[Any]
Sizes = Mapping[str, int]


class Executable:
    """A compiled nest. Call it; print `schedule`, `explain()`, `source`, `report()`. Safe from several threads.

    Attributes:
        program: The emitted kernels and their launches.
        tuning: The trials of the search that found the schedule; None without a search.
    """

    def __init__(
        self,
        nest: Nest,
        product: Product,
        device: Device,
        decide: Callable[[], Compiled],
        seconds: Mapping[str, float],
        code: MachineCode | None = None,
        cache: str = "not asked",
        tuning: Tuning | None = None,
    ) -> None:
        """An executable for a nest's arguments and constants.

        `decide` gives everything the compile decided, when it is asked for; `seconds` is what each stage took. `code`
        is the machine code for the CPU; `cache` says what the cache had to do with it, `tuning` what a search measured.
        """
        self.program: Program = product.program
        self._nest, self._product, self._device, self._decide = nest, product, device, decide
        self._decided: Compiled | None = None
        self._constants = {n: _constant_array(a) for n, a in nest.constants.items()}
        start = time.perf_counter()
        self._runner = self._new_runner(code)
        self._kept = self._new_kept()
        self._seconds = {**seconds, "loading": time.perf_counter() - start}
        self._cache = cache
        self.tuning = tuning
        """The trials of the search that found the schedule; None if none was asked for."""
        self._plans: dict[tuple[tuple[str, int], ...], MemoryPlan] = {}
        self._arenas = Arenas(product.memory.calls.tensors, self._memory_plan)
        self._copied: dict[str, None] = {}
        self._timed_program: Callable[[Mapping[str, Array], Sizes], Array] | None = None
        self._profiled: Profile | None = None
        self._out_is_input = any(tensor.name == "out" for tensor in nest.inputs)
        self._names = tuple(tensor.name for tensor in nest.inputs)
        self._has_pairs = any(tensor.pairs for tensor in (*nest.inputs, *nest.results))
        self._variants: tuple[tuple[Sizes, Executable], ...] = ()
        self._direct = self._new_direct()

    @staticmethod
    def of(
        compiled: Compiled,
        keep: Callable[[Product, MachineCode | None], str] | None = None,
        tuning: Tuning | None = None,
    ) -> Executable:
        """Compile the kernels of a decided schedule, and make its executable.

        Args:
            compiled: The compiler's decisions.
            keep: Stores the product and its machine code in a cache; returns a note for the report.
            tuning: The search that found the schedule.

        Returns:
            The executable.
        """
        nest, product, code = compiled.schedule.source, compiled.product, None
        start = time.perf_counter()
        measure.STAGES.info("machine code")
        if product.program.target == "cpu":
            code = machine_code(product.program, Phases.of(nest, product.program, product.memory))
        note = keep(product, code) if keep is not None else "not asked"
        seconds = {**compiled.seconds, "machine code": time.perf_counter() - start}
        made = Executable(nest, product, compiled.device, lambda: compiled, seconds, code, note, tuning)
        made._decided = compiled
        return made

    def __call__(self, *args: Any, out: Any = None, **named: Any) -> Any:
        """Run on arrays, given in the order of the nest's inputs or by name.

        Tensors with role inout are changed in place.

        Args:
            *args: NumPy arrays, or arrays of a library that supports DLPack, such as torch or CuPy.
            out: An array to write the result to, or a tuple for several.
            **named: Arrays by input name.

        Returns:
            One output by itself, several as a tuple in the nest's order, None if there is none; of the library of the
            arguments.

        Raises:
            BadArgument: if an array is missing, or has the wrong shape, dtype or device.
            TargetUnavailable: if the executable was compiled for reading only.
            DeviceFailure: if a GPU operation fails.
        """
        if self._has_pairs:
            args, named, out = self._as_pairs(args, named, out)
            return self._as_complex(self._called(args, out, named))
        return self._called(args, out, named)

    def _called(self, args: tuple[Any, ...], out: Any, named: Mapping[str, Any]) -> Any:
        """A call whose complex arrays are pairs of real numbers."""
        if self._direct is not None:
            if len(args) + len(named) < len(self._names) and self._nest.defaults:
                named = {**self._defaults_of(self._names[len(args) :]), **named}
            # a name that is not an input leaves another without a value, which the entry refuses
            ordered = args if not named else (*args, *map(named.get, self._names[len(args) :]))
            place = out[0] if type(out) is tuple and len(out) == 1 else out
            if len(ordered) == len(args) + len(named):
                result = self._direct(ordered, place)
                if result is not NotImplemented:
                    return result
                for _, variant in self._variants:
                    result = variant._direct(ordered, place) if variant._direct is not None else result
                    if result is not NotImplemented:
                        return result
        return self._adapted(args, out, named)

    def _defaults_of(self, names: Iterable[str]) -> dict[str, Any]:
        """The default arguments among some inputs; within a call the comprehension would cost each call a cell."""
        return {name: self._nest.defaults[name] for name in names if name in self._nest.defaults}

    def capture(self, *args: Any, out: Any = None, **named: Any) -> Captured:
        """Make a call, and return it as an object that repeats it on the same arrays.

        Results are written to the same arrays each time; without `out`, to the new ones of this call. With arrays of
        torch or CuPy on a GPU, repeating it replays a CUDA graph and matches no arguments; on another stream, for an
        array that has moved, or after `replace_constants` it is an ordinary call.

        Args:
            *args: As for a call.
            out: As for a call.
            **named: As for a call.

        Returns:
            The captured call; calling it returns its result.
        """
        if self._has_pairs:
            args, named, out = self._as_pairs(args, named, out)
        if (chosen := self._chosen(args, named)) is not self:
            return chosen.capture(*args, out=out, **named)
        known = self._direct  # read before the call, as its constants may be replaced meanwhile
        result = self(*args, out=out, **named)
        place = out if out is not None or result is None or self._out_is_input else result
        again = None
        if (
            isinstance(known, KnownCalls)
            and not self._has_pairs
            and len(args) + len(named) == len(self._names)
        ):
            ordered = (*args, *map(named.get, self._names[len(args) :]))
            again = known.repeated(ordered, out, result)
        return Captured(result, partial(self, *args, out=place, **named), again)

    def _adapted(self, args: tuple[Any, ...], out: Any, named: Mapping[str, Any]) -> Any:
        """A call whose arguments have to be matched, checked and brought into the form that kernels take."""
        known = self._direct  # read before the constants: what is known of old ones is not known of new ones
        if out is not None and self._out_is_input:
            named, out = {**named, "out": out}, None
        if (chosen := self._chosen(args, named)) is not self:
            return chosen._called(args, out, named)
        if self._runner is None:
            raise TargetUnavailable(
                f"{missing() or 'no device was asked for'}; this executable was compiled for "
                f"{self._product.machine} to be read, not to be run here"
            )
        if isinstance(self._runner, CudaProgram) and any(
            is_on_gpu(value) for value in (*args, *named.values())
        ):
            given = matched(self._nest, args, named)
            known = known if isinstance(known, KnownCalls) else None
            return call_in_place(self._runner, self._nest, given, out, self._host_arrays, known)
        bound = bind_arguments(self._nest, args, named)
        self._copied.update(dict.fromkeys(bound.copied))
        results = self._outputs(out, bound.sizes, bound.arrays)
        self._run(self._runner, {**bound.arrays, **results}, bound.sizes)
        self._write_back(bound.copied, bound.arrays, args, named)
        found = tuple(give_back(results[t.name], bound.module) for t in self._nest.results)
        return found if len(found) > 1 else found[0] if found else None

    def _as_pairs(
        self, args: tuple[Any, ...], named: Mapping[str, Any], out: Any
    ) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
        """A call's arguments with complex arrays seen as pairs of real numbers."""
        inputs, results = self._nest.inputs, self._nest.results
        seen = (*map(pairs_of, inputs, args), *args[len(inputs) :])
        known = {tensor.name: tensor for tensor in inputs}
        words = {
            name: pairs_of(known[name], value) if name in known else value for name, value in named.items()
        }
        if isinstance(out, tuple) and len(out) == len(results):
            out = tuple(map(pairs_of, results, out))
        elif out is not None and len(results) == 1:
            out = pairs_of(results[0], out)
        return seen, words, out

    def _as_complex(self, found: Any) -> Any:
        """A call's results with pairs of real numbers seen as complex numbers."""
        results = self._nest.results
        if len(results) == 1:
            return complex_of(results[0], found)
        return tuple(map(complex_of, results, found)) if results else found

    def _run(self, runner: Runner, arrays: dict[str, Array], sizes: Sizes) -> None:
        if isinstance(runner, CpuProgram):  # holds constants and arenas itself
            runner.run(arrays, sizes)
            return
        with self._arenas.lent(sizes) as temporaries:
            every = {n: at_least_1d(array) for n, array in {**self._constants, **arrays}.items()}
            runner.run({**every, **self._kept.values(sizes), **temporaries}, sizes)

    @proving("profile")
    def profile(self, *args: Any, turns: int = 9, pause: float = 0.02, **named: Any) -> Profile:
        """Measure the time of each kernel inside calls, beside the cost model's and the roofline's.

        Arrays that a call changes keep their values. On the CPU the kernels are compiled once more, with reads of the
        clock between them; on a GPU events lie between them, and each launch is made by itself. The
        processor's counters (cycles, instructions, misses) are of a whole call; where Linux refuses them, `counts` says
        so.

        Args:
            *args: As for a call; arrays in the host's memory.
            turns: The number of turns; the median of them counts.
            pause: Seconds to wait before each turn.
            **named: As for a call.

        Returns:
            The profile; print it or read its fields.

        Raises:
            BadArgument: as for a call, and if `turns` is not positive.
            TargetUnavailable: if the executable does not run here, or runs in an emulator, which has no times.
        """
        if turns < 1:
            raise BadArgument(f"profile: turns={turns!r}, expected a positive number")
        args, named, _ = self._as_pairs(args, named, None)
        if (chosen := self._chosen(args, named)) is not self:
            return chosen.profile(*args, turns=turns, pause=pause, **named)
        if not isinstance(self._runner, CpuProgram | CudaProgram):
            where = "runs in an emulator" if self._runner is not None else "was compiled for reading only"
            raise TargetUnavailable(
                f"profile measures time, and this executable {where}: {self._product.machine}"
            )
        bound = bind_arguments(self._nest, args, named)
        arrays = {**bound.arrays, **self._outputs(None, bound.sizes, bound.arrays)}
        launches = tuple(launch for launch in self.kernels if not launch.once)
        changed = [tensor.name for tensor in self._nest.inputs if tensor.role == "inout"]
        with self._timed(self._runner, bound.sizes) as timed:
            run, restore = partial(timed, arrays), restored(arrays, changed)
            found, calls = seconds_of_launches(run, restore, turns, pause)
            on_cpu = isinstance(self._runner, CpuProgram)
            counts = counted(run, restore, min(calls, MOST_COUNTED)) if on_cpu else NOT_COUNTED
            restore()
        nominal = nominal_sizes(self._nest) == dict(bound.sizes)
        model = [
            (cost, least) if nominal else None
            for launch, cost, least in zip(
                self.kernels, self._product.costs, self._product.bounds, strict=True
            )
            if not launch.once
        ]
        target = f"{self.program.target} ({self._product.machine})"
        self._profiled = profile_of(target, launches, found, calls, model, bound.sizes, counts)
        return self._profiled

    @proving("explore")
    def explore(
        self,
        path: str | Path | None = None,
        *,
        profile: Profile | None = None,
        next_steps: int = 12,
        assembly: bool = True,
    ) -> Explorer:
        """Return the explorer of this executable: statements, schedule tree, domains and source as one linked page.

        In a notebook the value displays itself. The page is one file that needs no server and no network. For the
        machine code each kernel is compiled once more, with tables of its lines.

        Args:
            path: The file to write the page to.
            profile: The kernels' measured times, from `profile`.
            next_steps: The number of legal next steps to price at most; 0 looks for none.
            assembly: Show machine code beside the source; where no compiler for the target is installed, there is none.

        Returns:
            The explorer, with the page's data.

        Raises:
            BadArgument: if the file cannot be written, or the profile is of other kernels.
        """
        calls = [launch.name for launch in self.kernels if not launch.once]
        if profile is not None and [kernel.kernel for kernel in profile.kernels] != calls:
            raise BadArgument(
                f"explore: the profile is of {', '.join(k.kernel for k in profile.kernels)}, and this executable "
                f"has {', '.join(calls)}"
            )
        measured = iter(profile.kernels if profile is not None else ())
        product, done = self._product, self.compiled
        kernels = []
        codes = self._assembly() if assembly else {}
        for launch, bound, price in zip(self.kernels, product.bounds, product.costs, strict=True):
            found = None if launch.once or profile is None else next(measured).seconds
            code = codes.get(launch.name, ())
            shown = KernelShown(
                launch.name, launch.statements, launch.source, launch.once, bound, price.total, found, code
            )
            kernels.append(shown)
        plan = done.plan
        decisions, log = (plan.decisions, plan.log) if plan is not None else ((), ())
        data = explored(done.schedule, done.machine, kernels, self.program.header, decisions, log, next_steps)
        explorer = Explorer(data)
        if path is not None:
            explorer.save(path)
        return explorer

    def _assembly(self) -> Mapping[str, tuple[Instruction, ...]]:
        """The machine code of each kernel, by its name; none where the target's compiler is not installed."""
        machine = self.compiled.machine
        if not isinstance(machine, GpuMachine):
            return {code.name: cpu_assembly(code) for code in self.program.codes}
        with suppress(TargetUnavailable):
            return gpu_assembly(self.program, machine.gpu.compute_capability)
        return {}

    @contextmanager
    def _timed(
        self, runner: CpuProgram | CudaProgram, sizes: Sizes
    ) -> Iterator[Callable[[Mapping[str, Array]], Array]]:
        """Return what makes a call on arrays by name, and gives the seconds of each of its launches."""
        if isinstance(runner, CpuProgram):
            if self._timed_program is None:
                phases = Phases.of(self._nest, self.program, self._product.memory)
                self._timed_program = timed_program(self.program, phases, self._constants)
            program = self._timed_program
            yield lambda arrays: program(arrays, sizes)
            return
        with self._arenas.lent(sizes) as temporaries:
            held = {**self._kept.values(sizes), **temporaries}
            kept = {n: at_least_1d(a) for n, a in self._constants.items()}

            def run(arrays: Mapping[str, Array]) -> Array:
                return runner.seconds(
                    {**kept, **{n: at_least_1d(a) for n, a in arrays.items()}, **held}, sizes
                )

            yield run

    def replace_constants(self, values: Mapping[str, Array]) -> None:
        """Replace constants (weights) by others of the same shape and dtype; calls already running finish with the old.

        Kernels that depend on constants alone run again now. Arrays are read now, and small ones are copied: later
        writes to an array are certain to be seen only after another call of this method.

        Args:
            values: Arrays by constant name.

        Raises:
            BadArgument: if there is no such constant, or an array has the wrong shape or dtype.
        """
        checked = {name: check_constant(self._constant(name), array) for name, array in values.items()}
        self._hold({**self._constants, **checked})
        for _, variant in self._variants:
            variant.replace_constants(values)

    def beside(self, variants: Iterable[tuple[Sizes, Executable]]) -> Executable:
        """Let calls of some sizes run code that was compiled for these sizes alone.

        Args:
            variants: Sizes, and the executable for them, of the same nest.

        Returns:
            This executable.
        """
        self._variants = tuple(variants)
        return self

    @property
    def variants(self) -> tuple[tuple[Sizes, Executable], ...]:
        """The executables for named sizes that calls of these sizes run, by `sizes=[1, 8, "N"]` of `compile`."""
        return self._variants

    def _for_sizes(self, sizes: Sizes) -> tuple[Executable, Sizes]:
        """The executable that calls of some sizes run, and the sizes that are symbolic in it."""
        fitting = ((known, one) for known, one in self._variants if sizes.items() >= known.items())
        known, one = next(fitting, ({}, self))
        return one, {name: n for name, n in sizes.items() if name not in known}

    def _chosen(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> Executable:
        """The executable for the sizes of a call: a variant, or this one."""
        if not self._variants:
            return self
        given = matched(self._nest, args, named)
        fitting = (one for sizes, one in self._variants if has_sizes(one._nest, sizes, given))
        return next(fitting, self)

    def _hold(self, constants: Mapping[str, Array]) -> None:
        self._constants = {name: _constant_array(array) for name, array in constants.items()}
        if isinstance(self._direct, KnownCalls):
            self._direct.retire()
        if isinstance(self._runner, CpuProgram):
            self._runner.hold(self._constants)
        self._kept = self._new_kept()
        self._direct = self._new_direct()
        self._timed_program = None

    @property
    def compiled(self) -> Compiled:
        """The compiler's decisions; an executable loaded from the cache computes them again on first use."""
        if self._decided is None:
            self._decided = self._decide()
        return self._decided

    @property
    def nest(self) -> Nest:
        """The nest that was scheduled."""
        return self._nest

    @property
    def schedule(self) -> Schedule:
        """The schedule, with its bindings to hardware."""
        return self.compiled.schedule

    @property
    def constants(self) -> Mapping[str, Array]:
        """The constants' values by tensor name."""
        return dict(self._constants)

    @property
    def kernels(self) -> tuple[Launch, ...]:
        """One entry per launch, in order, with name, statements, source and grid."""
        return self.program.launches

    @property
    def source(self) -> str:
        """The emitted source of all kernels."""
        return self.program.source

    @property
    def ptx(self) -> Mapping[str, str]:
        """The PTX of each kernel by its name, for the GPU that was planned for; needs NVIDIA's compiler and no GPU.

        Raises:
            TargetUnavailable: if the executable is for a CPU, or the compiler (`polyfuse[cuda]`) is not installed.
        """
        machine = self.compiled.machine
        if not isinstance(machine, GpuMachine):
            raise TargetUnavailable(
                f"ptx: kernels for {machine.name}, a CPU, have none; expected target='cuda'"
            )
        built = build_kernels(self.program, machine.gpu.compute_capability)
        return {name: cubin.ptx for name, cubin in built.items()}

    @proving("memory_plan")
    def memory_plan(self, sizes: Sizes | None = None) -> MemoryPlan:
        """Return the offsets of temporaries in their arena.

        Args:
            sizes: Values of symbolic sizes; the others are those that the cost model counts for.

        Returns:
            The plan.

        Raises:
            BadArgument: if the nest has no such size, or does not allow its value.
        """
        chosen, known = self._for_sizes(self._every_size(sizes))
        return chosen._memory_plan(known)

    def _memory_plan(self, sizes: Sizes) -> MemoryPlan:
        """The plan for all sizes, computed once."""
        key = tuple(sorted(sizes.items()))
        if key not in self._plans:
            self._plans[key] = self._product.memory.calls.plan(sizes)
        return self._plans[key]

    def _every_size(self, sizes: Sizes | None) -> dict[str, int]:
        """The sizes that were given, and the cost model's for those that were not."""
        check_names(self._nest, sizes or {})
        check_sizes(self._nest, sizes or {})
        return nominal_sizes(self._nest, sizes)

    def explain(
        self,
        *statements: str,
        reason: Reason | str | None = None,
        taken: bool | None = None,
        least: float = 0.0,
    ) -> Explanation:
        """Return each fusion taken and refused, with the reason; what validation checked; the result of tuning.

        Args:
            *statements: Only decisions about all of these statements.
            reason: Only decisions with this reason, as a `Reason` or its name: "illegal", "dearer".
            taken: Only what was done (True) or not (False).
            least: Only decisions between forms whose expected times differ by so many seconds.

        Returns:
            A text that also has the decisions as values; its repr is a summary, and a notebook shows tables.

        Raises:
            BadArgument: if there is no such statement or reason.
        """
        found = self._product.explanation
        text = found if self.tuning is None else f"{found}\ntuned: {self.tuning}"
        others = [(sizes, one.explain()) for sizes, one in self._variants]
        whole = Explanation(
            "\n\n".join((text, *(f"for {_text(sizes)}:\n{other}" for sizes, other in others))),
            (*found.kernels, *(kernel for _, other in others for kernel in other.kernels)),
            (*found.remarks, *(remark for _, other in others for remark in other.remarks)),
        )
        if not statements and reason is None and taken is None and least <= 0:
            return whole
        return whole.only(*statements, reason=reason, taken=taken, least=least)

    @proving("why_not_fused")
    def why_not_fused(self, first: str, second: str) -> FusionAnswer:
        """Answer why two statements are not fused: the best legal form with its price, or what forbids each form.

        Args:
            first: The name of a statement.
            second: The name of another.

        Returns:
            The answer; print it, or read `at`, `seconds`, `violation`, and the `schedule` of the form.

        Raises:
            BadArgument: if there is no such statement, or both are the same.
        """
        done = self.compiled
        return why_not_fused(done.schedule, done.machine, self._product.work.seconds, first, second)

    @proving("bounds")
    def bounds(self, memory: int | str | None = None) -> Bounds:
        """Return the least work and traffic of the nest and of each kernel, the schedule's traffic, and times.

        Args:
            memory: The size of fast memory in bytes, or the name of one of the machine's caches; by default the
                largest.

        Returns:
            The bounds, as `pf.bounds` gives them; measured times are those of the last `profile`.

        Raises:
            BadArgument: if the memory is neither bytes nor one of the machine's caches.
        """
        done, profiled = self.compiled, self._profiled
        times = iter(() if profiled is None else [kernel.seconds for kernel in profiled.kernels])
        measured = [None if launch.once else next(times, None) for launch in self.kernels]
        predicted = [price.total for price in self._product.costs]
        fast = fast_memory(memory, done.machine)
        return schedule_bounds(done.schedule, fast, done.machine, predicted, measured)

    @proving("report")
    def report(self, sizes: Sizes | None = None, *, bounds: bool = False) -> Report:
        """Return the cost model's kernels, operations, bytes moved, time and memory; and tuning's measurements.

        Work, bytes and time are those of the sizes that the cost model counted for. Memory and the launches of a GPU
        are those of the given sizes. For named sizes it is the report of their own code.

        Args:
            sizes: Values of symbolic sizes, as for `memory_plan`.
            bounds: Add the least traffic of each kernel and the schedule's, through the machine's largest cache. It
                takes isl about a second for a network.

        Returns:
            The report; print it or read its fields.

        Raises:
            BadArgument: if the nest has no such size, or does not allow its value.
        """
        known, work = self._every_size(sizes), self._product.work
        chosen, rest = self._for_sizes(known)
        if chosen is not self:
            return chosen.report(rest, bounds=bounds)
        memory = self._memory_plan(known)
        return Report(
            target=f"{self.program.target} ({self._product.machine})",
            launches=sum(not launch.once for launch in self.kernels),
            launches_once=sum(launch.once for launch in self.kernels),
            compiled_kernels=len(self.program.codes),
            flops=work.flops,
            bytes_moved=work.bytes_moved,
            predicted_seconds=work.seconds,
            arena_bytes_before=memory.unplanned,
            arena_bytes=memory.size,
            kept_bytes=self._product.memory.kept_bytes(known),
            copied_inputs=tuple(self._copied),
            compile_seconds=self._seconds,
            cache="; ".join((self._cache, *self._cached())),
            tuning=self.tuning,
            kernel_times=tuple(kernel_times(self.program, self._product.gpu, self._product.costs, known)),
            sizes=known,
            counted_sizes=nominal_sizes(self._nest),
            bounds=self.bounds() if bounds else None,
        )

    def __repr__(self) -> str:
        launches = quantity(len(self.kernels), "launch", "launches")
        expected = f"{duration(self._product.work.seconds)} predicted"
        measured = "" if self._profiled is None else f", {duration(self._profiled.seconds)} measured"
        return f"<{self._title}: {launches}, {expected}{measured}>"

    @property
    def _title(self) -> str:
        return f"Executable {self._nest.name} on {self.program.target} ({self._product.machine})"

    @proving("the view of an executable")
    def _repr_html_(self) -> str:
        """The kernels with predicted times, and measured ones after `profile`; loops, buffers, decisions."""
        sizes = self._every_size(None)
        return executable_card(self._title, self._nest, self._product, self.compiled, sizes, self._profiled)

    def _cached(self) -> tuple[str, ...]:
        """Return a line about the cache for each of a GPU's kernels."""
        return self._runner.cached if isinstance(self._runner, CudaProgram) else ()

    def __reduce__(self) -> tuple[Callable[[Compiled], Executable], tuple[Compiled], dict[str, Any]]:
        """Pickled as what was decided; the kernels are compiled again where it is loaded.

        Loading a pickle runs code that its writer chose, here the kernels' source too: load only what you trust.
        """
        return (
            Executable.of,
            (self.compiled,),
            {
                "_constants": self._constants,
                "_variants": self._variants,
                "tuning": self.tuning,
            },
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._hold(state["_constants"])
        self.tuning = state["tuning"]
        self.beside(state["_variants"])

    def _constant(self, name: str) -> Tensor:
        tensor = next((t for t in self._nest.with_role("constant") if t.name == name), None)
        if tensor is None:
            known = ", ".join(t.name for t in self._nest.with_role("constant")) or "none"
            raise BadArgument(f"unknown constant {name!r}; the constants are {known}")
        return tensor

    def _outputs(self, out: Any, sizes: Sizes, given: Mapping[str, Array]) -> dict[str, Array]:
        """The arrays that results are written to: new ones, or those of `out`, which overlap nothing else."""
        wanted = self._nest.results
        if out is None:
            return {t.name: np.empty(shape_of(t, sizes), t.dtype) for t in wanted}
        arrays = out if isinstance(out, tuple) else (out,)
        if len(arrays) != len(wanted):
            names = ", ".join(t.name for t in wanted)
            raise BadArgument(
                f"out: expected {quantity(len(wanted), 'array')} for {names}, given {len(arrays)}"
            )
        found: dict[str, Array] = {}
        for tensor, array in zip(wanted, arrays, strict=True):
            checked = check_out(tensor, array, sizes)
            for other, value in {**self._constants, **given, **found}.items():
                if np.may_share_memory(checked, value):
                    use = "written as well" if other in found else "read by the kernels"
                    raise BadArgument(f"out for {tensor.name} shares memory with {other}, which is {use}")
            found[tensor.name] = checked
        return found

    def _host_arrays(self, sizes: Sizes) -> dict[str, Array]:
        """Constants, and temporaries for the layout of their arena (never accessed on the host)."""
        with self._arenas.lent(
            sizes
        ) as temporaries:  # only their layout is used, so others may have them too
            return {**self._constants, **self._kept.values(sizes), **temporaries}

    def _write_back(
        self,
        copied: tuple[str, ...],
        arrays: Mapping[str, Array],
        args: tuple[Any, ...],
        named: Mapping[str, Any],
    ) -> None:
        """An inout array that had to be copied to be contiguous gets its new values."""
        for position, tensor in enumerate(self._nest.inputs):
            if tensor.role == "inout" and tensor.name in copied:
                theirs = named[tensor.name] if tensor.name in named else args[position]
                np.asarray(theirs)[...] = arrays[tensor.name]

    def _new_runner(self, code: MachineCode | None) -> Runner | None:
        """Return the runner: machine code, a GPU or an emulator; None if the program is for reading only."""
        if code is not None:
            phases = Phases.of(self._nest, self.program, self._product.memory)
            return CpuProgram(code, phases, self._constants)
        return self._on_device(once_and_calls(self.program)[1], "constant")

    def _new_kept(self) -> Kept:
        def runner() -> Runner:
            found = self._on_device(once_and_calls(self.program)[0], "output")
            assert found is not None, "there is a runner for the calls"
            return found

        return Kept(self._product.memory, self._constants, runner)

    def _on_device(self, program: Program, kept: Role) -> Runner | None:
        """A runner on the GPU or the emulator; what runs once leaves is an "output" of it, a "constant" of calls."""
        if self._device == "gpu":
            memory = self._product.memory
            tensors = (*self._nest.tensors, *memory.calls.tensors, *memory.once.tensors)
            roles = {tensor.name: tensor.role for tensor in tensors}
            return CudaProgram(program, Gpu(), {**roles, **{tensor.name: kept for tensor in memory.kept}})
        if self._device in ("lockstep", "simulator"):
            return EmulatedProgram(program, self._device)
        return None

    def _new_direct(self) -> Callable[..., Any] | None:
        """Return the fast path for arguments as given: known calls on a GPU, the compiled entry on the CPU.

        With symbolic sizes that is the entry for those of the last call.
        """
        if isinstance(self._runner, CudaProgram) and not self._out_is_input:
            return KnownCalls(self._runner, len(self._names))
        if not isinstance(self._runner, CpuProgram) or self._out_is_input:
            return None
        return self._runner.again if self.program.sizes else self._runner.function({})


def _text(sizes: Sizes) -> str:
    return ", ".join(f"{name} = {n}" for name, n in sizes.items())


def _constant_array(array: Array) -> Array:
    """A contiguous view that kernels and runners may not write to; a small array is copied to where lines begin."""
    view = in_lines(np.ascontiguousarray(array)).view()
    view.flags.writeable = False
    return view

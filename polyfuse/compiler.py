"""The pipeline: one function that names every stage, from a nest to an executable."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from numbers import Real
from types import FunctionType, UnionType
from typing import Any, Literal

import islpy as isl

from polyfuse import measure
from polyfuse.analysis.once import once
from polyfuse.analysis.validation import OPERATIONS, Spans, validate
from polyfuse.bilinear import Algorithm
from polyfuse.codegen.generate import program
from polyfuse.codegen.program import Target
from polyfuse.codegen.residency_limit import check_clusters, check_residence, with_room
from polyfuse.codegen.shared_memory_limit import check_shared
from polyfuse.errors import (
    BadArgument,
    BudgetExceeded,
    InvalidMath,
    InvalidSchedule,
    InvalidTuning,
    TargetUnavailable,
)
from polyfuse.errors.budget import OPERATIONS_PER_SECOND, at_most, stopped, until
from polyfuse.errors.proving import proving, told
from polyfuse.frontend.python.function import PythonNest
from polyfuse.frontend.python.function import nest as read
from polyfuse.ir.given import nest_given
from polyfuse.ir.nest import Nest
from polyfuse.ir.precision import MATHS, PRECISIONS, Math
from polyfuse.ir.tree import ON_CORES, loops
from polyfuse.machine import GpuMachine, Machine
from polyfuse.rewrite.storage.expansion import Expansion, expand_temporaries
from polyfuse.runtime.artifact import Compiled, Device
from polyfuse.runtime.compile_key import digest, key_parts
from polyfuse.runtime.cuda.driver import available, machine_here, missing
from polyfuse.runtime.executable import Executable
from polyfuse.runtime.memory.memory_plan import Memory
from polyfuse.runtime.named_sizes import listed
from polyfuse.runtime.store.cache import keep, recall
from polyfuse.schedule import Schedule
from polyfuse.sets import comparing_once
from polyfuse.strategy import Plan, as_written, plan_for, planned_costs
from polyfuse.strategy.candidates import Answer, Choose, Picked, cheapest
from polyfuse.strategy.cost.finished import tree_costs
from polyfuse.strategy.match.gemm import products_of
from polyfuse.strategy.pipeline import wishes_of
from polyfuse.strategy.remarks import Reason, Remark, applied, refused
from polyfuse.strategy.rewrites.fast_matmul import Fast, Wanted, with_fast_products
from polyfuse.strategy.rewrites.fold_scales import with_scales_folded
from polyfuse.strategy.rewrites.widen_halves import with_wide_factors
from polyfuse.strategy.tuning_trials import Tuning
from polyfuse.tune import Trials, tuned

__all__ = ["Executable", "compile"]

PLANNING = 20_000_000, 4_000_000
"""isl operations for a plan without a budget: for any nest, and for each of its statements."""

FINISHING = 30_000_000, 4_000_000
"""isl operations for the proof and the source of a schedule: for any nest, and for each of its statements."""

STAGES = ("schedule", "validation", "source")
"""The stages of `compile`, in order; the executable adds the time for machine code."""


@contextmanager
def _collecting_later() -> Iterator[None]:
    """Leave Python's cyclic garbage until the end: its collector would look again and again at all that is compiled.

    A layer of a transformer's encoder took 11.1 s with it and 9.9 s without (one Zen 4 core, numba 0.68).
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@_collecting_later()
@proving("compile")
def compile(
    nest: Nest | Callable[..., Any],
    *,
    example: Sequence[Any] | Mapping[str, Any] | None = None,
    target: Literal["auto", "cpu", "cuda"] = "auto",
    schedule: Schedule | None = None,
    sizes: Mapping[str, int] | Sequence[object] | None = None,
    fuse: bool = True,
    machine: Machine | str | None = None,
    device: Literal["gpu", "lockstep", "simulator", "none"] | None = None,
    tune: Trials | None = None,
    fast_matmul: str | Algorithm | None = None,
    accuracy: float = 10.0,
    fold: bool = True,
    math: Math | None = None,
    force: Mapping[str, bool | str] | None = None,
    budget: float | None = None,
) -> Executable:
    """Compile a nest to an executable.

    Nest -> expansion -> wide factors -> folded scales -> fast products -> Dependences -> Schedule -> barriers ->
    validation -> LoopTree -> source -> Executable

    The result is kept in a cache on disk; the same compile in another process loads it from there.

    Args:
        nest: The program: from `pf.lower`, `@pf.nest`, `pf.einsum` or `NestBuilder`; with `example`, a Python function.
        example: Arguments of a call of the function, from which types and symbolic sizes are taken.
        target: "cpu", "cuda", or "auto": "cuda" if a GPU can be used, else "cpu".
        schedule: A schedule made by hand. Without one, temporaries are expanded (polyfuse.rewrite) and the strategy
            chooses by the machine's cost model.
        sizes: Values of symbolic sizes, all or some. A schedule by hand is then one of `nest.with_sizes(sizes)`. Or a
            list of named sizes that ends in "N": code for each of them beside that for any N, which a call chooses
            between by its arrays: [1, 8, "N"], or [{"N": 1, "T": 128}, "N"] where there are several sizes.
        fuse: False makes every operation a kernel of its own.
        machine: The machine that the cost model plans for: a Machine, or the name of a preset such as "h200". By
            default this computer's CPU, or the preset most like the GPU present, which the report names.
        device: Where CUDA kernels run: "gpu", the emulators "lockstep" or "simulator", or "none" to compile only.
        tune: Measure other candidates than the cost model's choice, on the CPU, and keep the fastest. The
            executable's `tuning` holds the measurements.
        fast_matmul: Compute contractions by a bilinear algorithm, which rounds differently: a name ("strassen"), an
            Algorithm, or "auto" for one that the cost model expects to be clearly faster. NaN and infinity in a
            factor then reach more results.
        accuracy: The largest error bound that "auto" accepts, as a multiple of the classical product's.
        fold: Multiply constant scales of a sum (a batch norm's) into its weights once for all calls, which rounds
            differently.
        math: "tf32", "bf16" or "f16": round float32 factors to this format and multiply on a GPU's tensor cores,
            accumulating in float32. polyfuse.ir.precision gives the error bounds. A product with fewer rows or
            columns than a warp's tile keeps "ieee". "ieee" rounds no factor, as None does, and also promises NaN
            and infinity exactly where the nest's own sums have them, so that "auto" chooses no fast product.
        force: Overrule the cost model by the names of the strategy's passes (`polyfuse.strategy.pipeline.PASSES`):
            {"wavefront": False} leaves a pass out, {"attention": True} takes what a pass offers whatever it costs, and
            {"blocked factorization": "64 steps"} takes the candidate of that name. {"group of mac0, mac1": False}
            asks a pass about some statements alone. An unknown name is refused with the names that there are.
        budget: How many seconds isl may take. Half of them are for the plan and half of the rest for its proof; where
            they do not do, the order as written is kept, with a remark, and proven in what is left. isl's operations
            are counted, too, so that the plan is seldom another one on a slow machine: a second is worth 2,000,000.
            Machine code and what `tune` tries are not part of it. Without a budget the limits are operations alone,
            and grow with the number of statements.

    Returns:
        The compiled nest, to be called with arrays.

    Raises:
        BadArgument: if `nest` is not a nest, an option has a value of the wrong type, or `force` names a pass that does
            not exist or cannot do this for the nest.
        TargetUnavailable: if the target is not available here.
        InvalidSchedule: if the schedule is of another nest, or binds loops to places that the target lacks.
        InvalidTuning: if the search cannot be made.
        InvalidAlgorithm: if no algorithm has the name `fast_matmul`.
        InvalidMath: if the target or the nest cannot use `math`.
        ValidationFailure: if the compiled schedule is wrong: a compiler bug.
        BudgetExceeded: if a schedule by hand, or the order as written, is too expensive to prove.
    """
    if example is not None:
        if not isinstance(nest, FunctionType):
            raise BadArgument("compile: example= is for a Python function, and a nest has its types already")
        nest = read(nest, example=example)
    nest = nest_given("compile", nest)
    if isinstance(sizes, Sequence) and not isinstance(sizes, str):
        if schedule is not None:
            raise InvalidSchedule(
                "schedule= is of one nest, and a list of sizes makes several: compile each alone"
            )
        named = listed(nest, sizes)
        one = partial(
            compile,
            nest,
            target=target,
            fuse=fuse,
            machine=machine,
            device=device,
            tune=tune,
            fast_matmul=fast_matmul,
            accuracy=accuracy,
            fold=fold,
            math=math,
            force=force,
            budget=budget,
        )
        return one().beside([(known, one(sizes=known)) for known in named])
    _check_type("schedule", schedule, Schedule, "a pf.Schedule")
    _check_type("sizes", sizes, Mapping, "numbers by name, such as {'N': 64}, or a list such as [1, 8, 'N']")
    _check_type("machine", machine, Machine | str, "a pf.Machine, or the name of a preset such as 'h200'")
    _check_type("tune", tune, Trials, "pf.Trials(…)")
    _check_type("fast_matmul", fast_matmul, Algorithm | str, "an algorithm, the name of one, or 'auto'")
    _check_type("accuracy", accuracy, Real, "a number")
    _check_type("force", force, Mapping, "choices by the names of passes, such as {'wavefront': False}")
    _check_type("budget", budget, Real, "a number of seconds")
    if budget is not None and not budget > 0:
        raise BadArgument(f"compile: budget={budget!r}, expected a positive number of seconds")
    goal, place, model = _placement(target, machine, device, schedule)
    model = _with_math(nest, model, schedule, math or "ieee")
    nest = nest.with_sizes(sizes) if isinstance(sizes, Mapping) and sizes else nest
    wanted = Wanted.of(fast_matmul, accuracy, fold, ieee=math == "ieee")
    if wanted.candidates and schedule is not None:
        raise InvalidSchedule(
            "fast_matmul= rewrites the nest, but schedule= is of the nest as given: rewrite the nest first, with "
            "pf.rewrite.bilinear, and schedule the result"
        )
    if force and schedule is not None:
        raise BadArgument(
            "compile: force= is for the strategy, and schedule= is one made by hand: leave one of them out"
        )
    forced = dict(force or {})
    wishes_of(forced)  # refused before anything is planned
    tuning = _tuned(nest, goal, model, schedule, fuse, wanted, tune, forced) if tune is not None else None
    picks = tuning.best.picks if tuning is not None else {}
    decide = partial(decided, nest, goal, place, model, schedule, fuse, wanted, picks, forced, budget)
    start = time.perf_counter()
    options: dict[str, object] = {"device": place, "fuse": fuse, "picks": _away(picks), **wanted.key}
    options |= {"force": forced} if forced else {}
    options |= {"budget": float(budget)} if budget is not None else {}
    key = digest(key_parts(nest, schedule, model, options))
    found = recall(key)
    if found.kept is not None:
        product, code = found.kept
        stages = {"cache": time.perf_counter() - start}
        return Executable(nest, product, place, decide, stages, code, found.note, tuning)
    return Executable.of(decide(), lambda product, code: found.note + keep(key, nest, product, code), tuning)


def _check_type(option: str, given: object, kind: type | UnionType, what: str) -> None:
    """BadArgument for an option's value that is of another type than it takes; None is for all of them."""
    if given is not None and not isinstance(given, kind):
        raise BadArgument(f"compile: {option}={given!r}, expected {what}")


@proving("deciding on a schedule")
def decided(
    nest: Nest,
    goal: Target,
    place: Device,
    model: Machine,
    schedule: Schedule | None,
    fuse: bool,
    wanted: Wanted,
    picks: Mapping[str, int],
    force: Mapping[str, bool | str] | None = None,
    budget: float | None = None,
) -> Compiled:
    """Every stage before machine code, with what each left.

    A plan that isl cannot find or prove within its budget gives way to the order as written, and the plan says so.
    """
    measure.STAGES.info("schedule")
    with _limited(nest, (0, 0), budget, 1):
        return _decided(nest, goal, place, model, schedule, fuse, wanted, picks, force, budget)


def _decided(
    nest: Nest,
    goal: Target,
    place: Device,
    model: Machine,
    schedule: Schedule | None,
    fuse: bool,
    wanted: Wanted,
    picks: Mapping[str, int],
    force: Mapping[str, bool | str] | None,
    budget: float | None,
) -> Compiled:
    start = time.perf_counter()
    if schedule is not None:
        if not any(each is nest or each == nest for each in (schedule.given, schedule.source)):
            raise InvalidSchedule(
                f"the schedule is of nest {schedule.given.name!r}, not of the given nest {nest.name!r}"
            )
        with _limited(nest, FINISHING, budget, 1):
            return _finished(schedule, None, goal, place, model, start, OPERATIONS)
    notes = (
        [applied("array expressions", (), note) for note in nest.notes]
        if isinstance(nest, PythonNest)
        else []
    )
    given = nest
    expansions, remarks = tuple[Expansion, ...](), tuple(notes)
    able = _one_block_at_a_time(model) if place == "simulator" else model
    choose = Choose(Picked(picks)) if picks else cheapest
    try:
        with _limited(nest, PLANNING, budget, 1 / 2), comparing_once():
            with proving("the expansion of temporaries"):
                expanded = expand_temporaries(nest)
            nest, expansions = expanded.nest, expanded.expansions
            with proving("rewrites of products"):
                fast = _as_wanted(nest, model, wanted, fuse)
            nest, remarks = fast.nest, (*notes, *fast.remarks)
            plan = plan_for(nest, able, fuse=fuse, choose=choose, force=force)
        plan = replace(plan, remarks=(*remarks, *plan.remarks, *_unused(plan.schedule, model)))
        with proving("the proof of the plan"), _limited(nest, FINISHING, budget, 1 / 4):
            plan = replace(plan, schedule=plan.schedule.rooted_in(given))
            done = _finished(plan.schedule, plan, goal, place, model, start, OPERATIONS)
    except (BudgetExceeded, isl.Error) as error:
        if isinstance(error, isl.Error) and not stopped(error):
            raise
        why = str(told(error) if isinstance(error, isl.Error) else error)
        unrewritten, nest = nest is given, nest.no_longer_asked()
        given = nest if unrewritten else given
        with proving("the proof of the order as written"), _limited(nest, FINISHING, budget, 1):
            kept = as_written(nest, model, why)
            said = (*remarks, *kept.remarks, *_in_float32(kept.schedule, model))
            kept = replace(kept, remarks=said, schedule=kept.schedule.rooted_in(given))
            done = _finished(kept.schedule, kept, goal, place, model, start, 0)
    return replace(done, expansions=expansions)


@contextmanager
def _limited(nest: Nest, usual: tuple[int, int], budget: float | None, share: float) -> Iterator[None]:
    """Give isl a share of the budget, or as many operations as are usual for a nest of so many statements."""
    context = nest.context.get_ctx()
    if budget is None:
        with at_most(context, usual[0] + usual[1] * len(nest.statements)):
            yield
    else:
        with (
            until(context, share * budget),
            at_most(context, max(1, int(share * budget * OPERATIONS_PER_SECOND))),
        ):
            yield


def _one_block_at_a_time(model: Machine) -> Machine:
    """The machine as the simulator runs its kernels, block after block."""
    if not isinstance(model, GpuMachine):
        return model
    return replace(model, gpu=replace(model.gpu, grid_barrier_seconds=None))


def _finished(
    schedule: Schedule,
    plan: Plan | None,
    goal: Target,
    place: Device,
    model: Machine,
    start: float,
    operations: int,
) -> Compiled:
    """A schedule that stands: synchronised, validated with so many operations of isl for a check, and printed."""
    times = [start]
    _check_places(schedule, goal)
    schedule = schedule.synchronised()
    times.append(time.perf_counter())
    measure.STAGES.info("validation")
    early = once(schedule.nest, schedule.tree)
    validation = validate(
        schedule.source, schedule.nest, schedule.tree, _arenas(schedule, early), early, operations
    )
    times.append(time.perf_counter())
    measure.STAGES.info("source")
    with proving("the bounds of loops and launches"):
        printed = with_room(program(schedule.nest, schedule.tree, goal, early), model)
    check_shared(printed, model)
    check_residence(printed, model)
    check_clusters(printed, model)
    times.append(time.perf_counter())
    stages = {name: stop - start for name, (start, stop) in zip(STAGES, pairwise(times), strict=True)}
    costs = (
        tree_costs(schedule, model) if plan is None else planned_costs(plan.groups, schedule, model, early)
    )
    return Compiled(schedule, plan, costs, validation, printed, model, place, stages)


def _arenas(schedule: Schedule, early: tuple[bool, ...] | None) -> tuple[Spans, ...]:
    """Return the offsets of temporaries in the arenas of calls and of what runs once; () if sizes are unknown."""
    if schedule.nest.params:
        return ()
    memory = Memory.of(schedule.source, schedule.nest, schedule.tree, early)
    return memory.calls.plan({}).spans, memory.once.plan({}).spans


def _as_wanted(nest: Nest, model: Machine, wanted: Wanted, fuse: bool) -> Fast:
    """The nest with float32 factors for a CPU, after the rewrites that round otherwise, and what was decided."""
    wide, copies = with_wide_factors(nest) if model.kind == "cpu" else (nest, ())
    folded, said = with_scales_folded(wide) if wanted.fold and fuse else (wide, ())
    fast = with_fast_products(folded, model, wanted)
    return replace(fast, remarks=(*copies, *said, *fast.remarks))


def _tuned(
    nest: Nest,
    goal: Target,
    model: Machine,
    schedule: Schedule | None,
    fuse: bool,
    wanted: Wanted,
    tune: Trials,
    force: Mapping[str, bool | str],
) -> Tuning:
    """A search for the nest, or what an earlier one found."""
    if goal != "cpu":
        raise InvalidTuning(
            f"tune= measures schedules on the CPU, but the target is {goal}: pass target='cpu'"
        )
    if schedule is not None:
        raise InvalidTuning("tune= searches for a schedule, but schedule= gives one: leave one of them out")
    if nest.params:
        raise InvalidTuning(
            f"tune= measures, so all sizes must be known: give sizes= for {', '.join(nest.params)}"
        )
    options: dict[str, object] = {
        "fuse": fuse,
        "tune": {"seed": tune.seed, "at_once": tune.at_once},
        **wanted.key,
    }
    options |= {"force": dict(force)} if force else {}
    key = digest(key_parts(nest, None, model, options))

    @cache
    def source() -> Nest:
        return _as_wanted(expand_temporaries(nest).nest, model, wanted, fuse).nest

    def plan(answer: Answer) -> Plan:
        return plan_for(source(), model, fuse=fuse, choose=Choose(answer), force=force)

    return tuned(nest.name, key, plan, built, model, tune)


def built(nest: Nest, schedule: Schedule, machine: Machine) -> Executable:
    """A schedule for the CPU compiled: what a search sends to its workers by name."""
    return compile(nest, target="cpu", schedule=schedule, machine=machine)


def _away(picks: Mapping[str, int]) -> dict[str, int]:
    """The picks that are not the model's own: without any, a tuned compile is the same as one that was not."""
    return {question: position for question, position in picks.items() if position}


def _placement(
    target: str, machine: Machine | str | None, device: str | None, schedule: Schedule | None
) -> tuple[Target, Device, Machine]:
    """(target, device, machine) from what was asked for and what is here."""
    if target not in ("auto", "cpu", "cuda"):
        raise TargetUnavailable(f"unknown target {target!r}; expected 'auto', 'cpu' or 'cuda'")
    model = Machine.preset(machine) if isinstance(machine, str) else machine
    if target == "auto":
        target = _automatic(model, device, schedule)
    if model is not None and model.kind != target:
        raise TargetUnavailable(f"machine {model.name} is a {model.kind} machine, but the target is {target}")
    if target == "cpu":
        if device is not None:
            raise TargetUnavailable(
                f"device={device!r} is for CUDA kernels, but the target is cpu: leave device= out"
            )
        return "cpu", "cpu", model or Machine.detect()
    if device is None and model is None and not available():
        raise TargetUnavailable(
            f"{missing()}. To compile CUDA kernels without a GPU, name a machine (machine='h200'), "
            "and device='lockstep' to run them in the CPU emulator"
        )
    place = device or ("gpu" if available() else "none")
    if place not in ("gpu", "lockstep", "simulator", "none"):
        raise TargetUnavailable(
            f"unknown device {place!r}; expected 'gpu', 'lockstep', 'simulator' or 'none'"
        )
    if place == "gpu" and not available():
        raise TargetUnavailable(str(missing()))
    if model is None:
        model = (
            machine_here() if place == "gpu" or (place == "none" and available()) else Machine.preset("h200")
        )
    if place == "simulator" and isinstance(
        model, GpuMachine
    ):  # one thread at a time: nothing that was not asked for needs 32 at once
        model = replace(model, tensor=tuple(rate for rate in model.tensor if rate[0] != "f64"))
    return "cuda", place, model  # type: ignore[return-value]


def _with_math(nest: Nest, model: Machine, schedule: Schedule | None, math: Math) -> Machine:
    """The machine with what products may be rounded to."""
    if math == "ieee":
        return model
    if math not in MATHS:
        raise InvalidMath(f"unknown math {math!r}; expected one of {', '.join(MATHS)}")
    if schedule is not None:
        raise InvalidMath(
            f"math={math!r} is an option of the strategy, but schedule= gives a schedule by hand: use "
            f"microkernel(…, math={math!r}) there"
        )
    if not isinstance(model, GpuMachine):
        raise InvalidMath(
            f"math={math!r} is for a GPU's tensor cores, but the target is cpu: leave it "
            "out, or compile with target='cuda'"
        )
    if math not in dict(model.tensor):
        raise InvalidMath(f"machine {model.name} has no tensor cores for {math}: leave math= out")
    if all(tensor.dtype != "float32" for tensor in nest.tensors):
        raise InvalidMath(
            f"math={math!r} rounds float32 factors, but nest {nest.name!r} has none: leave it out"
        )
    return replace(model, math=math)


def _unused(schedule: Schedule, model: Machine) -> tuple[Remark, ...]:
    """A remark if not all products of a schedule run on tensor cores, though they might have."""
    if not isinstance(model, GpuMachine) or model.math == "ieee":
        return ()
    rounded = _rounded(schedule)
    if not rounded:
        line = (
            f"math={model.math!r} is not used: no float32 product that is alone in its kernel has a warp's 32 x 32 "
            "results, or is cheaper in tiles than without."
        )
        return (refused("math", (), Reason.NO_TILES, line),)
    return _in_float32(schedule, model)


def _in_float32(schedule: Schedule, model: Machine) -> tuple[Remark, ...]:
    """A remark that names the products which tensor cores might have computed and do not, if there are any."""
    rounded = _rounded(schedule)
    left = [name for name in _float_products(schedule.source) if name not in rounded]
    if not isinstance(model, GpuMachine) or model.math == "ieee" or not left:
        return ()
    line = f"math={model.math!r} is not used for {', '.join(left)}: float32 as written."
    return (refused("math", left, Reason.NO_TILES, line),)


def _rounded(schedule: Schedule) -> set[str]:
    """The statements whose factors are rounded."""
    return {name for loop in loops(schedule.tree) if loop.math in PRECISIONS for name in loop.names}


def _float_products(nest: Nest) -> list[str]:
    """The statements that sum products of float32 factors."""
    floats = (s.name for s in nest.statements if nest.tensor(s.write.tensor).dtype == "float32")
    return [name for name in floats if products_of(nest, name, by_value=True)]


def _automatic(model: Machine | None, device: str | None, schedule: Schedule | None) -> Target:
    if model is not None:
        return model.kind
    if device is not None:
        return "cuda"
    if schedule is not None:
        places = {loop.bind for loop in loops(schedule.tree)}
        if places & {*ON_CORES}:
            return "cpu"
        if any(place is not None and place.on_gpu for place in places):
            return "cuda"
    return "cuda" if available() else "cpu"


def _check_places(schedule: Schedule, target: Target) -> None:
    for loop in loops(schedule.tree):
        on_gpu = loop.bind is not None and loop.bind.on_gpu
        if (on_gpu and target == "cpu") or (loop.bind in ON_CORES and target == "cuda"):
            raise InvalidSchedule(
                f"loop {loop.name} is bound to {loop.bind}, which target {target} does not have"
            )
        if loop.math != "ieee" and target == "cpu":
            raise InvalidSchedule(
                f"loop {loop.name} is a microkernel with {loop.math} factors, which only GPUs support: leave math= "
                "out for "
                "target cpu"
            )
        for buffer in loop.buffers:
            if buffer.memory == "shared" and target == "cpu":
                raise InvalidSchedule(
                    f"{buffer.tensor} is promoted to shared memory, which target cpu does not have"
                )

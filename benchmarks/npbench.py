"""NPBench's programs as published: which `@pf.nest` accepts, and whether the results are NumPy's.

    python -m benchmarks.npbench CHECKOUT [--only gemm …] [--step read|oracle|compile|times] [--sizes S 0.7 1.3]

CHECKOUT is a copy of github.com/spcl/npbench, of which the functions `…_numpy.py`, the sizes in `bench_info` and the
functions `initialize` are used as they are. Types and shapes come from the arrays that `initialize` makes: an extent is
a size of NPBench's, plus or minus a small constant. One process for each program, one line for each result:

    gemm        right    3 of 3 sizes, read 0.3 s, compiled 2.1 s
    chanflow    pieces   3 of 3 sizes, 5 of 6 pieces compiled
    azimhist    refused  np.histogram(radius, npt)[0] is not known here: azimint_hist_numpy.py:15:13

`--step read` only reads the functions, `oracle` runs the nest of small sizes in the interpreter, `compile` compiles for
the CPU and runs it at all sizes: a preset of NPBench's, or the integers of preset S times a factor. The seconds are
those of the processor, not of the clock, and without imports. What `@pf.nest` refuses is tried as a `pf.program`, which
compiles the pieces around what stays Python. `times` measures calls at the first of the sizes, for which polyfuse
compiles as JAX does, default arguments included, against NumPy and NPBench's own versions for numba, JAX and DaCe where
these are installed, in turns, if the results are NumPy's. Results of a chaotic program (nbody at M) count as NumPy's if
they are no further away than NumPy's own are after its inputs have moved by a unit in the last place; the row says so.
For one thread set NUMBA_NUM_THREADS and OPENBLAS_NUM_THREADS to 1, and XLA_FLAGS to "--xla_cpu_multi_thread_eigen=false
intra_op_parallelism_threads=1"; processor seconds of the fastest turn count. With `--clock wall` it is the median of
the clock's, for more threads. A size is a preset, or one times a factor, as M*0.5.
"""

from __future__ import annotations

import argparse
import copy
import functools
import importlib
import inspect
import json
import linecache
import multiprocessing
import queue
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import polyfuse as pf
from polyfuse.ir.number_types import NUMBER_TYPES

NOTES = {name: known.note for name, known in NUMBER_TYPES.items() if known.note}
APART = (149, 131, 113, 97, 79, 67, 53, 41)
"""Sizes of the runs that show how extents depend on sizes: different ones, so that they can be told apart."""

SMALL = (12, 11, 10, 9, 8, 7, 6, 5)
"""Sizes of runs in the interpreter."""

CONSTANT = {"lenet": ("H", "W"), "sselfeng": ("Norb",), "sthamfft": ("R",)}
"""Sizes that stay numbers: a product of them is an extent, or an array of larger ones does not fit in memory."""

FIXED = {"sthamfft": ("N", "R", "K")}
"""Arguments that are numbers in the program that is read, as extents are powers of them: one program for each size."""

TOLERANCE = 1e-5
"""The largest error that counts as right, relative to the largest element: NPBench's own validation allows as much."""

TURNS = 3
PATIENCE = 1.5
"""Turns of each side in `--step times`, and processor seconds after which a side has no further turn."""

PAUSE = 0.05
"""Seconds before a turn on several threads. OpenBLAS's threads look for work for some 25 ms after a call, and those of
XLA and OpenMP for less, on the cores that the next side runs on."""


@dataclass(frozen=True)
class Program:
    """One program of NPBench: its function, what makes its arguments, and its sizes by preset."""

    name: str
    function: Callable[..., Any]
    initialize: Callable[..., Any] | None
    info: Mapping[str, Any]

    def arguments(self, sizes: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call, by NPBench's names for them, in order."""
        known = dict(sizes)
        made = self.info.get("init")
        if self.initialize is not None and made:
            found = self.initialize(*(known[name] for name in made["input_args"]))
            outputs = made["output_args"]
            known.update(zip(outputs, found if len(outputs) > 1 else (found,), strict=True))
        return {name: known[name] for name in self.info["input_args"]}


def programs(checkout: Path) -> list[Program]:
    """All programs of a checkout."""
    sys.path.insert(0, str(checkout))
    found = []
    for file in sorted((checkout / "bench_info").glob("*.json")):
        info = json.loads(file.read_text())["benchmark"]
        package = "npbench.benchmarks." + info["relative_path"].replace("/", ".")
        module = importlib.import_module(f"{package}.{info['module_name']}")
        function = getattr(
            importlib.import_module(f"{package}.{info['module_name']}_numpy"), info["func_name"]
        )
        initialize = None
        if info.get("init"):
            initialize = getattr(module, info["init"]["func_name"])
        found.append(Program(info["short_name"], function, initialize, info))
    return found


def small_sizes(
    program: Program, small: Sequence[int] = SMALL, sizes: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The sizes, or those of preset S, with integers replaced by others that differ."""
    preset = sizes or program.info["parameters"]["S"]
    fixed = CONSTANT.get(program.name, ())
    numbers = iter(small)
    return {
        name: next(numbers) if isinstance(value, int) and name not in fixed and value > 3 else value
        for name, value in preset.items()
    }


def types(program: Program, given: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Annotations of the parameters, in NPBench's sizes; sizes that stay numbers are as given, or of preset S."""
    sizes = small_sizes(program, APART, given)
    arguments = program.arguments(sizes)
    parameters = list(inspect.signature(program.function).parameters)
    fixed = CONSTANT.get(program.name, ())
    names = dict(zip(arguments, parameters, strict=False))  # NPBench gives arguments by position
    symbols = {
        value: name
        for name, value in reversed(sizes.items())
        if isinstance(value, int) and value > 3 and name not in fixed
    }
    found = {}
    taken = program.function.__code__.co_varnames
    for name, value in arguments.items():
        array = np.asarray(value)
        note = NOTES[array.dtype.name]
        shape = ", ".join(_extent(n, symbols, names, taken) for n in array.shape)
        found[names[name]] = f"{note}[{shape}]" if array.shape else note
    return found


def _extent(extent: int, symbols: Mapping[int, str], names: Mapping[str, str], taken: Sequence[str]) -> str:
    for offset in (0, 1, -1, 2, -2, 4, -4):
        symbol = symbols.get(extent - offset)
        if symbol is not None:
            symbol = names.get(symbol, symbol if symbol not in taken else f"n{symbol}")
            return symbol if not offset else f"{symbol} {'+' if offset > 0 else '-'} {abs(offset)}"
    return str(extent)


def sizes_of(program: Program, text: str) -> dict[str, Any]:
    """The sizes of a preset, or a preset with its integers times a factor: M*0.5, or 0.5 for S*0.5."""
    presets = program.info["parameters"]
    if text in presets:
        return dict(presets[text])
    preset, star, factor = text.partition("*")
    preset, factor = (preset, factor) if star else ("S", text)
    fixed = CONSTANT.get(program.name, ())
    return {
        name: max(4, round(value * float(factor)))
        if isinstance(value, int) and value > 3 and name not in fixed
        else value
        for name, value in presets[preset].items()
    }


def with_numbers(program: Program, sizes: Mapping[str, Any]) -> pf.Nest:
    """The nest of a call with some arguments as numbers, which takes the others."""
    arguments = program.arguments(sizes)
    names = list(inspect.signature(program.function).parameters)
    fixed = FIXED[program.name]
    rest = [name for name in names if name not in fixed]
    given = ", ".join(str(arguments[name]) if name in fixed else name for name in names)
    text = f"def call({', '.join(rest)}):\n    return program({given})\n"
    linecache.cache["<call>"] = (len(text), None, text.splitlines(keepends=True), "<call>")
    space: dict[str, Any] = {"program": program.function}
    exec(compile(text, "<call>", "exec"), space)
    return pf.nest(space["call"], types={k: _note(arguments[k]) for k in rest})


def _note(value: Any) -> str:
    array = np.asarray(value)
    shape = ", ".join(map(str, array.shape))
    return f"{NOTES[array.dtype.name]}[{shape}]" if shape else NOTES[array.dtype.name]


def _checked_at_each(program: Program, sizes: Sequence[str]) -> str:
    """The result of a program that is compiled for each size."""
    names = list(inspect.signature(program.function).parameters)
    rest = [names.index(name) for name in names if name not in FIXED[program.name]]
    found, compiled = [], []
    for text in sizes:
        known = sizes_of(program, text)
        started = time.process_time()
        run = pf.compile(with_numbers(program, known), target="cpu")
        compiled.append(time.process_time() - started)

        def call(*given: Any, run: Any = run) -> Any:
            return run(*(given[position] for position in rest))

        found.append(_distance_from_numpy(program, known, call))
    each = ", ".join(f"{seconds:.1f}" for seconds in compiled)
    return f"{_verdict(found)} {len(sizes)} of {len(sizes)} sizes, compiled {each} s"


def timed(program: Program, sizes_text: str, peers: Sequence[str], clock: str) -> str:
    """Milliseconds of a call by polyfuse, NumPy and others, in turns; a row of a table."""
    sizes = sizes_of(program, sizes_text)
    arguments = program.arguments(sizes)
    changed = set(program.info["output_args"])
    started = time.process_time()
    sides = {"polyfuse": Side(_compiled(program, sizes)), "NumPy": Side(program.function)}
    compiled = time.process_time() - started
    wrong = _distance_from_numpy(program, sizes, sides["polyfuse"].run)
    moved = 0.0 if wrong < 1.0 else _distance_from_numpy(program, sizes, _nudged(program.function))
    if not wrong < max(1.0, moved):
        return f"{_verdict([wrong])} at {sizes_text}"
    for name in peers:
        side = PEERS[name](program, sizes)
        if side is not None:
            sides[name] = side

    def fresh(side: Side) -> list[Any]:
        own = [copy.deepcopy(value) if name in changed else value for name, value in arguments.items()]
        return side.ready(own)

    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, side in list(sides.items()):
            try:
                if name != "NumPy":
                    side.run(*fresh(side))  # compiles, and touches what it keeps
            except Exception:
                if name == "polyfuse":
                    raise
                del sides[name]
        best = _in_turns(sides, fresh, clock)
    others = min(value for name, value in best.items() if name != "polyfuse")
    every = ("polyfuse", "NumPy", *peers)
    times = " | ".join(f"{1e3 * best[name]:.3g}" if name in best else "-" for name in every)
    chaotic = f" chaotic: {wrong:.1e} tolerances away, NumPy nudged {moved:.1e}" if moved else ""
    return (
        f"timed    | {program.name} | {times} | {others / best['polyfuse']:.2f} | {compiled:.1f} |{chaotic}"
    )


@dataclass(frozen=True)
class Side:
    """One side of a comparison: what runs, and what makes its arguments of NumPy's."""

    run: Callable[..., Any]
    ready: Callable[[list[Any]], list[Any]] = list


def _in_turns(sides: Mapping[str, Side], fresh: Callable[[Side], list[Any]], clock: str) -> dict[str, float]:
    """Seconds of a call of each side: the least on one thread, the median of those that follow a call of their own."""
    threaded = clock == "wall"
    now = time.perf_counter if threaded else time.process_time
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(2 * TURNS + 1 if threaded else TURNS):
        for name, side in sides.items():
            if sum(seconds[name]) >= PATIENCE:
                continue
            if threaded:
                time.sleep(PAUSE)
                side.run(*fresh(side))  # wakes its own threads
            given = fresh(side)
            started = now()
            side.run(*given)
            seconds[name].append(now() - started)
    middle = statistics.median if threaded else min
    return {name: middle(found) for name, found in seconds.items()}


def _compiled(program: Program, sizes: Mapping[str, Any]) -> Callable[..., Any]:
    """A program as polyfuse compiles it for these sizes."""
    if program.name in FIXED:
        run = pf.compile(with_numbers(program, sizes), target="cpu")
        names = list(inspect.signature(program.function).parameters)
        rest = [names.index(name) for name in names if name not in FIXED[program.name]]
        return lambda *given: run(*(given[position] for position in rest))
    nest = pf.nest(program.function, types=types(program, sizes))
    parameters = inspect.signature(program.function).parameters
    known = {name: each.default for name, each in parameters.items() if isinstance(each.default, int)}
    known |= dict(zip(parameters, program.arguments(sizes).values(), strict=False))
    return pf.compile(nest, target="cpu", sizes=_sizes(nest, sizes, known))


def _numba_of(program: Program, _: Mapping[str, Any]) -> Side | None:
    """NPBench's own parallel version for numba, else that for one thread; None if it has neither."""
    found = _version(program, "numba_np") or _version(program, "numba_n")
    return Side(found) if found is not None else None


def _jax_of(program: Program, _: Mapping[str, Any]) -> Side | None:
    """NPBench's version for JAX on arrays that it holds; None if there is none, or no JAX."""
    try:
        jax = importlib.import_module("jax")
    except ModuleNotFoundError:
        return None
    jax.config.update("jax_enable_x64", True)
    found = _version(program, "jax") or _version(program, "jax_lib")
    if found is None:
        return None

    def ready(given: list[Any]) -> list[Any]:
        held = [jax.numpy.array(value) if isinstance(value, np.ndarray) else value for value in given]
        return list(jax.block_until_ready(held))

    return Side(lambda *given: jax.block_until_ready(found(*given)), ready)


def _dace_of(program: Program, sizes: Mapping[str, Any]) -> Side | None:
    """NPBench's version for DaCe, optimised for the CPU as NPBench does; None if there is none, or no DaCe."""
    try:
        dace = importlib.import_module("dace")
        auto = importlib.import_module("dace.transformation.auto.auto_optimize")
    except ModuleNotFoundError:
        return None
    found = _version(program, "dace")
    if found is None:
        return None
    dace.Config.set("compiler", "allow_view_arguments", value=True)  # as some of `initialize` are
    np.set_printoptions(legacy="1.25")  # DaCe 1 parses the texts of numbers, "np.float64(2.0)" in NumPy 2
    names = program.info["input_args"]
    symbols = {name: value for name, value in sizes.items() if name not in names}

    @functools.cache
    def compiled() -> Callable[..., Any]:
        graph = found.to_sdfg(simplify=True)  # type: ignore[attr-defined]  # a program of DaCe's
        made: Callable[..., Any] = auto.auto_optimize(graph, dace.DeviceType.CPU).compile()
        return made

    def run(*given: Any) -> Any:
        return compiled()(**dict(zip(names, given, strict=True)), **symbols)

    return Side(run)


PEERS: Mapping[str, Callable[[Program, Mapping[str, Any]], Side | None]] = {
    "numba": _numba_of,
    "jax": _jax_of,
    "dace": _dace_of,
}


def _version(program: Program, kind: str) -> Callable[..., Any] | None:
    """A program's function in NPBench's version for a framework; None if it has none."""
    module = program.function.__module__.removesuffix("_numpy")
    try:
        found = importlib.import_module(f"{module}_{kind}")
    except (ImportError, TypeError, NameError):
        return None
    made: Callable[..., Any] | None = getattr(found, program.info["func_name"], None)
    return made


def checked(
    program: Program, step: str, sizes: Sequence[str], peers: Sequence[str] = (), clock: str = "cpu"
) -> str:
    """Read one program and compare its results with NumPy's; the text of the result."""
    if step == "times":
        return timed(program, sizes[0], peers, clock)
    if step == "compile" and program.name in FIXED:
        return _checked_at_each(program, sizes)
    started = time.process_time()
    try:
        nest = pf.nest(program.function, types=types(program))
    except pf.PolyfuseError as error:
        return _in_pieces(program, sizes, error) if step == "compile" else f"refused  {_first_line(error)}"
    read = time.process_time() - started
    if step == "read":
        return f"read     {read:.1f} s"
    try:
        if step == "oracle":
            return f"{_verdict([_distance_from_numpy(program, small_sizes(program), _interpreted(nest))])} oracle"
        started = time.process_time()
        executable = pf.compile(nest, target="cpu")
        compiled = time.process_time() - started
        found = [_distance_from_numpy(program, sizes_of(program, text), executable) for text in sizes]
    except pf.PolyfuseError as error:
        return f"failed   {type(error).__name__}: {_first_line(error)}"
    return (
        f"{_verdict(found)} {len(sizes)} of {len(sizes)} sizes, read {read:.1f} s, compiled {compiled:.1f} s"
    )


def _in_pieces(program: Program, sizes: Sequence[str], error: pf.PolyfuseError) -> str:
    """The result of a program that is no nest: its pieces compiled, or why it is refused."""
    run = pf.program(target="cpu")(program.function)
    found = [_distance_from_numpy(program, sizes_of(program, text), run) for text in sizes]
    compiled = sum(bool(piece.compiled) for piece in run.pieces)
    if not compiled:
        return f"refused  {_first_line(error)}"
    verdict = _verdict(found).strip()
    verdict = "pieces  " if verdict == "right" else verdict
    return f"{verdict} {len(sizes)} of {len(sizes)} sizes, {compiled} pieces compiled; {_first_line(error)}"


def _verdict(worst: Sequence[float]) -> str:
    """`right` if no result is further from NumPy's than rounding explains."""
    return "right   " if max(worst) < 1.0 else f"WRONG {max(worst):.1e}"


def _interpreted(nest: pf.Nest) -> Callable[..., Any]:
    def run(*own: Any) -> Any:
        named = dict(zip(inspect.signature(nest.python).parameters, own, strict=False))  # type: ignore[attr-defined]  # read from Python
        tensors = {t.name for t in nest.inputs}
        given = {name: value for name, value in named.items() if name in tensors}
        left = pf.interpret(nest, given, sizes=_sizes(nest, named, named))
        for tensor in nest.with_role("inout"):
            np.asarray(named[tensor.name])[...] = left[tensor.name]
        return tuple(left[t.name] for t in nest.with_role("output"))

    return run


def _distance_from_numpy(program: Program, sizes: Mapping[str, Any], run: Callable[..., Any]) -> float:
    """How far the results of a call, and what it leaves in its arguments, are from NumPy's, in tolerances."""
    arguments = program.arguments(sizes)
    expected, own = (copy.deepcopy(list(arguments.values())) for _ in range(2))
    with np.errstate(all="ignore"):
        results = program.function(*expected)
    given = run(*own)
    wanted, found = (
        list(every) if isinstance(every, tuple) else [] if every is None else [every]
        for every in (results, given)
    )
    pairs = zip([*own, *found], [*expected, *wanted], strict=True)
    worst = max((_distance(a, b) for a, b in pairs), default=0.0)
    return worst / (100 * TOLERANCE if _is_single(arguments) else TOLERANCE)


def _nudged(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function on arguments of which each array of floats has moved by one unit in the last place."""

    def run(*given: Any) -> Any:
        for value in given:
            if isinstance(value, np.ndarray) and value.dtype.kind == "f":
                np.nextafter(value, np.inf, out=value)
        return function(*given)

    return run


def _sizes(nest: pf.Nest, sizes: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, int]:
    known = {**{f"n{k}": v for k, v in sizes.items()}, **sizes, **named}
    return {name: int(known[name]) for name in nest.params if name in known}


def _distance(found: Any, expected: Any) -> float:
    a, b = (np.asarray(x, np.complex128 if np.iscomplexobj(x) else np.float64) for x in (found, expected))
    if a.shape != b.shape or (np.isnan(a) != np.isnan(b)).any():
        return float("inf")
    scale = float(np.abs(b[np.isfinite(b)]).max(initial=0.0)) or 1.0
    same = (a == b) | np.isnan(b)
    return float(np.abs(np.where(same, 0.0, a - b)).max(initial=0.0)) / scale


def _is_single(arguments: Mapping[str, Any]) -> bool:
    return any(np.asarray(value).dtype == np.float32 for value in arguments.values())


def _first_line(error: Exception) -> str:
    return str(error).split("\n")[0]


def _in_process(checkout: Path, name: str, answer: Any, *given: Any) -> None:
    program = next(p for p in programs(checkout) if p.name == name)
    try:
        answer.put(checked(program, *given))
    except pf.PolyfuseError as error:
        answer.put(f"failed   {type(error).__name__}: {_first_line(error)}")
    except ModuleNotFoundError as error:  # spmv's arrays are made by SciPy
        answer.put(f"skipped  {_first_line(error)}")
    except (
        ArithmeticError,
        AssertionError,
        AttributeError,
        LookupError,
        NameError,
        TypeError,
        ValueError,
    ) as error:
        answer.put(f"CRASH    {type(error).__name__}: {_first_line(error)}")


def _answer(process: Any, answer: Any, seconds: float) -> str:
    """The line of a process, or one that says that it ended without a word or takes too long."""
    last = time.monotonic() + seconds
    while time.monotonic() < last:
        alive = process.is_alive()
        try:
            said: str = answer.get(timeout=1.0)
        except queue.Empty:
            if not alive:
                return f"ended    with {process.exitcode}"
        else:
            return said
    return f"late     more than {seconds:.0f} s"


def main() -> None:
    """Print a line for each program, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--step", choices=("read", "oracle", "compile", "times"), default="compile")
    parser.add_argument("--sizes", nargs="*", default=["S", "0.7", "1.3"])
    parser.add_argument("--peers", nargs="*", choices=tuple(PEERS), default=tuple(PEERS))
    parser.add_argument("--clock", choices=("cpu", "wall"), default="cpu")
    parser.add_argument("--seconds", type=float, default=120.0)
    given = parser.parse_args()
    counts: dict[str, int] = {}
    for module in (
        "polyfuse.compiler",
        "polyfuse.intrinsics",
    ):  # a process takes a second of its own for these
        importlib.import_module(module)
    context = multiprocessing.get_context("fork")
    for program in programs(given.checkout):
        if given.only and program.name not in given.only:
            continue
        answer = context.Queue()
        arguments = (given.checkout, program.name, answer, given.step, given.sizes, given.peers, given.clock)
        process = context.Process(target=_in_process, args=arguments)
        process.start()
        text = _answer(process, answer, given.seconds)
        process.kill()
        process.join()
        print(f"{program.name:10} {text}", flush=True)
        counts[text.split()[0]] = counts.get(text.split()[0], 0) + 1
    print(", ".join(f"{count} {word}" for word, count in sorted(counts.items())))


if __name__ == "__main__":
    main()

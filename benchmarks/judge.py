"""The cost model on trial: every kernel of every workload, predicted and measured, in a table sorted by the worst.

    all cases:  case -> nest and arguments -> compiled for this machine with so many threads
    then each:  compiled case -> profile -> a row for each kernel

python -m benchmarks.judge [--only workloads,polybench,pipelines,grid,odd,layers] [--named TEXT] [--every K]
                           [--threads 1,2] [--turns 7] [--seconds 300] [--beside COMMAND] [--out FOLDER] [--resume]
python -m benchmarks.judge --compare BEFORE AFTER      cases that became slower; exit status 1 if there are any

| group | cases |
|---|---|
| workloads | the 22 of benchmarks.peers |
| polybench | the 30 kernels, LARGE |
| pipelines | the image pipelines, 2048 × 2048 |
| grid | each ninth of its 168 dense networks |
| odd | PolyBench kernels at MINI, and at sizes that no tile divides |
| layers | the forty networks of benchmarks.judged_networks |

The measured time is the best of the turns: neighbours make a turn longer and never shorter. A ratio above 1 is a kernel
that takes longer than predicted and one read of the clock. Compiling takes minutes and measuring seconds, so that a
command that keeps other work off the machine (`--beside`) runs only while cases are measured; it is told to end by the
end of its input. Writes judge-DATE.json, .csv, .md and .svg.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import log
from pathlib import Path
from typing import Any

import numpy as np

import polyfuse as pf
from benchmarks.beside import running
from benchmarks.fresh import THREADS
from benchmarks.judged_networks import NETWORKS
from benchmarks.options import some_of
from benchmarks.peers.grid import cells
from benchmarks.peers.workloads import TABLE, Workload, mlp
from benchmarks.results import FOLDER, Run, header
from benchmarks.sides.by_polyfuse import nest_of
from papers.pipelines import PIPELINES
from papers.polybench import KERNELS
from polyfuse.errors import quantity
from polyfuse.ir.gather import rows_of
from polyfuse.ir.sizes import extent
from polyfuse.show.log_ticks import plain_log_ticks

Arguments = Mapping[str, Any]
Made = tuple[pf.Nest, Arguments]
Row = dict[str, Any]

WITHIN = 1.5
"""A prediction within this factor is right."""

SLOWER = 1.25
"""A kernel that takes so many times what it took is named by --compare: less is the machine's."""

CLOCK = 20e-9
"""Seconds of the read of the clock that a kernel's measured time holds (polyfuse/runtime/cpu/timed.py)."""

EVERY_CELL = 9
"""The grid's sample."""


@dataclass(frozen=True)
class Case:
    """A computation: its nest, made anew, and the arguments of a call."""

    name: str
    make: Callable[[], Made]


def cases(group: str) -> Iterator[Case]:
    """The cases of a group; their names begin with it."""
    found: Mapping[str, Callable[[], Made]] = {
        "workloads": lambda: {n: partial(of_workload, w) for n, w in TABLE.items()},
        "polybench": lambda: {n: partial(of_kernel, n, "large") for n in KERNELS},
        "pipelines": lambda: {n: partial(of_pipeline, n) for n in PIPELINES},
        "grid": lambda: {
            w.name: partial(of_workload, w)
            for layers, batch, width in cells(long=True)[::EVERY_CELL]
            for w in [mlp(layers, width, batch)]
        },
        "odd": lambda: {
            f"{n}, {what}": partial(of_kernel, n, what) for n in KERNELS for what in ("mini", "odd")
        },
        "layers": lambda: {n: partial(of_network, n) for n in NETWORKS},
    }[group]()
    for name, make in found.items():
        yield Case(f"{group}/{name}", make)


GROUPS = ("workloads", "polybench", "pipelines", "grid", "odd", "layers")


def of_workload(workload: Workload) -> Made:
    """One of the peers' workloads."""
    nest, sizes, arrays = nest_of(workload.kind, workload.make())
    fixed = nest.with_sizes(sizes) if sizes else nest
    return fixed, {t.name: arrays[t.name] for t in fixed.inputs}


def of_kernel(name: str, size: str) -> Made:
    """A kernel of PolyBench at LARGE, MINI, or a third of LARGE made odd."""
    kernel = KERNELS[name]
    odd = {n: max(5, 2 * (size // 6) + 1) for n, size in kernel.large.items()}
    sizes = {"large": kernel.large, "mini": kernel.mini, "odd": odd}[size]
    return _fixed(kernel.nest, sizes, kernel.inputs(sizes, np.random.default_rng(0)))


def of_pipeline(name: str) -> Made:
    """A pipeline of images."""
    pipeline = PIPELINES[name]
    return _fixed(pipeline.nest, pipeline.large, pipeline.inputs(pipeline.large, np.random.default_rng(0)))


def _fixed(nest: pf.Nest, sizes: Mapping[str, int], arguments: Arguments) -> Made:
    fixed = nest.with_sizes(sizes)
    return fixed, {t.name: arguments[t.name] for t in fixed.inputs}


def of_network(name: str) -> Made:
    """A network of layers, on normal numbers, and rows that there are."""
    nest = NETWORKS[name]()
    rng, rows = np.random.default_rng(0), rows_of(nest, {})
    arguments: dict[str, Any] = {}
    for tensor in nest.inputs:
        shape = [extent(size, {}) for size in tensor.shape]
        if tensor.name in rows:
            arguments[tensor.name] = rng.integers(0, rows[tensor.name], shape).astype(tensor.dtype)
        else:
            arguments[tensor.name] = rng.standard_normal(shape).astype(tensor.dtype)
    return nest, arguments


# -- measuring ---------------------------------------------------------------------------------------------------------


_compiled: dict[str, tuple[pf.Executable, Arguments]] = {}
"""Compiled cases of this process and their arguments, by the names of the cases."""


def compiled(name: str) -> None:
    """Compile a case in this process, with the threads that it has, and run it once."""
    case = next(case for case in cases(name.split("/")[0]) if case.name == name)
    nest, arguments = case.make()
    net = pf.compile(nest, target="cpu")
    net.profile(**arguments, turns=1)
    _compiled[name] = net, arguments


def judged(name: str, turns: int) -> list[Row]:
    """Measure a case that this process has compiled; a row for each kernel."""
    net, arguments = _compiled[name]
    found = net.profile(**arguments, turns=turns)
    return [
        {
            "case": name,
            "kernel": position,
            "statements": ", ".join(kernel.statements),
            "predicted_us": _rounded(kernel.predicted),
            "measured_us": _rounded(kernel.measured.best),
            "bound_us": _rounded(kernel.bound),
            "ratio": _ratio(kernel.measured.best, kernel.predicted),
        }
        for position, kernel in enumerate(found.kernels)
    ]


def _ratio(measured: float, predicted: float | None) -> float | None:
    return None if predicted is None else float(f"{measured / (predicted + CLOCK):.3g}")


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else float(f"{1e6 * seconds:.4g}")


class Worker:
    """A process with its own number of threads that keeps what it has compiled; it is replaced where it hangs."""

    def __init__(self, threads: int, seconds: float) -> None:
        self.threads, self.seconds = threads, seconds
        self.ready: list[str] = []
        self.pool = self._started()

    def _started(self) -> Any:
        os.environ.update(
            dict.fromkeys(THREADS, str(self.threads))
        )  # read where numba is loaded, in the process
        return multiprocessing.get_context("spawn").Pool(1)

    def compile(self, name: str) -> list[Row]:
        """Compile a case; no row, or one that says why it failed."""
        failed = self._answer(name, compiled, name)
        if not isinstance(failed, str):
            self.ready.append(name)
            return []
        return [{"threads": self.threads, "case": name, "failed": failed}]

    def rows(self, name: str, turns: int) -> list[Row]:
        """The rows of a compiled case, or one that says why there are none."""
        found = self._answer(name, judged, name, turns)
        rows = [{"case": name, "failed": found}] if isinstance(found, str) else found
        return [{"threads": self.threads, **row} for row in rows]

    def _answer(self, name: str, work: Callable[..., Any], *given: Any) -> Any:
        """The process's answer, or why there is none."""
        waiting = self.pool.apply_async(work, given)
        try:
            return waiting.get(self.seconds)
        except multiprocessing.TimeoutError:
            self.pool.terminate()
            self.pool = self._started()
            for other in self.ready:  # from the cache
                if other != name:
                    self.pool.apply(compiled, (other,))
            return f"not done after {self.seconds:.0f} s"
        except Exception as error:  # noqa: BLE001  whatever a case fails with is its row
            return f"{type(error).__name__}: {error}".splitlines()[0]


def measure(
    run: Run, names: Iterable[str], threads: int, turns: int, seconds: float, beside: Sequence[str] = ()
) -> None:
    """Compile cases with so many threads, then measure them while a command runs, and keep their rows."""
    worker, known = Worker(threads, seconds), {(row["threads"], row["case"]) for row in run.rows}
    for name in names:
        if (threads, name) not in known:
            start = time.perf_counter()
            run.add(worker.compile(name))
            print(f"{time.perf_counter() - start:6.1f} s  {threads}  {name}", file=sys.stderr, flush=True)
    with running(beside):
        for name in tuple(worker.ready):
            rows = worker.rows(name, turns)
            run.add(rows)
            worst = max(rows, key=_off)
            what = worst.get("failed") or f"worst {worst['ratio']} of {len(rows)}"
            print(f"{threads}  {name}: {what}", file=sys.stderr, flush=True)
    worker.pool.terminate()


def _off(row: Row) -> float:
    """How far a prediction is off, either way; a case that failed is worst."""
    return float("inf") if "failed" in row else abs(log(row["ratio"])) if row.get("ratio") else 0.0


# -- what people read --------------------------------------------------------------------------------------------------


def table(about: Mapping[str, Any], rows: list[Row]) -> str:
    """The rows as Markdown, the worst first."""
    priced = [row for row in rows if row.get("ratio")]
    good = sum(1 / WITHIN <= row["ratio"] <= WITHIN for row in priced)
    share = good / max(1, len(priced))
    lines = list(header("The cost model on trial", about))
    lines += [
        f"{good} of {len(priced)} kernels ({share:.0%}) are within {WITHIN} × of their prediction, "
        f"failed: {quantity(sum('failed' in row for row in rows), 'case')}.",
        "",
        "| case | threads | kernel | predicted µs | measured µs | ratio | bound µs |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=_off, reverse=True):
        if "failed" in row:
            lines.append(f"| {row['case']} | {row['threads']} | {row['failed']} | | | | |")
        else:
            what = row["statements"] if len(row["statements"]) <= 60 else row["statements"][:57] + "…"
            cells_of = (row[key] for key in ("predicted_us", "measured_us", "ratio", "bound_us"))
            lines.append(
                f"| {row['case']} | {row['threads']} | {what} | "
                + " | ".join(map(str, cells_of)) + " |"
            )  # fmt: skip
    return "\n".join(lines) + "\n"


def picture(rows: list[Row], file: Path) -> None:
    """Measured over predicted, a point for each kernel, with the band in which a prediction is right."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    priced = [row for row in rows if row.get("ratio")]
    figure, axes = pyplot.subplots(figsize=(7, 6))
    for group in GROUPS:
        own = [row for row in priced if row["case"].startswith(f"{group}/")]
        if own:
            axes.scatter(
                [row["predicted_us"] for row in own], [row["measured_us"] for row in own], 12, label=group
            )
    every = [row[key] for row in priced for key in ("predicted_us", "measured_us")]
    ends = np.array([min(every), max(every)])
    axes.fill_between(ends, ends / WITHIN, ends * WITHIN, color="0.9", zorder=0)
    axes.plot(ends, ends, color="0.6", linewidth=1, zorder=1)
    axes.set(xscale="log", yscale="log", xlabel="predicted, µs", ylabel="measured, µs")
    for axis in (axes.xaxis, axes.yaxis):
        plain_log_ticks(axis)
    axes.legend()
    figure.tight_layout()
    figure.savefig(file)
    pyplot.close(figure)


def slower(before: list[Row], after: list[Row]) -> Iterator[str]:
    """A line for each case that takes longer than it did, by all its kernels, and for each that fails now."""
    old, new = _by_case(before), _by_case(after)
    for key in old.keys() & new.keys():
        was, now = (_total(rows) for rows in (old[key], new[key]))
        if was is None:
            continue
        label = f"{key[1]}, {key[0]} {'thread' if key[0] == 1 else 'threads'}"
        if now is None:
            yield f"{label}: {new[key][0]['failed']}"
        elif now > SLOWER * was:
            plans = [[row["statements"] for row in rows] for rows in (old[key], new[key])]
            plan = (
                "the same kernels"
                if plans[0] == plans[1]
                else f"{quantity(len(plans[0]), 'kernel')}, now {len(plans[1])}"
            )
            yield f"{label}: {was:.4g} µs, now {now:.4g} µs ({now / was:.2f} ×; {plan})"


def _by_case(rows: list[Row]) -> dict[tuple[int, str], list[Row]]:
    found: dict[tuple[int, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row["threads"], row["case"]), []).append(row)
    return found


def _total(rows: list[Row]) -> float | None:
    return None if "failed" in rows[0] else sum(row["measured_us"] for row in rows)


def main() -> None:
    """Measure, or compare two files."""
    parser = argparse.ArgumentParser(prog="benchmarks.judge", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", type=some_of(GROUPS), default=list(GROUPS), help=f"of {', '.join(GROUPS)}")
    parser.add_argument("--named", default="", metavar="TEXT", help="only cases whose names contain this")
    parser.add_argument("--every", type=int, default=1, metavar="K", help="only each K-th case of a group")
    parser.add_argument("--threads", default="1,2", help="numbers of threads, with commas between")
    parser.add_argument("--turns", type=int, default=7, help="turns of a kernel; the best counts")
    parser.add_argument("--seconds", type=float, default=300.0, help="the longest that a case may take")
    parser.add_argument(
        "--beside", type=shlex.split, default=[], metavar="COMMAND", help="runs while cases are measured"
    )
    parser.add_argument("--out", type=Path, default=FOLDER, metavar="FOLDER")
    parser.add_argument("--resume", action="store_true", help="keep the rows of today's file of this commit")
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("BEFORE", "AFTER"))
    given = parser.parse_args()
    if given.compare is not None:
        before, after = (json.loads(file.read_text(encoding="utf-8"))["rows"] for file in given.compare)
        found = sorted(slower(before, after))
        print("\n".join(found) or "no case became slower")
        raise SystemExit(bool(found))
    names = [
        name
        for group in given.only
        for name in [c.name for c in cases(group) if given.named in c.name][:: given.every]
    ]
    run = Run.begin(given.out, "judge", pf.measure.environment(), given.resume)
    for threads in map(int, given.threads.split(",")):
        measure(run, names, threads, given.turns, given.seconds, given.beside)
    text = table(run.about, run.rows)
    run.path("md").write_text(text, encoding="utf-8")
    picture(run.rows, run.path("svg"))
    print("\n".join(text.splitlines()[:40]))


if __name__ == "__main__":
    main()

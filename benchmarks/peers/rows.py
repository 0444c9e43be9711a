"""One workload on every side: built, checked against float64, then timed in turns with ours.

    ours A B …  ours A B …     each letter: a pause, one call that is not counted, then calls timed together for
                               about TURN seconds, by the side's own clock

A ratio is a side's seconds over ours in the same turn, the median over turns: above 1, ours is faster. A peer that is
BEHIND times slower than the fastest in the best of three timings is not called again; its ratio is of those timings.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.peers.references import WrongResult, error, reference
from benchmarks.peers.workloads import Workload
from benchmarks.sides.environments import ENVIRONMENTS
from benchmarks.sides.steering import Missing, Refused, Worker, hand_over, in_turns

OURS = "polyfuse compile"

LABELS = (
    "numpy expressions",
    "torch eager",
    "torch compiled",
    "torch max_autotune",
    "jax jit",
    "onnxruntime session",
    "halide Mullapudi2016",
    "halide Adams2019",
    "iree llvm_cpu",
    "tvm metaschedule",
)
"""The peers, each in its FORMS, which this process cannot import."""

TURN = 0.004
"""Seconds of calls that are timed together, where one takes less."""

BEHIND = 3.0

Row = dict[str, Any]


@dataclass(frozen=True)
class Effort:
    """How long a workload is timed: at most so many turns, and after so many seconds no more, but at least three."""

    turns: int = 25
    seconds: float = 30.0


@contextmanager
def workers(labels: Iterable[str], threads: int) -> Iterator[dict[str, Worker]]:
    """Ours and these peers; their processes, and what was handed over to them, end at the end."""
    with TemporaryDirectory() as path, ExitStack() as stack:
        yield {
            label: stack.enter_context(
                Worker(*label.split(), threads=threads, python=python_of(label), folder=Path(path))
            )
            for label in (OURS, *labels)
        }


def python_of(label: str) -> Path:
    """Ours is where this process is."""
    return Path(sys.executable) if label == OURS else ENVIRONMENTS[label.split()[0]].python


def measured(workload: Workload, sides: Mapping[str, Worker], effort: Effort) -> list[Row]:
    """A row for each side: its times and ratio, or why there is none."""
    arrays = workload.make()
    expected = reference(workload.kind, arrays)
    for folder in {worker.folder for worker in sides.values()}:
        hand_over(folder, workload.name, arrays)
    rows = {label: built(workload, worker, expected) for label, worker in sides.items()}
    right = {label: worker for label, worker in sides.items() if "error" in rows[label]}
    for label, taken in timed(right, effort).items():
        rows[label].update(taken)
    return [
        {"workload": workload.name, "threads": worker.threads, "side": label, **rows[label]}
        for label, worker in sides.items()
    ]


def built(workload: Workload, worker: Worker, expected: tuple[Any, ...]) -> Row:
    """Seconds to build and of the first run, and the error; or why the side does not count."""
    try:
        seconds = worker.build(workload.kind, workload.name)
        wrong = error(workload, worker.results(workload.name), expected)
    except Missing:
        return {"missing": "not written"}
    except (Refused, WrongResult) as why:
        return {"missing": str(why)}
    return {**{name: round(value, 3) for name, value in seconds.items()}, "error": float(f"{wrong:.2g}")}


def timed(sides: Mapping[str, Worker], effort: Effort) -> dict[str, Row]:
    """Milliseconds and ratios."""
    first = in_turns({label: worker.seconds for label, worker in sides.items()}, 3, sides.values())
    once = {label: min(seconds) for label, seconds in first.items()}
    fastest = min(once.values(), default=0.0)
    left = {label for label in once if once[label] > BEHIND * fastest and label != OURS}
    calls = {label: max(1, round(TURN / once[label])) for label in sides}
    taken = in_turns(
        {
            label: partial(worker.seconds, calls[label])
            for label, worker in sides.items()
            if label not in left
        },
        effort.turns,
        sides.values(),
        effort.seconds,
    )
    rows = {label: summed_up(seconds, taken.get(OURS, [])) for label, seconds in taken.items()}
    before = [once[OURS]] if OURS in once else []
    return rows | {label: summed_up([once[label]], before) for label in left}


def summed_up(seconds: list[float], ours: list[float]) -> Row:
    """Of the turns of a side; `ours` at the same places, or none."""
    row: Row = {"median_ms": digits(1e3 * statistics.median(seconds)), "best_ms": digits(1e3 * min(seconds))}
    if ours:
        row["ratio"] = digits(statistics.median(a / b for a, b in zip(seconds, ours, strict=True)))
    return {**row, "turns": len(seconds)}


def digits(value: float) -> float:
    return float(f"{value:.4g}")


def failed(workload: str, threads: int, missing: Mapping[str, str], labels: Sequence[str]) -> list[Row]:
    """Rows for the peers that did not install."""
    return [
        {
            "workload": workload,
            "threads": threads,
            "side": label,
            "missing": f"did not install: {missing[name]}",
        }
        for label in labels
        if (name := label.split()[0]) in missing
    ]

"""A run: parts one after the other, each at most so many minutes and gone on with where the last run of it stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import polyfuse as pf
from benchmarks import results
from benchmarks.gpu.ahead import Ahead, built_ahead, pieces_of
from benchmarks.gpu.parts import ALL, PARTS, Chosen, Part, Subject
from benchmarks.gpu.subject import Row, on_gpu, on_stand_in

PEERS = ("torch", "triton", "cupy-cuda13x", "nvidia-cublas", "nvidia-cudnn-cu13")

NO_FIGURE = "a dry run on a stand-in on the CPU: no figure of a GPU"

Say = Callable[[str], None]
Measure = Callable[[Subject], list[Row]]


def run(
    names: Sequence[str], facts: Mapping[str, Any] | None, folder: Path, minutes: float, turns: int,
    seed: int, resume: bool, say: Say, processes: int = 1, chosen: Chosen = ALL,
) -> list[tuple[Part, list[Row], list[str]]]:  # fmt: skip
    """(part, rows, what is left of it) for each name. `facts` are the GPU's; None is the dry run.

    With several `processes` these compile first, for at most as many minutes as a part has.
    """
    ahead: Ahead = {}
    if processes > 1:
        ahead = built_ahead(names, "gpu" if facts else "lockstep", processes, 60 * minutes, chosen)
        say(f"compiled ahead: {len(ahead)} of {len(pieces_of(names, facts is None, chosen))}")

    def measure(subject: Subject) -> list[Row]:
        rows = on_gpu(subject, seed, turns, chosen) if facts else on_stand_in(subject, seed)
        known = ((row, ahead.get((row["workload"], row["side"]))) for row in rows)
        return [row if took is None else {**row, "ahead_s": took} for row, took in known]

    about = {**pf.measure.environment(), "seed": seed, "measured": facts is not None}
    if facts is None:
        about["device"] = NO_FIGURE
    else:
        from benchmarks.gpu import device

        device.prepare()
        about["device"] = {**facts, **device.facts()}
        about["versions"] = {**pf.measure.versions(), **dict(_versions())}
    done = []
    for name in names:
        part = PARTS[name]
        begun = results.Run.begin(folder, f"gpu-{name}" if facts else f"gpu-{name}-dry", about, resume)
        say(f"{name}: {part.wanted}")
        subjects = [one for one in part.subjects(facts is None) if chosen.measured(one.name)]
        left = measured(begun, subjects, measure, 60 * minutes, say)
        done.append((part, begun.rows, left))
    return done


def measured(
    begun: results.Run, subjects: Sequence[Subject], measure: Measure, seconds: float, say: Say
) -> list[str]:
    """Add the rows of the subjects that are not there yet, while the longest so far still fits; the names of the rest.

    A subject whose measuring raises (a broken GPU context, no memory) gets a row that says so and ends the part: the
    next run, in a process of its own, goes on behind it.
    """
    there = {row["workload"] for row in begun.rows}
    missing = [subject for subject in subjects if subject.name not in there]
    start, longest = time.monotonic(), 0.0
    for position, subject in enumerate(missing):
        before = time.monotonic()
        if before - start + longest > seconds:
            return [rest.name for rest in missing[position:]]
        try:
            rows, broken = measure(subject), False
        except Exception as why:  # noqa: BLE001 — its row says what it was
            rows, broken = [failed(subject, why)], True
        begun.add(rows)
        for row in rows:
            say(line(row))
        if broken:
            return [rest.name for rest in missing[position + 1 :]]
        longest = max(longest, time.monotonic() - before)
    return []


def failed(subject: Subject, why: Exception) -> Row:
    said = f"{type(why).__name__}: {why}"
    return {"workload": subject.name, "side": "polyfuse", "measured": False, "missing": said}


def line(row: Row) -> str:
    """A row, while it is measured."""
    start = f"  {row['workload']:<28} {row['side']:<30}"
    if "missing" in row:
        return f"{start} {row['missing']}"
    if not row["measured"]:
        return f"{start} error {row['error']:.1e}, {row['launches']} launches, compiled in {row['build_s']} s"
    said = ", ".join(f"{name} {row[name]}" for name in ("tflops", "of_copy", "ratio") if name in row)
    return f"{start} {row['median_us']} µs, host {row['host_us']} µs; {said}"


def _versions() -> Iterator[tuple[str, str]]:
    for name in PEERS:
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            continue

"""Operators run one by one, in bulk and as one graph: launches and waits counted, host time a call; training steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import polyfuse as pf
from benchmarks import results
from benchmarks.fresh import fresh
from papers.claims import Claim, judged, span
from papers.mxnet_13890_bulking import steps
from papers.mxnet_13890_bulking.devices import OnDevice
from papers.mxnet_13890_bulking.figure import draw
from papers.mxnet_13890_bulking.networks import Segment, one_by_one
from papers.places import Place, place

Row = dict[str, Any]

CPU = ((8, 1, 16), (8, 1, 64), (8, 32, 64))
GPU = ((8, 1, 64), (8, 32, 256), (8, 32, 1024))
SMALL = ((4, 2, 16),)
"""Layers, batch, width: where the host's time counts, and where it does less."""

TRAINED = tuple(steps.Trained(28, (16, 32), batch) for batch in (1, 8, 32))
"""The convolutions of a network for MNIST, in training."""

QUICK = steps.Trained(4, (), 2)

TURNS = 25


def run(target: str, quick: bool, out: Path) -> list[Claim]:
    """Every segment with one output and with one a layer; results checked, rows and a figure into `out`.

    A quick run measures its training steps beside the segments: three turns of the smallest sizes are no measurement.
    """
    where = place(target)
    if target != "cpu":
        return claims(segments(where, SMALL if quick or not where.timed else GPU, 3 if quick else TURNS, out))
    if quick:
        with ThreadPoolExecutor() as processes:
            ahead = processes.submit(beside, QUICK, where, 3)
            return [*claims(segments(where, SMALL, 3, out)), *trained(where, [ahead.result], out)]
    measures = [partial(steps.measured, each, where, TURNS) for each in TRAINED]
    return [*claims(segments(where, CPU, TURNS, out)), *trained(where, measures, out)]


def beside(network: steps.Trained, where: Place, turns: int) -> list[Row]:
    """The rows of a network's training steps, measured in a process of its own."""
    numbers = map(str, (network.side, network.batch, turns, *network.filters))
    rows: list[Row] = fresh("papers.mxnet_13890_bulking.steps", where.target, *numbers, threads=1)
    return rows


def segments(where: Place, shapes: Sequence[tuple[int, int, int]], turns: int, out: Path) -> list[Row]:
    """Measure segments of these layers, batches and widths; their rows and figure go into `out`."""
    kept = results.Run.begin(out, f"modes-{where.target}", where.about)
    for shape in shapes:
        for several in (False, True):
            segment = Segment(*shape, several)
            measure = on_cpu if where.target == "cpu" else on_gpu
            kept.add({**about(segment), **row} for row in measure(segment, where, turns))
            for row in kept.rows[-3:]:
                print(line(row), flush=True)
    draw(kept.rows, kept.about, kept.path("svg"))
    return kept.rows


def trained(where: Place, measures: Sequence[Callable[[], list[Row]]], out: Path) -> list[Claim]:
    """The claims about training steps; their rows go into `out`, network after network."""
    kept = results.Run.begin(out, f"training-{where.target}", where.about)
    for measure in measures:
        kept.add(measure())
        for row in kept.rows[-3:]:
            print(steps.line(row), flush=True)
    return steps.claims(kept.rows)


def claims(rows: list[Row]) -> list[Claim]:
    """Compare each claim of the source with these rows."""
    of = {mode: [row for row in rows if row["mode"] == mode] for mode in ("per kernel", "bulked")}
    waits = {mode: sorted({row["waits"] for row in each}) for mode, each in of.items()}
    open_ended = [row for row in of["bulked"] if row["outputs"] > 1]
    gains = [row["ratio_to_bulked"] for row in of["per kernel"] if "ratio_to_bulked" in row]
    return [
        Claim(
            "A segment waits once, at its end.",
            "one wait an operator → one a segment",
            f"{', '.join(map(str, waits['per kernel']))} → {', '.join(map(str, waits['bulked']))} waits a call",
            "holds" if waits["bulked"] == [1] else "does not hold",
        ),
        Claim(
            "An operator whose result is an output does not end a segment.",
            "segments no longer end there",
            f"1 wait for {open_ended[0]['outputs']} outputs of {open_ended[0]['operators']} operators",
            "holds" if all(row["waits"] == 1 for row in open_ended) else "does not hold",
        ),
        Claim(
            "A bulked segment is faster.",
            "1.09 × (batch 32, one GPU), 1.04 × (eight GPUs), ResNet-50 in training",
            f"{span(gains)}, small dense networks, forward",
            judged(gains, 1.0),
        ),
    ]


def about(segment: Segment) -> Row:
    return {
        "layers": segment.layers,
        "batch": segment.batch,
        "width": segment.width,
        "outputs": segment.layers if segment.open else 1,
        "operators": segment.operators,
    }


def on_cpu(segment: Segment, where: Place, turns: int) -> list[Row]:
    """Each operator called from Python; all kernels behind one native entry; and the kernels fused too.

    `submissions` is how often the host starts native code, `waits` how often it comes back. Planned for one core, and
    timed by the processor's clock.
    """
    options = {**where.options, "machine": replace(pf.Machine.detect(), units=1)}
    x = np.random.default_rng(0).standard_normal((segment.batch, segment.width), np.float32)
    outs = tuple(np.empty_like(x) for _ in segment.reference(x))
    out = outs if segment.open else outs[0]
    unfused = pf.compile(segment.nest(), fuse=False, **options)
    fused = pf.compile(segment.nest(), **options)
    singly = one_by_one(segment, options)
    candidates: dict[str, Callable[[], Any]] = {
        "per kernel": lambda: singly(x),
        "bulked": lambda: unfused(x, out=out),
        "bulked and fused": lambda: fused(x, out=out),
    }
    kernels = [segment.operators, unfused.report().launches, fused.report().launches]
    assert kernels[1] == segment.operators, "outputs inside a segment do not break it"
    rows = []
    for (mode, call), count in zip(candidates.items(), kernels, strict=True):
        for array in outs:
            array.fill(np.nan)
        answer = call()
        check(segment, x, answer if isinstance(answer, tuple) else (answer,))
        crossings = segment.operators if mode == "per kernel" else 1
        rows.append({"mode": mode, "kernels": count, "submissions": crossings, "waits": crossings})
    timed(rows, candidates, turns, time.process_time)
    return rows


def on_gpu(segment: Segment, where: Place, turns: int) -> list[Row]:
    """Waiting after each kernel; after the last; and one graph. Counted by what stands between us and the stream."""
    x = np.random.default_rng(0).standard_normal((segment.batch, segment.width), np.float32)
    options = {**where.options, "device": "gpu" if where.timed else "none"}
    segment_here = OnDevice(pf.compile(segment.nest(), fuse=False, **options))
    assert len(segment_here.launches) == segment.operators, "outputs inside a segment do not break it"
    rows = []
    for mode, call in segment_here.modes().items():
        segment_here.put(x=x)
        segment_here.host.reset()
        call()
        counts = {"submissions": segment_here.host.submissions, "waits": segment_here.host.waits}
        check(segment, x, segment_here.outputs())
        rows.append({"mode": mode, "kernels": len(segment_here.launches), **counts})
    expected = {"per kernel": (segment.operators,) * 2, "bulked": (segment.operators, 1), "one graph": (1, 1)}
    assert {row["mode"]: (row["submissions"], row["waits"]) for row in rows} == expected
    if where.timed:
        timed(rows, segment_here.modes(), turns, time.perf_counter)
    return rows


def check(segment: Segment, x: Any, found: tuple[Any, ...]) -> None:
    """Against NumPy in float64."""
    exact = segment.reference(x.astype(np.float64))
    assert len(found) == len(exact)
    for ours, theirs in zip(found, exact, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4 * float(np.abs(theirs).max()))


def timed(
    rows: list[Row], candidates: dict[str, Callable[[], Any]], turns: int, clock: pf.measure.Clock
) -> None:
    """Times in turns, and what one kernel costs beyond what it costs in bulk."""
    times = pf.measure.in_turns(candidates, turns, clock=clock)
    bulk = times["bulked"].median
    for row in rows:
        timing = times[row["mode"]]
        row |= {
            "median_us": round(1e6 * timing.median, 3),
            "best_us": round(1e6 * timing.best, 3),
            "ratio_to_bulked": round(timing.median / bulk, 3),
            "beyond_bulked_us_a_kernel": round(1e6 * (timing.median - bulk) / row["kernels"], 3),
            "turns": turns,
        }


def line(row: Row) -> str:
    """A row for a person."""
    counts = f"{row['kernels']} kernels, {row['submissions']} submissions, {row['waits']} waits"
    spent = f", {row['median_us']} µs, {row['ratio_to_bulked']:.2f} × bulked" if "median_us" in row else ""
    return (
        f"{row['layers']} × {row['width']}, batch {row['batch']}, {row['outputs']} outputs, "
        f"{row['mode']}: {counts}{spent}"
    )

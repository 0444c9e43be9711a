"""Two pipelines of PolyMage: the shape of its generated code beside ours, and the times of both on one core."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import polyfuse as pf
from benchmarks import results
from papers.claims import Claim, judged, span
from papers.mullapudi_2015_polymage import source
from papers.mullapudi_2015_polymage.figure import draw
from papers.mullapudi_2015_polymage.source import GENERATED, Shape
from papers.pipelines import PIPELINES, Pipeline
from papers.places import place
from polyfuse.strategy import plan_for

Row = dict[str, Any]

QUICK: Mapping[str, Mapping[str, int]] = {"harris": {"M": 516, "N": 516}}
"""The pipelines and sizes of a quick run."""

TURNS, QUICK_TURNS = 15, 3
BOUND = 1e-4
"""The largest difference between results, relative to the largest element."""


def run(target: str, quick: bool, out: Path) -> list[Claim]:
    """The shape of both sides' schedules, and their times; rows and a figure into `out`."""
    where = place(target)
    kept = results.Run.begin(out, f"pipelines-{target}", where.about)
    timed = where.timed and target == "cpu"
    for name in GENERATED:
        pipeline = PIPELINES[name]
        shapes = {"PolyMage": GENERATED[name].shape, "ours": ours(pipeline, pipeline.large)}
        sizes = QUICK.get(name) if quick else pipeline.large
        times = measured(name, pipeline, sizes, QUICK_TURNS if quick else TURNS) if timed and sizes else {}
        kept.add(rows(name, shapes, times))
    for row in kept.rows:
        print(line(row), flush=True)
    draw(kept.rows, kept.about, kept.path("svg"))
    return claims(kept.rows)


def ours(pipeline: Pipeline, sizes: Mapping[str, int]) -> Shape:
    """The shape of the strategy's schedule for a CPU of two cores (zen5), as PolyMage's is one for any machine."""
    nest = pipeline.nest.with_sizes(dict(sizes))
    plan = plan_for(nest, pf.Machine.preset("zen5"))
    schedule = plan.schedule.rooted_in(nest)
    steps = [step for step in schedule.steps if step.verb == "rewrite" and step.args[0] == "overlap"]
    tiles: dict[str, int] = {}
    for step in steps:
        ((_, tiles),) = step.args[1].items()
    kept = [t for t in schedule.nest.tensors if t.role == "temporary"]
    rank = next(t.rank for t in pipeline.nest.tensors if t.role == "temporary")
    widest = max((prod(int(side) for side in t.shape[-rank:]) for t in kept), default=1)
    once = prod(tiles.values()) if tiles else widest
    tile = tuple(size for _, size in sorted(tiles.items()) if size > 1)
    return Shape(len(plan.groups), tile, len(kept), widest / once)


def measured(name: str, pipeline: Pipeline, sizes: Mapping[str, int], turns: int) -> dict[str, float]:
    """Milliseconds of one core by who ran it: ours, ours stage by stage, and the source's two forms where they are."""
    machine = replace(pf.Machine.detect(), units=1)
    given = pipeline.inputs(sizes, np.random.default_rng(0))
    (result,) = (t.name for t in pipeline.nest.outputs)
    apart = {"overlapped tiling": False}
    nets = {
        "ours": pf.compile(pipeline.nest, target="cpu", machine=machine, sizes=sizes),
        "ours, stage by stage": pf.compile(
            pipeline.nest, target="cpu", machine=machine, sizes=sizes, fuse=False, force=apart
        ),
    }
    calls: dict[str, Callable[[], object]] = {}
    found: dict[str, Any] = {}
    for who, net in nets.items():
        own = {**given, result: np.zeros_like(given[result])}
        calls[who] = lambda net=net, own=own: net(**own)
        found[who] = own[result]
    with TemporaryDirectory() as folder:
        if source.available():
            call = {"harris": source.harris, "unsharp": source.unsharp}[name]
            for who, form in {"PolyMage": "", "PolyMage, stage by stage": "_naive"}.items():
                function = GENERATED[name].built(form, Path(folder))
                image = np.zeros(
                    given["image"].shape if name == "harris" else given[result].shape, np.float32
                )
                calls[who] = lambda function=function, image=image: call(function, given, image)
                found[who] = image[2:-2, 2:-2] if name == "harris" else image
        times = pf.measure.in_turns(calls, turns, clock=time.process_time)
    first = found["ours"]
    for who, each in found.items():
        inside = (slice(None), slice(2, -2), slice(2, -2)) if name == "unsharp" else ...
        assert abs(each[inside] - first[inside]).max() <= BOUND * abs(first).max(), f"{name}, {who}"
    return {who: 1e3 * timing.best for who, timing in times.items()}


def rows(name: str, shapes: Mapping[str, Shape], times: Mapping[str, float]) -> Iterator[Row]:
    """A row for each side, and one for each form that was measured."""
    for who in dict.fromkeys((*shapes, *times)):
        shape = vars(shapes[who]) if who in shapes else {}
        row = {"nests": "", "arrays": "", "again": "", **shape}
        row |= {
            "tile": " × ".join(map(str, shape.get("tile", ()))),
            "again": round(shape.get("again", 0.0), 3),
        }
        yield {"pipeline": name, "who": who, **row, "ms": round(times.get(who, 0.0), 3)}


def claims(found: list[Row]) -> list[Claim]:
    """Compare each claim of the source with these rows."""
    by = {(row["pipeline"], row["who"]): row for row in found}
    names = list(GENERATED)
    own = [by[name, "ours"] for name in names]
    theirs = [by[name, "PolyMage"] for name in names]

    def told(column: str) -> str:
        return ", ".join(f"{name} {row[column]}" for name, row in zip(names, own, strict=True))

    def source_says(column: str) -> str:
        return ", ".join(f"{name} {row[column]}" for name, row in zip(names, theirs, strict=True))

    def gains(fused: str, apart: str) -> list[float]:
        pairs = [(by.get((name, apart), {}).get("ms"), by.get((name, fused), {}).get("ms")) for name in names]
        return [slow / fast for slow, fast in pairs if slow and fast]

    saved = gains("ours", "ours, stage by stage")
    source_saved = gains("PolyMage", "PolyMage, stage by stage")
    beside = gains("ours", "PolyMage")
    return [
        Claim(
            "All stages of a pipeline run in one nest of loops over tiles, found by a model.",
            f"nests: {source_says('nests')}",
            f"nests: {told('nests')}",
            judged([float(a["nests"] == b["nests"]) for a, b in zip(own, theirs, strict=True)], 1.0),
        ),
        Claim(
            "Tiles overlap, and little is computed twice.",
            f"tiles of {source_says('tile')}; computed {source_says('again')} times",
            f"tiles of {told('tile')}; computed {told('again')} times",
            judged([1.1 - float(row["again"]) for row in own], 0.0),
        ),
        Claim(
            "Images between stages take the memory of a tile, and cheap stages none.",
            f"arrays of one tile: {source_says('arrays')}",
            f"arrays of one tile: {told('arrays')}",
            judged([float(a["arrays"] <= b["arrays"]) for a, b in zip(own, theirs, strict=True)], 1.0),
        ),
        Claim(
            "Fusion and tiling gain over stages that run one after the other.",
            f"{span(source_saved)}, its code on one core of this machine"
            if source_saved
            else "its code was not at hand (POLYMAGE=FOLDER)",
            span(saved, "on one core"),
            judged(saved, 1.2),
        ),
        Claim(
            "Up to 1.81 × as fast as schedules tuned by hand in Halide.",
            "up to 1.81 × on 16 cores (abstract)",
            "1.03 to 1.36 × the best of Halide's autoschedulers, four pipelines on one core of a Xeon "
            "(benchmarks/results/pipelines-2026-11-22); "
            "hand-tuned schedules were not at hand",
            "not measured",
        ),
        Claim(
            "Our code takes no longer than PolyMage's (ours).",
            "–",
            f"PolyMage's time is {span(beside)} ours"
            if beside
            else "its code was not at hand (POLYMAGE=FOLDER)",
            judged(beside, 1.0),
        ),
    ]


def line(row: Row) -> str:
    """A row for a person."""
    shape = f": {row['nests']} nest, tiles of {row['tile']}, {row['arrays']} arrays, computed {row['again']} times"
    time_text = f", {row['ms']:.2f} ms" if row["ms"] else ""
    return f"{row['pipeline']}, {row['who']}{shape if row['nests'] else ''}{time_text}"

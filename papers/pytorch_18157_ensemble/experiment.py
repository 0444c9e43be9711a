"""Ensembles of small networks: products and kernels before and after batching, and times beside others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np

import polyfuse as pf
from benchmarks import results
from benchmarks.sides.environments import ENVIRONMENTS
from benchmarks.sides.steering import Worker, hand_over, in_turns
from papers.places import Place, place
from papers.pytorch_18157_ensemble.figure import draw
from papers.pytorch_18157_ensemble.networks import Array, Ensemble

Row = dict[str, Any]

MEMBERS = (2, 4, 8, 10, 16, 32, 64)
LAYERS, WIDTH, BATCH = 4, 64, 32

TURNS = 60
TURN = 0.001
"""Seconds of calls that are timed together: short, so that some of them are not disturbed where others work too."""

TORCH = {
    "torch, apart": "ensemble_apart",
    "torch, batched": "ensemble",
    "torch, vmap": "ensemble_vmap",
}


def run(target: str, quick: bool, out: Path) -> None:
    """Every number of members counted, checked and timed; rows and a figure into `out`."""
    where = place(target)
    small = quick or not where.timed
    kept = results.Run.begin(out, f"members-{target}", where.about)
    odd = counted(Ensemble(3, 2, 8, 4, odd=True), where)
    assert odd["products_after"] == 2, "members that differ in one layer batch the rest"
    for members in (2, 3) if small else MEMBERS:
        ensemble = Ensemble(members, LAYERS, 8, 4) if small else Ensemble(members, LAYERS, WIDTH, BATCH)
        row = counted(ensemble, where)
        rows = (
            [{**row, **each} for each in timed(ensemble, where, small, kept.about)] if where.timed else [row]
        )
        kept.add(rows)
        for each in rows:
            print(line(each), flush=True)
    draw(kept.rows, kept.about, kept.path("svg"))


def counted(ensemble: Ensemble, where: Place) -> Row:
    """Products and kernels before and after; what the batched nest computes checked against float64."""
    nest = pf.rewrite.compose_views(ensemble.nest()).nest
    batched = pf.rewrite.batch(nest).nest
    before, after = products(nest), products(batched)
    assert before == ensemble.layers * ensemble.members
    assert after == ensemble.layers
    net = pf.compile(batched, fuse=False, **where.options)
    kernels = net.report().launches
    if where.target == "cpu":  # what stacks weights ran once, when compiling
        assert kernels == 3 * ensemble.layers + ensemble.odd
    check(ensemble, net)
    return {
        "members": ensemble.members,
        "layers": ensemble.layers,
        "width": ensemble.width,
        "batch": ensemble.batch,
        "products_before": before,
        "products_after": after,
        "kernels_before": 3 * before,
        "kernels_after": kernels,
    }


def products(nest: pf.Nest) -> int:
    return sum(s.name.startswith("mac") for s in nest.statements)


def check(ensemble: Ensemble, call: Callable[[Array], Any]) -> None:
    x = ensemble.arrays()["x"]
    exact = ensemble.numpy("float64")(x.astype(np.float64))
    np.testing.assert_allclose(call(x), exact, rtol=1e-4, atol=1e-5 * float(np.abs(exact).max()))


def timed(ensemble: Ensemble, where: Place, small: bool, about: Row) -> list[Row]:
    """All sides in turns, with one thread: ratios of the best turns, and the median of the turns' ratios."""
    options = (
        {**where.options, "machine": replace(pf.Machine.detect(), units=1)}
        if where.target == "cpu"
        else where.options
    )
    net = pf.compile(ensemble.nest(), **options)
    calls: dict[str, Callable[[Array], Any]] = {
        "polyfuse": net,
        "polyfuse, apart": ensemble.apart(options),
        "numpy, batched": ensemble.numpy(),
    }
    x = ensemble.arrays()["x"]
    for call in calls.values():
        check(ensemble, call)
    sides = {side: partial(seconds, call, x) for side, call in calls.items()}
    with torch_sides(ensemble, small, about) as workers:
        theirs = {side: partial(asked, worker) for side, worker in workers.items()}
        taken = in_turns({**sides, **theirs}, 3 if small else TURNS, workers.values())
    ours = taken["polyfuse"]
    return [
        {
            "side": side,
            "kernels_of_a_call": net.report().launches if side == "polyfuse" else "",
            "median_us": round(1e6 * median(each), 2),
            "best_us": round(1e6 * min(each), 2),
            "ratio_to_ours": round(min(each) / min(ours), 3),
            "median_ratio": round(median(a / b for a, b in zip(each, ours, strict=True)), 3),
            "turns": len(each),
        }
        for side, each in taken.items()
    ]


def seconds(call: Callable[[Array], Any], x: Array) -> float:
    """Of one call, of several timed together after one that is not counted."""
    start = perf_counter()
    call(x)
    calls = max(1, round(TURN / (perf_counter() - start)))
    start = perf_counter()
    for _ in range(calls):
        call(x)
    return (perf_counter() - start) / calls


@contextmanager
def torch_sides(ensemble: Ensemble, small: bool, about: Row) -> Iterator[dict[str, Worker]]:
    """torch in processes of its own, built and checked, if its environment is installed."""
    environment = ENVIRONMENTS["torch"]
    if small or not environment.ready():
        yield {}
        return
    expected = ensemble.numpy("float64")(ensemble.arrays()["x"].astype(np.float64))
    with TemporaryDirectory() as folder:
        hand_over(Path(folder), "ensemble", ensemble.arrays())
        workers = {side: Worker("torch", "eager", 1, environment.python, Path(folder)) for side in TORCH}
        try:
            for side, worker in workers.items():
                worker.build(TORCH[side], "ensemble")
                (found,) = worker.results("ensemble")
                np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
                about["versions"] |= worker.versions
            yield workers
        finally:
            for worker in workers.values():
                worker.end()


def asked(worker: Worker) -> float:
    """A turn, by the side's own clock."""
    return worker.seconds(max(1, round(TURN / worker.seconds())))


def line(row: Row) -> str:
    """A row for a person."""
    counts = f"{row['members']} members: {row['products_before']} products → {row['products_after']}"
    if "side" not in row:
        return f"{counts}, {row['kernels_after']} kernels"
    return f"{counts}; {row['side']}: {row['median_us']} µs, {row['ratio_to_ours']:.2f} × ours"

"""Ensembles of small networks: products and kernels before and after batching, times beside others, and training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import polyfuse as pf
from benchmarks import results
from benchmarks.sides.steering import in_turns
from papers.claims import Claim, judged, span
from papers.places import Place, place
from papers.pytorch_18157_ensemble import training
from papers.pytorch_18157_ensemble.figure import draw
from papers.pytorch_18157_ensemble.networks import Array, Ensemble
from papers.torch_sides import asked, seconds, torch_sides
from polyfuse.errors import quantity

Row = dict[str, Any]

MEMBERS = (2, 4, 8, 10, 16, 32, 64)
LAYERS, WIDTH, BATCH = 4, 64, 32
TRAINED = Ensemble(3, 2, 64, 32), Ensemble(10, 2, 64, 32)
"""Trained on the CPU."""

THRESHOLD = 10
"""From so many members on the source's compiler batched."""

TURNS = 60
TURN = 0.001
"""Seconds of calls that are timed together: short, so that some of them are not disturbed where others work too."""

TORCH = {
    "torch, apart": ("eager", "ensemble_apart"),
    "torch, batched": ("eager", "ensemble"),
    "torch, vmap": ("eager", "ensemble_vmap"),
}


def run(target: str, quick: bool, out: Path) -> list[Claim]:
    """Every number of members counted, checked and timed; rows and a figure into `out`."""
    where = place(target)
    small = quick or not where.timed
    kept = results.Run.begin(out, f"members-{target}", where.about)
    odd = counted(Ensemble(3, 2, 8, 4, odd=True), where)
    assert odd["products_after"] == 2, "members that differ in one layer batch the rest"
    for members in (2,) if small else MEMBERS:
        ensemble = Ensemble(members, 2, 8, 4) if small else Ensemble(members, LAYERS, WIDTH, BATCH)
        row = counted(ensemble, where)
        rows = (
            [{**row, **each} for each in timed(ensemble, where, small, kept.about)] if where.timed else [row]
        )
        kept.add(rows)
        for each in rows:
            print(line(each), flush=True)
    draw(kept.rows, kept.about, kept.path("svg"))
    if target != "cpu":
        return claims(kept.rows)
    steps = results.Run.begin(out, f"training-{target}", where.about)
    for ensemble in (Ensemble(2, 1, 8, 4),) if quick else TRAINED:
        steps.add([training.counted(ensemble, where)])
        print(training.line(steps.rows[-1]), flush=True)
    return [*claims(kept.rows), *training.claims(steps.rows)]


def claims(rows: list[Row]) -> list[Claim]:
    """What the source asks for, beside these rows."""
    counts = {row["members"]: (row["products_before"], row["products_after"]) for row in rows}
    few = {members: counts[members] for members in counts if members < THRESHOLD}
    of = {
        side: [r["ratio_to_ours"] for r in rows if r.get("side") == side]
        for side in ("polyfuse, apart", *TORCH)
    }
    small = [
        r["ratio_to_ours"] for r in rows if r.get("side") == "polyfuse, apart" and r["members"] < THRESHOLD
    ]
    return [
        Claim(
            "An ensemble runs one batched product a layer, for any weights and inputs.",
            "4 products for 4 layers",
            "; ".join(f"{members} members: {a} → {b}" for members, (a, b) in counts.items()),
            "holds" if all(row["products_after"] == row["layers"] for row in rows) else "does not hold",
        ),
        Claim(
            "Batching pays below the threshold of 10 members too.",
            "asked for; the compiler of the time batched nothing there",
            f"{quantity(len(few), 'size')} batched; members one by one: {span(small, 'the time')}",
            judged(small, 1.0),
        ),
        Claim(
            "Batching at compile time beats the members one by one in torch.",
            "expected",
            f"torch: {span(of['torch, apart'], 'our time')}",
            judged(of["torch, apart"], 1.0),
        ),
        Claim(
            "It beats what a user stacks by hand in torch (ours).",
            "–",
            f"torch's baddbmm: {span(of['torch, batched'], 'our time')}",
            judged(of["torch, batched"], 1.0),
        ),
    ]


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
        **ensemble.sizes,
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
    sides = {side: partial(seconds, partial(call, x), TURN) for side, call in calls.items()}
    expected = ensemble.numpy("float64")(x.astype(np.float64))
    with torch_sides(TORCH if not small else {}, "ensemble", ensemble.arrays(), expected, about) as workers:
        theirs = {side: partial(asked, worker, TURN) for side, worker in workers.items()}
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


def line(row: Row) -> str:
    """A row for a person."""
    counts = f"{row['members']} members: {row['products_before']} products → {row['products_after']}"
    if "side" not in row:
        return f"{counts}, {quantity(row['kernels_after'], 'kernel')}"
    return f"{counts}; {row['side']}: {row['median_us']} µs, {row['ratio_to_ours']:.2f} × ours"

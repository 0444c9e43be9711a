"""The convolutional layers of MNIST's network, forward: convolution, bias, ReLU and pooling as one kernel, or apart."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import polyfuse as pf
from benchmarks import results
from papers.flux_558_conv_bias.figure import draw
from papers.flux_558_conv_bias.layers import LAYERS, Layer
from papers.places import Place, place

Row = dict[str, Any]

BATCHES = (100, 1000)
QUICK = Layer(1, 6, 8, pooled=True), 2
TURNS = 15


def run(target: str, quick: bool, out: Path) -> None:
    """Every layer at batch 100 and 1000; results checked, kernels counted, rows and a figure into `out`."""
    where = place(target)
    layers, batches = ((QUICK[0],), (QUICK[1],)) if quick else (LAYERS, BATCHES if where.timed else (2,))
    kept = results.Run.begin(out, f"forward-{target}", where.about)
    for layer in layers:
        for batch in batches:
            kept.add(measured(layer, batch, where, 3 if quick else TURNS))
            for row in kept.rows[-len(FORMS) :]:
                print(line(row), flush=True)
    draw(kept.rows, kept.about, kept.path("svg"))


FORMS = ("one by one", "fused")


def measured(layer: Layer, batch: int, where: Place, turns: int) -> list[Row]:
    """A layer without fusion and with it: what each step computes is checked, its kernels counted, its time taken."""
    options = dict(where.options)
    if where.target == "cpu":
        options["machine"] = replace(pf.Machine.detect(), units=1)
    x = np.random.default_rng(0).standard_normal((batch, *layer.image), np.float32)
    exact = layer.reference(x)
    rows, calls = [], dict[str, Callable[[], Any]]()
    for form in FORMS:
        net = pf.compile(layer.nest(batch), fuse=form == "fused", **options)
        np.testing.assert_allclose(net(x), exact, rtol=1e-4, atol=1e-4)
        calls[form] = lambda net=net: net(x)
        rows.append({**layer.about(), "batch": batch, "form": form, "kernels": kernels_of_a_call(net)})
    assert rows[-1]["kernels"] == 1, "convolution, bias, ReLU and pooling are one kernel"
    if where.timed:
        times = pf.measure.in_turns(calls, turns, clock=time.process_time)
        fused = times["fused"].median
        for row in rows:
            timing = times[row["form"]]
            row |= {
                "median_us": round(1e6 * timing.median, 1),
                "best_us": round(1e6 * timing.best, 1),
                "ratio_to_fused": round(timing.median / fused, 3),
                "turns": turns,
            }
    return rows


def kernels_of_a_call(net: pf.Executable) -> int:
    """The kernels that every call runs; weights are packed once, in kernels that a call does not run."""
    return net.report().launches


def line(row: Row) -> str:
    """A row for a person."""
    spent = f", {row['median_us']} µs, {row['ratio_to_fused']:.2f} × fused" if "median_us" in row else ""
    return f"{row['layer']}, batch {row['batch']}, {row['form']}: {row['kernels']} kernels{spent}"

"""MNIST's convolutional layers: convolution, bias, ReLU and pooling as one kernel or apart, and their gradients."""

from __future__ import annotations

import time
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
from papers.flux_558_conv_bias import gradients
from papers.flux_558_conv_bias.figure import SOURCE, draw
from papers.flux_558_conv_bias.layers import LAYERS, Layer
from papers.places import Place, place
from papers.torch_sides import asked, seconds, torch_sides
from polyfuse.errors import quantity

Row = dict[str, Any]

BATCHES = (100, 1000)
QUICK = Layer(1, 6, 8, pooled=True), 2
BACKWARD = Layer(1, 6, 8, pooled=False)
"""The quick form's layer backward: without pooling it compiles sooner."""
TURNS = 15


def run(target: str, quick: bool, out: Path) -> list[Claim]:
    """Every layer at batch 100 and 1000; results checked, kernels counted, rows and a figure into `out`."""
    where = place(target)
    layers, batches = ((QUICK[0],), (QUICK[1],)) if quick else (LAYERS, BATCHES if where.timed else (2,))
    kept = results.Run.begin(out, f"forward-{target}", where.about)
    for layer in layers:
        for batch in batches:
            rows = measured(layer, batch, where, 3 if quick else TURNS)
            if where.timed and not quick:
                rows += peers(layer, batch, rows[-1], kept.about)
            kept.add(rows)
            for row in rows:
                print(line(row), flush=True)
    backward = results.Run.begin(out, f"backward-{target}", where.about)
    for layer in (BACKWARD,) if quick else layers:
        for batch in batches:
            backward.add([gradients.measured(layer, batch, where, 3 if quick else TURNS)])
            print(gradients.line(backward.rows[-1]), flush=True)
    draw(kept.rows, kept.about, kept.path("svg"))
    return [*claims(kept.rows), *gradients.claims(backward.rows)]


FORMS = ("one by one", "fused")

TORCH = {"torch": "eager", "torch, compiled": "compiled"}

TURN = 0.02
"""Seconds of calls that are timed together beside torch."""


def claims(rows: list[Row]) -> list[Claim]:
    """Compare each claim of the source with these rows."""
    of = {
        form: [r["ratio_to_fused"] for r in rows if r["form"] == form and "ratio_to_fused" in r]
        for form in (*FORMS, *TORCH)
    }
    apart, together = SOURCE
    return [
        Claim(
            "Convolution, bias and activation are one kernel.",
            "one call of cuDNN",
            "1 kernel, found by the search, pooling included",
            "holds"
            if all(row["kernels"] == 1 for row in rows if row["form"] == "fused")
            else "does not hold",
        ),
        Claim(
            "The fused layer takes less time than the library's.",
            f"{apart / together:.2f} × less than cuDNN's convolution with a kernel for bias and activation",
            f"torch: {span(of['torch'], 'our time')}; compiled: {span(of['torch, compiled'], 'our time')}",
            judged([*of["torch"], *of["torch, compiled"]], 1.0),
        ),
        Claim(
            "Bias and activation apart cost time (against our own kernels).",
            "60 % of the forward pass",
            "our separate kernels: " + span(of["one by one"], "the fused kernel's time"),
            judged(of["one by one"], 1.0),
        ),
    ]


def peers(layer: Layer, batch: int, fused: Row, about: Row) -> list[Row]:
    """torch, eager and compiled, in turns with the fused layer; no rows without torch's environment."""
    x = np.random.default_rng(0).standard_normal((batch, *layer.image), np.float32)
    weight, bias = layer.weights()
    net = pf.compile(layer.nest(batch), target="cpu", machine=replace(pf.Machine.detect(), units=1))
    function = "conv_pooled" if layer.pooled else "conv"
    kinds = {label: (form, function) for label, form in TORCH.items()}
    arrays = {"x": x, "weight": weight, "bias": bias}
    with torch_sides(kinds, "layer", arrays, layer.reference(x), about) as workers:
        if not workers:
            return []
        sides = {"fused": partial(seconds, partial(net, x), TURN)}
        sides |= {label: partial(asked, worker, TURN) for label, worker in workers.items()}
        taken = in_turns(sides, TURNS, workers.values())
    return [
        {
            **{key: fused[key] for key in ("layer", "batch")},
            "form": label,
            "kernels": "",
            "median_us": round(1e6 * median(taken[label]), 1),
            "best_us": round(1e6 * min(taken[label]), 1),
            "ratio_to_fused": round(
                median(a / b for a, b in zip(taken[label], taken["fused"], strict=True)), 3
            ),
            "turns": TURNS,
        }
        for label in workers
    ]


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
    kernels = f": {quantity(row['kernels'], 'kernel')}" if row["kernels"] else ""
    return f"{row['layer']}, batch {row['batch']}, {row['form']}{kernels}{spent}"

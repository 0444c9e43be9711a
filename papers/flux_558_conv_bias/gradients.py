"""The backward pass of the layers: gradients of weight and bias, and how much of their time the bias takes.

The bias's gradient is a sum over images and pixels of what the weight's gradient reads. `both` has the two, `weight`
that of the weight alone, and `one pass` only reads the array once, as a sum of everything in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

import polyfuse as pf
from papers.claims import Claim, percent, span
from papers.flux_558_conv_bias.layers import Layer
from papers.places import Place
from polyfuse import nn
from polyfuse.errors import quantity

Row = dict[str, Any]

SHARE = 0.28
"""The part of the GPU's time that the bias's gradient took in the source, at batch 1000."""

MEMORY_SPEED = 1.5
"""Times one pass over the array, which the bias's gradient may take: sums of single channels are rows of pixels."""


def measured(layer: Layer, batch: int, where: Place, turns: int) -> Row:
    """The gradients checked against NumPy in float64, kernels counted, and the bias's part of the time."""
    options = dict(where.options)
    if where.target == "cpu":
        options["machine"] = replace(pf.Machine.detect(), units=1)
    nest = layer.nest(batch)
    both, weight = (pf.compile(pf.vjp(nest, wrt), **options) for wrt in (("w0", "b0"), "w0"))
    rng = np.random.default_rng(1)
    x = rng.standard_normal((batch, *layer.image), np.float32)
    seed = rng.standard_normal(layer.output(batch), np.float32)
    exact = layer.gradients(x.astype(np.float64), seed.astype(np.float64))
    for found, expected in zip(both(x, seed), exact, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4 * float(np.abs(expected).max()))
    row: Row = {
        **layer.about(),
        "batch": batch,
        "form": "gradients",
        "kernels": both.report().launches,
        "one_kernel": any({"bias0_to_b0", "mac0_to_w0"} <= {*kernel.statements} for kernel in both.kernels),
    }
    if not where.timed:
        return row
    slopes = rng.standard_normal((batch, layer.filters, layer.side, layer.side), np.float32)
    whole = pf.compile(pf.lower(nn.sum(nn.input("z", slopes.shape))), **options)
    calls: dict[str, Callable[[], Any]] = {
        "both": partial(both, x, seed),
        "weight": partial(weight, x, seed),
        "one pass": partial(whole, slopes),
    }
    times = pf.measure.in_turns(calls, turns, clock=time.process_time)
    taken = {name: timing.best for name, timing in times.items()}
    bias = max(0.0, taken["both"] - taken["weight"])
    return row | {
        "median_us": round(1e6 * times["both"].median, 1),
        "best_us": round(1e6 * taken["both"], 1),
        "bias_us": round(1e6 * bias, 1),
        "bias_share": round(bias / taken["both"], 3),
        "bias_over_one_pass": round(bias / taken["one pass"], 2),
        "turns": turns,
    }


def claims(rows: Sequence[Row]) -> list[Claim]:
    """The source's figures of the bias's gradient beside ours."""
    own = [row for row in rows if row["form"] == "gradients"]
    inside = [row for row in own if row["one_kernel"]]
    timed = [row for row in own if "bias_share" in row]
    shares = [row["bias_share"] for row in timed]
    passes = [row["bias_over_one_pass"] for row in timed]
    return [
        Claim(
            "The bias's gradient is summed in the kernel of the weight's gradient.",
            "a kernel of its own, also in cuDNN",
            f"in {len(inside)} of {len(own)} rows",
            "holds" if len(inside) == len(own) else "holds in part" if inside else "does not hold",
        ),
        Claim(
            "The bias's gradient takes less of the backward pass.",
            "28 % of the GPU's time at batch 1000",
            percent(shares, "the time of both gradients"),
            "not measured" if not shares else "holds" if max(shares) < SHARE else "holds in part",
        ),
        Claim(
            "It is one pass at memory speed (ours).",
            "asked for",
            span(passes, "the time of one pass over the array"),
            "not measured" if not passes else "holds" if max(passes) <= MEMORY_SPEED else "holds in part",
        ),
    ]


def line(row: Row) -> str:
    """A row for a person."""
    spent = (
        f", {row['best_us']} µs, the bias {100 * row['bias_share']:.0f} % or {row['bias_over_one_pass']} passes"
        if "bias_share" in row
        else ""
    )
    inside = "with the weight's" if row["one_kernel"] else "in a kernel of its own"
    kernels = quantity(row["kernels"], "kernel")
    return f"{row['layer']}, batch {row['batch']}, gradients: {kernels}, the bias's {inside}{spent}"

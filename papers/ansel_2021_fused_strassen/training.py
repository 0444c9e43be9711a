"""The source's future work: forward and backward pass of the networks, with secondary outputs in the fused kernels.

python -m papers.ansel_2021_fused_strassen.training TARGET LAYERS BATCH WIDTH TURNS     one cell, as JSON

A network takes x and the cotangent of its result, and returns the result and the gradients of all weights and biases.
Forward, a layer's fused kernel (suffix, bias, ReLU, the next layer's prefix) then also stores the prefix that the
gradient of the next layer's weights needs. Backward, a fused kernel has the suffix of a gradient, the slope of the ReLU
before it, and the prefixes of the next two products.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

os.environ.pop("OPENBLAS_CORETYPE", None)  # before NumPy loads: its product must suit this CPU

import numpy as np

import polyfuse as pf
from papers.ansel_2021_fused_strassen.cell import BASELINE, VARIANTS, network, same_programs
from papers.claims import Claim, judged, span
from papers.places import Place, place
from polyfuse.errors import quantity
from polyfuse.strategy import plan_for

Row = dict[str, Any]
Array = np.ndarray[Any, Any]


def gradients(layers: int, batch: int, width: int) -> pf.Nest:
    """The result, and the gradients of weights and biases."""
    nest = network(layers, batch, width)
    return pf.vjp(nest, wrt=tuple(nest.constants), values=True)


def counted(layers: int) -> Row:
    """Kernels of a network at 512 × 512 with Strassen's algorithm in every product, forward and backward.

    There is the first prefix, and for each layer its product, its suffix, the sum of its bias, and the product and the
    suffix of its weights' gradient; between two layers the product and the suffix of a gradient; the last suffix goes
    with that of the first layer backward. That is 1 + 5 L + 2 (L - 1) = 7 L - 1.
    """
    nest = gradients(layers, 512, 512)
    for product in [s.name for s in nest.statements if s.name.startswith("mac")]:
        nest = pf.rewrite.bilinear(nest, product, pf.bilinear.strassen).nest
    plan = plan_for(nest, replace(pf.Machine.preset("zen5"), units=1))
    kernels = [group.statements for group, once in zip(plan.groups, plan.once, strict=True) if not once]
    assert len(kernels) == 7 * layers - 1, f"{len(kernels)} kernels for {layers} layers"
    secondary = sum(map(_has_secondary_outputs, kernels))
    assert secondary == 2 * layers, "each forward prefix is stored for the backward pass, and each slope"
    return {"layers": layers, "batch": 512, "width": 512, "kernels": len(kernels), "secondary": secondary}


def _has_secondary_outputs(names: Sequence[str]) -> bool:
    """True if a kernel makes blocks for the gradient of weights, and something else that a product reads next."""
    blocks = [name for name in names if re.fullmatch(r"mac\d+_to_w\d+_[LR]\d", name)]
    return bool(blocks) and len(blocks) < len(names)


def measured(
    where: Place, layers: int, batch: int, width: int, turns: int, variants: Sequence[str] = tuple(VARIANTS)
) -> list[Row]:
    """A row for each variant, checked against float64; variants that are the same program are timed once."""
    nest = gradients(layers, batch, width)
    rng = np.random.default_rng(0)
    x, seed = (rng.standard_normal((batch, width), np.float32) for _ in range(2))
    nets = {name: pf.compile(nest, **where.options, **VARIANTS[name]) for name in variants}
    same = same_programs(nets)
    exact = by_numpy(nest, layers, x.astype(np.float64), seed.astype(np.float64))
    errors = {name: _error(net(x, seed), exact) for name, net in nets.items()}
    assert max(errors.values()) <= 1e-3, f"largest errors {errors}, relative to each array's largest element"
    rows: list[Row] = [
        {
            "layers": layers,
            "batch": batch,
            "width": width,
            "variant": name,
            "launches": net.report().launches,
            "fast_products": sum(" is computed by " in line for line in net.explain().splitlines()),
            "same_program_as": same[name] if same[name] != name else None,
            "largest_error": errors[name],
        }
        for name, net in nets.items()
    ]
    if not where.timed:
        return rows
    own = {name: partial(net, x, seed) for name, net in nets.items() if same[name] == name}
    candidates = {BASELINE: partial(by_numpy, nest, layers, x, seed), **own}
    times = pf.measure.in_turns(candidates, turns, clock=time.process_time)
    times |= {name: times[same[name]] for name in nets}
    for row in rows:
        best = times[row["variant"]].best
        row |= {
            "best_us": round(1e6 * best, 3),
            "numpy_best_us": round(1e6 * times[BASELINE].best, 3),
            "speedup_over_numpy": round(times[BASELINE].best / best, 3),
            "turns": turns,
        }
    return rows


def by_numpy(nest: pf.Nest, layers: int, x: Array, slope: Array) -> list[Array]:
    """The same as a person would write it with NumPy: the result, then gradients in the order of the weights."""
    weights = [(nest.constants[f"w{n}"], nest.constants[f"b{n}"]) for n in range(layers)]
    values = [x]
    for weight, bias in weights:
        values.append(np.maximum(values[-1] @ weight + bias, 0))
    found: list[Array] = []
    for n in reversed(range(layers)):
        slope = slope * (values[n + 1] > 0)
        found = [values[n].T @ slope, slope.sum(0), *found]
        slope = slope @ weights[n][0].T if n else slope
    return [values[-1], *found]


def _error(found: Sequence[Array], exact: Sequence[Array]) -> float:
    """The largest difference, relative to the largest element of each array."""
    pairs = zip(found, exact, strict=True)
    return max(float(np.abs(a - b).max() / max(1.0, np.abs(b).max())) for a, b in pairs)


def claims(kernels: Sequence[Row], rows: Sequence[Row]) -> list[Claim]:
    """The future work that the source names, and what came of it."""
    counts = ", ".join(f"{row['kernels']} for {quantity(row['layers'], 'layer')}" for row in kernels)
    secondary = ", ".join(str(row["secondary"]) for row in kernels)
    best = {
        variant: {
            (r["layers"], r["batch"], r["width"]): r["best_us"]
            for r in rows
            if r["variant"] == variant and "best_us" in r
        }
        for variant in VARIANTS
    }
    over = [r["speedup_over_numpy"] for r in rows if r["variant"] == "auto" and "speedup_over_numpy" in r]
    fast = [best["fused"][cell] / taken for cell, taken in best["strassen"].items()]
    auto = [best["fused"][cell] / taken for cell, taken in best["auto"].items()]
    return [
        Claim(
            "Fused kernels have secondary outputs for the backward pass.",
            "future work",
            f"{counts}, forward and backward, of which {secondary} have them, by the search",
            "holds",
        ),
        Claim(
            "Forward and backward beat the library (ours).",
            "–",
            span(over, "NumPy on one core"),
            judged(over, 1.0),
        ),
        Claim(
            "Strassen's algorithm in every product gains, forward and backward (ours).",
            "–",
            span(fast, "the fused network"),
            judged(fast, 1.0),
        ),
        Claim(
            "Where the model chooses, it does not lose (ours).",
            "–",
            span(auto, "the fused network"),
            judged(auto, 1 / 1.03),
        ),
    ]


def line(rows: Sequence[Row]) -> str:
    """A cell for a person."""
    first = rows[0]
    parts = [
        f"{row['variant']} {quantity(row['launches'], 'launch', 'launches')}"
        + (f", {row['best_us']} µs, {row['speedup_over_numpy']:.2f} × NumPy" if "best_us" in row else "")
        for row in rows
    ]
    return f"forward and backward, {first['layers']} × {first['width']}, batch {first['batch']}: {'; '.join(parts)}"


if __name__ == "__main__":
    target, *numbers = sys.argv[1:]
    print(json.dumps(measured(place(target), *map(int, numbers))))

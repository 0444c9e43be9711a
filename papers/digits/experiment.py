"""Digits that the network never saw: the same predictions as NumPy's, how many are right, and time an image."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import polyfuse as pf
from benchmarks import results
from papers.claims import Claim, judged
from papers.digits.figure import draw
from papers.digits.network import inputs, kept, nest, reference
from papers.places import place

LEAST = 0.95
"""The part of the predictions that must be right."""


def run(target: str, quick: bool, out: Path) -> list[Claim]:
    """Every image once, in batches; asserts equal predictions, and writes rows and a figure of the first digits."""
    where = place(target)
    data = kept()
    batch = 20 if quick else 360 if where.timed else 4
    images, labels = (data[name][: 20 if quick or not where.timed else 360] for name in ("images", "labels"))
    options: dict[str, Any] = dict(where.options)
    if target == "cpu":
        options["machine"] = replace(pf.Machine.detect(), units=1)
    net = pf.compile(nest(batch, data), **options)
    x = inputs(images)
    found = np.concatenate([np.array(net(x[i : i + batch])) for i in range(0, len(x), batch)])
    exact = reference(x, data)
    np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-4)
    predicted = found.argmax(axis=1)
    assert (predicted == exact.argmax(axis=1)).all(), "another prediction than NumPy's"
    right = float((predicted == labels).mean())
    assert quick or not where.timed or right > LEAST
    row: dict[str, Any] = {"images": len(x), "batch": batch, "right": round(right, 4)}
    row["kernels"] = net.report().launches
    if where.timed:
        taken = pf.measure.in_turns(
            {"ours": lambda: net(x[:batch])}, 3 if quick else 25, clock=time.process_time
        )
        row["us_an_image"] = round(1e6 * taken["ours"].median / batch, 3)
    written = results.Run.begin(out, f"digits-{target}", where.about)
    written.add([row])
    print(
        f"{len(x)} images, {100 * right:.1f} % right, as NumPy's; {row['kernels']} kernels a call", flush=True
    )
    draw(images, predicted, labels, written.path("svg"))
    return [
        Claim(
            "The predictions are those of NumPy in float64.", "–", f"for {len(x)} of {len(x)} images", "holds"
        ),
        Claim(
            f"More than {LEAST:.0%} of images that training did not use are recognised.",
            "99.2 % by PyTorch, of 360 images",
            f"{right:.1%} of {len(x)} images",
            judged([right], LEAST),
        ),
    ]

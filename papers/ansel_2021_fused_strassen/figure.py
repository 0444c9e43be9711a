"""The figure: the source's speed-ups over PyTorch above ours over NumPy, a map of batch × width for each depth."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

SOURCE = Path(__file__).parent / "source.csv"

LINES = (
    ("source", "pointwise", "source: fused"),
    ("ours", "fused", "ours: fused"),
    ("source", "strassen", "source: Strassen"),
    ("ours", "strassen", "ours: Strassen"),
    ("ours", "auto", "ours: auto"),
)
"""Whose, which variant, and what the figure calls it. The source's are on a GTX 1070, over PyTorch 1.7.1."""

Speedups = Mapping[tuple[str, str, int, int, int], float]
"""By whose, variant, layers, batch, width."""


def speedups(rows: Sequence[dict[str, Any]]) -> Speedups:
    """The source's and ours."""
    found: dict[tuple[str, str, int, int, int], float] = {}
    with SOURCE.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            cell = int(row["layers"]), int(row["batch"]), int(row["hidden"])
            found["source", row["variant"], *cell] = float(row["speedup_over_pytorch_1_7_1"])
    for row in rows:
        if "speedup_over_numpy" in row:
            found["ours", row["variant"], row["layers"], row["batch"], row["width"]] = row[
                "speedup_over_numpy"
            ]
    return found


def draw(rows: Sequence[dict[str, Any]], about: Mapping[str, Any], path: Path) -> None:
    """Blue where a variant is faster than the library it is compared with, red where it is slower.

    Depths that were not run, as in a quick run, are left out.
    """
    from matplotlib import rc_context
    from matplotlib.colors import TwoSlopeNorm
    from matplotlib.figure import Figure

    values = speedups(rows)
    batches, widths = (sorted({key[n] for key in values}) for n in (3, 4))
    every = sorted({key[2] for key in values})
    depths = [
        depth for depth in every if any(key[0] == "ours" and key[2] == depth for key in values)
    ] or every
    figure = Figure(
        figsize=(3.4 * len(depths) + 1.2, 0.28 * len(batches) * len(LINES) + 4), layout="constrained"
    )
    shown = None
    for (whose, variant, label), across in zip(
        LINES, figure.subplots(len(LINES), len(depths), squeeze=False), strict=True
    ):
        for depth, axes in zip(depths, across, strict=True):
            cells = [[values.get((whose, variant, depth, b, w), np.nan) for w in widths] for b in batches]
            shown = axes.imshow(np.log2(cells), cmap="RdBu", norm=TwoSlopeNorm(0, -1.5, 1.5), aspect="auto")
            for (i, j), ratio in np.ndenumerate(np.array(cells)):
                if np.isfinite(ratio):
                    dark = abs(np.log2(ratio)) > 1
                    colour = "white" if dark else "black"
                    axes.text(j, i, f"{ratio:.2f}", ha="center", va="center", fontsize=6, color=colour)
            axes.set_xticks(range(len(widths)), widths, fontsize=6)
            axes.set_yticks(range(len(batches)), batches, fontsize=6)
            axes.set_title(f"{label}, {depth} layers" if depth > 1 else f"{label}, 1 layer", fontsize=8)
        across[0].set_ylabel("batch", fontsize=7)
    for axes in figure.axes[-len(depths) :]:
        axes.set_xlabel("width", fontsize=7)
    if shown is not None:
        figure.colorbar(
            shown, ax=figure.axes, label="log₂ speed-up over PyTorch (source), NumPy (ours)", shrink=0.5
        )
    figure.suptitle(f"{about['cpu']}, one thread, {about['device']}, {str(about['date'])[:10]}", fontsize=9)
    with rc_context({"svg.fonttype": "none"}):  # as text, not as outlines of 700 numbers
        figure.savefig(path)

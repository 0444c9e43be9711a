"""The figure: for each layer and batch, time of separate kernels over that of one; or kernels, where none was taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from polyfuse.show.log_ticks import plain_log_ticks

SOURCE = 184.91 + 98.559, 108.64
"""The source's GPU time of 2350 forward convolutions in ms: bias and activation apart, and in one call."""


def draw(rows: Sequence[Mapping[str, Any]], about: Mapping[str, Any], path: Path) -> None:
    """Bars for each form of each layer; a line where the source's ratio is."""
    from matplotlib.figure import Figure

    was_timed = all("ratio_to_fused" in row for row in rows)
    key = "ratio_to_fused" if was_timed else "kernels"
    cells = list(dict.fromkeys((row["layer"], row["batch"]) for row in rows))
    forms = list(dict.fromkeys(row["form"] for row in rows))
    figure = Figure(figsize=(1.1 * len(cells) + 3, 4), layout="constrained")
    axes = figure.subplots()
    for number, form in enumerate(forms):
        own = [row for row in rows if row["form"] == form and row[key] != ""]
        heights = [row[key] for row in own]
        places = [cells.index((row["layer"], row["batch"])) + 0.8 * number / len(forms) for row in own]
        bars = axes.bar(places, heights, 0.75 / len(forms), label=form)
        written = axes.bar_label(bars, fmt="%.2f" if was_timed else "%d", fontsize=7, padding=2)
        for text in written:  # above the source's lines, which would strike them through
            text.set(zorder=4, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6})
    if was_timed:
        apart, together = SOURCE
        axes.axhline(apart / together, color="black", linestyle="--", linewidth=0.8, label="source, a GPU")
        axes.set(ylabel="time / fused", yscale="log")
        plain_log_ticks(axes.yaxis)
    else:
        axes.set_ylabel("kernels a call")
    axes.set_xticks([n + 0.2 for n in range(len(cells))], [f"{a}\nbatch {b}" for a, b in cells], fontsize=6)
    axes.margins(y=0.1)
    figure.legend(fontsize=7, loc="outside right upper")
    axes.set_title(f"{about['device']}; {about['cpu']}, {str(about['date'])[:10]}", fontsize=8)
    figure.savefig(path)

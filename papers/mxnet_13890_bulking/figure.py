"""The figure: for each segment, time over the bulked call's, or submissions and waits where nothing was timed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from polyfuse.show.log_ticks import plain_log_ticks

SOURCE = {"batch 32, one GPU": 620 / 570, "batch 128, eight GPUs": 5910 / 5700}
"""The source's images/s after over before, ResNet-50 v1d, training."""


def draw(rows: Sequence[Mapping[str, Any]], about: Mapping[str, Any], path: Path) -> None:
    """Bars by mode for each segment; lines where the source's unbulked times stand."""
    from matplotlib.figure import Figure

    was_timed = all("ratio_to_bulked" in row for row in rows)
    key = "ratio_to_bulked" if was_timed else "waits"
    segments = list(dict.fromkeys((r["layers"], r["width"], r["batch"], r["outputs"]) for r in rows))
    modes = list(dict.fromkeys(row["mode"] for row in rows))
    figure = Figure(figsize=(1.5 * len(segments) + 3, 4), layout="constrained")
    axes = figure.subplots()
    for number, mode in enumerate(modes):
        heights = [row[key] for row in rows if row["mode"] == mode]
        places = [n + 0.8 * number / len(modes) for n in range(len(segments))]
        bars = axes.bar(places, heights, 0.75 / len(modes), label=mode)
        written = axes.bar_label(bars, fmt="%.2f" if was_timed else "%d", fontsize=7, padding=2)
        for text in written:  # above the source's lines, which would strike them through
            text.set(zorder=4, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6})
    if was_timed:
        for style, (label, ratio) in zip(("--", ":"), SOURCE.items(), strict=True):
            axes.axhline(ratio, color="black", linestyle=style, linewidth=0.8, label=f"source, {label}")
        axes.set(yscale="log", ylabel="time / bulked")
        plain_log_ticks(axes.yaxis)
    else:
        axes.set_ylabel("waits a call")
    names = [f"{n} × {w}\nbatch {b}\n{o} output{'s' * (o > 1)}" for n, w, b, o in segments]
    axes.set_xticks([n + 0.27 for n in range(len(segments))], names, fontsize=7)
    axes.margins(y=0.1)
    figure.legend(fontsize=7, loc="outside right upper")
    axes.set_title(f"{about['device']}; {about['cpu']}, {str(about['date'])[:10]}", fontsize=8)
    figure.savefig(path)

"""The figure: milliseconds of each side for each pipeline, fused and stage by stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

WHO = {
    "ours": "#f58518",
    "ours, stage by stage": "#f9c48f",
    "PolyMage": "#4c78a8",
    "PolyMage, stage by stage": "#9ecae1",
}


def draw(rows: Sequence[Mapping[str, Any]], about: Mapping[str, Any], path: Path) -> None:
    """A panel for each pipeline: bars of what was measured, each with its tiles."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row["pipeline"] for row in rows))
    figure = Figure(figsize=(8.5, 1.2 + 1.5 * len(names)), layout="constrained")
    for axes, name in zip(figure.subplots(len(names), 1, squeeze=False)[:, 0], names, strict=True):
        own = {row["who"]: row for row in rows if row["pipeline"] == name}
        shown = [who for who in WHO if who in own]
        bars = axes.barh(
            range(len(shown)), [own[who]["ms"] for who in shown], 0.7, color=[WHO[who] for who in shown]
        )
        texts = [
            (f"{own[who]['ms']:.2f} ms" if own[who]["ms"] else "not measured")
            + (f"; tiles of {own[who]['tile']}" if own[who]["tile"] else "")
            for who in shown
        ]
        axes.bar_label(bars, texts, padding=3, fontsize=8)
        axes.set_yticks(range(len(shown)), shown, fontsize=8)
        axes.set(title=name, xlabel="ms on one core")
        axes.invert_yaxis()
        axes.margins(x=0.35)
        if not any(own[who]["ms"] for who in shown):
            axes.set(xlim=(0, 1), xticks=[])
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"polyfuse at commit {str(about['commit'])[:8]}", fontsize=8)
    figure.savefig(path)

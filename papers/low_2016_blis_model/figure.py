"""The figure: kc, mc and the sums in registers of the model, of BLIS and of ours, for each CPU and type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from polyfuse.show.log_ticks import plain_log_ticks

WHO = {"model": "#9ecae1", "model, BLIS's tile": "#4c78a8", "BLIS": "#555555", "ours": "#f58518"}

PANELS = {
    "sums in registers": lambda row: row["mr"] * row["nr"],
    "kc (steps of a block)": lambda row: row["kc"],
    "mc (rows of a block)": lambda row: row["mc"],
}


def draw(rows: Sequence[Mapping[str, Any]], about: Mapping[str, Any], path: Path) -> None:
    """A panel for each parameter, a group of bars for each CPU and type; ours has no block of rows."""
    from matplotlib.figure import Figure

    cases = list(dict.fromkeys((row["cpu_kind"], row["dtype"]) for row in rows))
    figure = Figure(figsize=(9.5, 7.5), layout="constrained")
    for axes, (title, value) in zip(figure.subplots(len(PANELS), 1), PANELS.items(), strict=True):
        for number, (who, colour) in enumerate(WHO.items()):
            own = [row for row in rows if row["who"] == who and value(row)]
            places = [cases.index((row["cpu_kind"], row["dtype"])) + 0.2 * number for row in own]
            bars = axes.bar(places, [value(row) for row in own], 0.18, color=colour, label=who)
            axes.bar_label(bars, fmt="%d", fontsize=7)
        axes.set(yscale="log", ylabel=title)
        axes.margins(y=0.15)
        plain_log_ticks(axes.yaxis)
        axes.set_xticks([n + 0.3 for n in range(len(cases))], [f"{a}\n{b}" for a, b in cases], fontsize=8)
    figure.axes[0].legend(
        fontsize=7, ncols=len(WHO), loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False
    )
    figure.suptitle(f"polyfuse at commit {str(about['commit'])[:8]}", fontsize=8)
    figure.savefig(path)

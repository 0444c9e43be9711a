"""The figure: kernels a step before and after, and the time of a sequence in three ways."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from polyfuse.show.log_ticks import plain_log_ticks


def draw(rows: Sequence[Mapping[str, Any]], about: Mapping[str, Any], path: Path) -> None:
    """Kernels on the left; on the right times over the unfused ones, where there are any."""
    from matplotlib.figure import Figure

    timed = [row for row in rows if row["what"] == "sequence"]
    figure = Figure(figsize=(9 if timed else 5, 4), layout="constrained")
    places = figure.subplots(1, 2 if timed else 1, squeeze=False)[0]
    bars(places[0], [row for row in rows if row["what"] == "step"], "kernels", "%d")
    places[0].set(ylabel="kernels a step", yscale="log")
    plain_log_ticks(places[0].yaxis)
    if timed:
        bars(places[1], timed, "ratio_to_unfused", "%.2f")
        places[1].set(ylabel="time of a sequence / unfused")
    figure.suptitle(f"{about['device']}; {about['cpu']}, {str(about['date'])[:10]}", fontsize=8)
    figure.savefig(path)


def bars(axes: Any, rows: Sequence[Mapping[str, Any]], key: str, form: str) -> None:
    """A group of bars for each network, one for each form."""
    networks = list(dict.fromkeys((row["hidden"], row["batch"]) for row in rows))
    forms = list(dict.fromkeys(row["form"] for row in rows))
    for number, name in enumerate(forms):
        heights = [row[key] for row in rows if row["form"] == name]
        found = axes.bar(
            [n + 0.8 * number / len(forms) for n in range(len(networks))],
            heights,
            0.75 / len(forms),
            label=name,
        )
        axes.bar_label(found, fmt=form, fontsize=7)
    axes.set_xticks(
        [n + 0.27 for n in range(len(networks))], [f"2 × {h}\nbatch {b}" for h, b in networks], fontsize=7
    )
    axes.margins(y=0.1)
    axes.legend(fontsize=7, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)

"""The figure: time over ours by the number of members; or products before and after, where nothing was timed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from polyfuse.show.log_ticks import plain_log_ticks


def draw(rows: Sequence[Mapping[str, Any]], about: Mapping[str, Any], path: Path) -> None:
    """A line for each side over K."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    timed = [row for row in rows if "ratio_to_ours" in row]
    for side in dict.fromkeys(row["side"] for row in timed):
        own = [row for row in timed if row["side"] == side]
        axes.plot([r["members"] for r in own], [r["ratio_to_ours"] for r in own], "o-", label=side)
    if not timed:
        for key, label in (("products_before", "before"), ("products_after", "after")):
            axes.plot([r["members"] for r in rows], [r[key] for r in rows], "o-", label=label)
    members = sorted({row["members"] for row in rows})
    axes.set(xscale="log", yscale="log", xlabel="members", ylabel="time / polyfuse" if timed else "products")
    plain_log_ticks(axes.yaxis)
    axes.set_xticks(members, [str(k) for k in members], minor=False)
    axes.minorticks_off()
    axes.axvline(10, color="black", linestyle=":", linewidth=0.8, label="the source's threshold")
    axes.margins(y=0.1)
    figure.legend(fontsize=7, loc="outside right upper")
    axes.set_title(f"{about['device']}; {about['cpu']}, {str(about['date'])[:10]}", fontsize=8)
    figure.savefig(path)

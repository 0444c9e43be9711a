"""Pictures of the results: each peer's time over ours, by workload; the grid of dense networks as maps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.rows import LABELS, OURS, Row
from benchmarks.polybench_table import counted
from polyfuse.show.log_ticks import plain_log_ticks


def draw(rows: Sequence[Row], about: dict[str, Any], path: Path) -> None:
    """A row of points for each workload, a panel for each number of threads; right of the line, ours is faster."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row["workload"] for row in rows))
    numbers = sorted({row["threads"] for row in rows})
    figure = Figure(figsize=(5.2 * len(numbers) + 2.4, 0.3 * len(names) + 1.6), layout="constrained")
    panels = figure.subplots(1, len(numbers), sharey=True, squeeze=False)[0]
    for axes, threads in zip(panels, numbers, strict=True):
        for number, side in enumerate(LABELS):
            of = [row for row in rows if (row["side"], row["threads"]) == (side, threads) and "ratio" in row]
            if of:
                heights = [names.index(row["workload"]) for row in of]
                axes.plot(
                    [row["ratio"] for row in of], heights, "os^vD"[number % 5], color=f"C{number}", label=side
                )
        axes.axvline(1.0, color="black", linewidth=0.8)
        axes.set(xscale="log", xlabel="time / polyfuse's", title=counted(threads))
        plain_log_ticks(axes.xaxis)
        axes.grid(axis="y", color="#dddddd")
        axes.set_yticks(range(len(names)), names)
    panels[0].invert_yaxis()
    handles: dict[str, Any] = {}
    for axes in panels:
        handles |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside right upper", frameon=False)
    figure.suptitle(f"{about['cpu']}, {str(about['date'])[:10]}, commit {str(about['commit'])[:8]}")
    figure.savefig(path)


def draw_grid(rows: Sequence[Row], about: dict[str, Any], path: Path) -> None:
    """Batch × width, a map for each number of layers and peer; blue where ours is faster."""
    from matplotlib.colors import TwoSlopeNorm
    from matplotlib.figure import Figure

    threads = sorted({row["threads"] for row in rows})
    peers = [side for side in dict.fromkeys(row["side"] for row in rows) if side != OURS]
    depths = sorted({row["layers"] for row in rows})
    lines = [(peer, number) for peer in peers for number in threads]
    figure = Figure(figsize=(3.2 * len(depths) + 1.2, 2.9 * len(lines) + 0.6), layout="constrained")
    panels = figure.subplots(len(lines), len(depths), squeeze=False)
    shown = None
    for (peer, number), across in zip(lines, panels, strict=True):
        for depth, axes in zip(depths, across, strict=True):
            of = [r for r in rows if (r["side"], r["threads"], r["layers"]) == (peer, number, depth)]
            widths, batches = (sorted({row[key] for row in rows}) for key in ("width", "batch"))
            ratios = np.full((len(batches), len(widths)), np.nan)
            for row in of:
                ratios[batches.index(row["batch"]), widths.index(row["width"])] = row.get("ratio", np.nan)
            shown = axes.imshow(np.log2(ratios), cmap="RdBu", norm=TwoSlopeNorm(0, -1.5, 1.5), aspect="auto")
            for (i, j), ratio in np.ndenumerate(ratios):
                if np.isfinite(ratio):
                    axes.text(
                        j,
                        i,
                        f"{ratio:.2f}",
                        ha="center",
                        va="center",
                        fontsize=7,
                        color="white" if abs(np.log2(ratio)) > 1 else "black",
                    )
            axes.set_xticks(range(len(widths)), widths)
            axes.set_yticks(range(len(batches)), batches)
            axes.set(title=f"{peer.split()[0]}, {counted(depth, 'layer')}, {counted(number)}", xlabel="width")
        across[0].set_ylabel("batch")
    if shown is not None:
        figure.colorbar(shown, ax=panels, label="log₂ (peer's time / polyfuse's)", shrink=0.6)
    figure.suptitle(f"{about['cpu']}, {str(about['date'])[:10]}, commit {str(about['commit'])[:8]}")
    figure.savefig(path)

"""Dense networks, layers × batch × width, against torch.compile and onnxruntime. One thread and several."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from itertools import product

import polyfuse as pf
from benchmarks import results
from benchmarks.peers.picture import draw_grid
from benchmarks.peers.rows import OURS, Effort, Row, failed, measured, workers
from benchmarks.peers.workloads import mlp
from benchmarks.polybench_table import counted
from benchmarks.sides.environments import install

PEERS = ("torch compiled", "onnxruntime session")

LAYERS = (1, 2, 4, 8)
BATCHES = (2, 4, 8, 16, 32, 64, 128)
WIDTHS = (128, 256, 512, 1024, 2048)
LONG = 4096

Cell = tuple[int, int, int]
"""Layers, batch, width."""


def cells(long: bool) -> list[Cell]:
    """140 cells, 168 with the widest."""
    return list(product(LAYERS, BATCHES, (*WIDTHS, LONG) if long else WIDTHS))


def measure(
    run: results.Run, wanted: Sequence[Cell], labels: Sequence[str], threads: Sequence[int], effort: Effort
) -> None:
    """Add the cells that are not there yet, against these peers."""
    missing = install(label.split()[0] for label in labels)
    there = [label for label in labels if label.split()[0] not in missing]
    for number in threads:
        done = {cell_of(row) for row in run.rows if row["threads"] == number}
        with workers(there, number) as sides:
            for cell in wanted:
                if cell in done:
                    continue
                layers, batch, width = cell
                load, workload = pf.measure.load(), mlp(layers, width, batch)
                rows = measured(workload, sides, effort) + failed(workload.name, number, missing, labels)
                for worker in sides.values():
                    run.about["versions"] |= worker.versions
                about = {"layers": layers, "batch": batch, "width": width, "load": load}
                run.add({**row, **about} for row in rows)
                print(line(rows), flush=True)
                draw_grid(run.rows, run.about, run.path("svg"))
    print("\n".join(summary(run.rows)))


def cell_of(row: Row) -> Cell:
    return row["layers"], row["batch"], row["width"]


def line(rows: Sequence[Row]) -> str:
    ours, *peers = rows
    ratios = ", ".join(f"{row['side']} {row.get('ratio', row.get('missing'))}" for row in peers)
    return f"{counted(ours['threads']):<9} {ours['workload']:<18} ours {ours.get('median_ms')} ms; {ratios}"


def summary(rows: Sequence[Row]) -> Iterator[str]:
    """For each peer and number of threads, the geometric mean and the cells below 1."""
    for peer, threads in dict.fromkeys((row["side"], row["threads"]) for row in rows if row["side"] != OURS):
        of = [row for row in rows if (row["side"], row["threads"]) == (peer, threads) and "ratio" in row]
        if of:
            mean = statistics.geometric_mean(row["ratio"] for row in of)
            lost = [f"{row['workload']} {row['ratio']:.2f}" for row in of if row["ratio"] < 1]
            yield (
                f"{peer} / polyfuse, {counted(threads)}, {counted(len(of), 'cell')}: geometric mean {mean:.2f}; "
                f"{len(lost)} below 1: {', '.join(lost) or 'none'}."
            )

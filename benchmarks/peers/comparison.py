"""Every workload of the table on every peer, with one thread and with several."""

from __future__ import annotations

from collections.abc import Sequence

import polyfuse as pf
from benchmarks import results
from benchmarks.peers.picture import draw
from benchmarks.peers.rows import Effort, failed, measured, workers
from benchmarks.peers.table import by_workload, line, summary, table
from benchmarks.peers.workloads import EVERY
from benchmarks.sides.environments import install

TITLE = "What a user would pick instead: median ms, float32"


def measure(
    run: results.Run, names: Sequence[str], labels: Sequence[str], threads: Sequence[int], effort: Effort
) -> None:
    """Add the rows that are not there yet; table and picture with them."""
    missing = install(dict.fromkeys(label.split()[0] for label in labels))
    there = [label for label in labels if label.split()[0] not in missing]
    for number in threads:
        done = by_workload(run.rows)
        with workers(there, number) as sides:
            for name in names:
                if (name, number) in done:
                    continue
                load = pf.measure.load()
                rows = measured(EVERY[name], sides, effort) + failed(name, number, missing, labels)
                for worker in sides.values():
                    run.about["versions"] |= worker.versions
                run.add({**row, "load": load} for row in rows)
                print(line(rows), flush=True)
                tell(run)
    print("\n".join(summary(run.rows)))


def tell(run: results.Run) -> None:
    """The table and the picture of what there is."""
    lines = [*results.header(TITLE, run.about), *table(run.rows), *summary(run.rows), ""]
    run.path("md").write_text("\n".join(lines), encoding="utf-8")
    draw(run.rows, run.about, run.path("svg"))

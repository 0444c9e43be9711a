"""The most memory that a call needs, and what a side keeps for it, each in a process of its own.

    call_bytes   resident at most during a call, beyond what was before it: results, temporaries that are not kept
    kept_bytes   resident between calls, beyond what the process had before the workload, the library loaded: arrays,
                 copies of weights in other layouts, arenas, machine code, and what compiling left in the process

`whole` is both together, `ratio` a peer's over ours: above 1, ours needs less.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks import results
from benchmarks.peers.references import reference
from benchmarks.peers.rows import OURS, Row, built, digits, workers
from benchmarks.peers.workloads import EVERY, Workload
from benchmarks.sides.environments import install
from benchmarks.sides.steering import Refused, hand_over

PEERS = ("torch eager", "onnxruntime session")

MIB = 1 << 20


def measure(run: results.Run, names: Sequence[str]) -> None:
    """A row for each workload and side, one thread."""
    missing = install(label.split()[0] for label in PEERS)
    done = {row["workload"] for row in run.rows}
    for name in names:
        if name not in done:
            rows = measured(EVERY[name], [label for label in PEERS if label.split()[0] not in missing])
            run.add(rows)
            print(line(rows), flush=True)


def measured(workload: Workload, labels: Sequence[str]) -> list[Row]:
    """New processes, so that nothing of another workload is in them."""
    arrays, rows = workload.make(), []
    expected = reference(workload.kind, arrays)
    with workers(labels, 1) as sides:
        for label, worker in sides.items():
            hand_over(worker.folder, workload.name, arrays)
            row = {"workload": workload.name, "side": label, **built(workload, worker, expected)}
            if "error" in row:
                try:
                    row |= worker.memory()
                except Refused as why:
                    row["missing"] = str(why)
            rows.append(row)
    return with_ratios(rows)


def with_ratios(rows: list[Row]) -> list[Row]:
    """Each row with its bytes together, and as a part of ours."""
    whole = {row["side"]: row["call_bytes"] + row["kept_bytes"] for row in rows if "call_bytes" in row}
    return [
        {**row, "whole_bytes": whole[row["side"]], "ratio": digits(whole[row["side"]] / whole[OURS])}
        if row["side"] in whole and whole.get(OURS)
        else row
        for row in rows
    ]


def line(rows: Sequence[Row]) -> str:
    said = [
        f"{row['side']} {row['call_bytes'] / MIB:.1f} + {row['kept_bytes'] / MIB:.1f} MiB"
        if "call_bytes" in row
        else f"{row['side']} – ({row['missing']})"
        for row in rows
    ]
    return f"{rows[0]['workload']:<26} in a call + kept: {'; '.join(said)}"

"""The cost model's order of candidate schedules against the measured one, for every workload of the table.

A search (`pf.compile(tune=…)`) tries schedules that the strategy chooses between, the model's own first, each in turns
with it. Reported: Spearman's rank correlation of expected and measured times, and what the best found takes as a part
of the model's choice: 0.95 or more means that the choice is within 5 % of the best.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import polyfuse as pf
from benchmarks import results
from benchmarks.fresh import fresh
from benchmarks.peers.rows import Row, digits
from benchmarks.peers.workloads import EVERY

NEAR = 0.95
"""The best as a part of the model's choice, from which on the choice is as good."""

LIMIT = 300.0
"""Seconds of a search."""


def measure(run: results.Run, names: Sequence[str], trials: int) -> None:
    """A row for each workload, each in a process of its own with one thread."""
    done = {row["workload"] for row in run.rows}
    for name in names:
        if name not in done:
            row = measured(name, trials)
            run.add([row])
            print(line(row), flush=True)
    print("\n".join(summary(run.rows)))


def measured(name: str, trials: int) -> Row:
    try:
        found: Row = fresh("benchmarks.peers.tuning", name, str(trials), threads=1, POLYFUSE_CACHE="off")
    except subprocess.CalledProcessError as failed:
        why = failed.stderr.strip().splitlines()[-1:] or [f"ended with {failed.returncode}"]
        return {"workload": name, "missing": why[0]}
    return {"workload": name, **found}


def in_this_process(name: str, trials: int) -> Row:
    """What a search says of the model's choice."""
    from benchmarks.sides import by_polyfuse

    workload = EVERY[name]
    nest, sizes, _ = by_polyfuse.nest_of(workload.kind, workload.make())
    asked = pf.Trials(count=trials, seconds=LIMIT)
    net = pf.compile(nest, target="cpu", sizes=sizes, tune=asked)
    return of(net.tuning)


def of(tuning: Any) -> Row:
    """A search as a row."""
    order = tuning.rank_correlation
    return {
        "trials": len(tuning.trials),
        "refused": sum(bool(trial.refused) for trial in tuning.trials),
        "different": len({trial.digest for trial in tuning.trials}),
        "rank_correlation": None if order is None else digits(order),
        "best_of_choice": digits(tuning.best.ratio),
        "model_ms": digits(1e3 * tuning.trials[0].seconds),
        "expected_ms": digits(1e3 * tuning.trials[0].predicted),
        "ended": tuning.ended,
        "spent_s": round(tuning.spent, 1),
    }


def line(row: Row) -> str:
    if "missing" in row:
        return f"{row['workload']:<26} {row['missing']}"
    return (
        f"{row['workload']:<26} {row['trials']} trials, rank correlation {row['rank_correlation']}, "
        f"the best takes {row['best_of_choice']:.2f} of the model's choice"
    )


def summary(rows: Sequence[Row]) -> Iterator[str]:
    of = [row for row in rows if "missing" not in row]
    near = [row for row in of if row["best_of_choice"] >= NEAR]
    if of:
        yield f"the model's choice is within 5 % of the best found in {len(near)} of {len(of)} workloads"


if __name__ == "__main__":
    print(json.dumps(in_this_process(sys.argv[1], int(sys.argv[2]))))

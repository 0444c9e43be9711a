"""Models of torch through torch.compile: what of each runs in polyfuse, how far off it is, and how long it compiles.

    python -m benchmarks.torch_models [NAME …] [--size 64] [--layers N] [--freeze] [--coverage] [--limit 150]
    python -m benchmarks.torch_models --table FILE

Each model has a process of its own, which may take a number of seconds of a processor. `--rows FILE` appends its row to
a file, as a line of JSON; `--table FILE` prints these. `--coverage` divides graphs and imports regions, and compiles
nothing. Weights are random. The error is the largest difference to torch in float64, over the largest element. Models
of torchvision and transformers are skipped where these are not installed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.torch_models.cases import NAMES, Skipped
from benchmarks.torch_models.measured import rows

BOUND = 1e-4
"""An error is right up to this, or up to four times that of torch's own float32."""


def alone(name: str, size: int, layers: int | None, freeze: bool, whole: bool, limit: float) -> None:
    """Print what is found about a model as lines of JSON; end the process after so many seconds of a processor."""
    threading.Thread(target=_stop_after, args=(limit,), daemon=True).start()
    try:
        for part in rows(name, size, layers, freeze, whole):
            print(json.dumps(part), flush=True)
    except Skipped as reason:
        print(json.dumps({"model": name, "skipped": str(reason)}), flush=True)


def _stop_after(limit: float) -> None:
    while time.process_time() < limit:
        time.sleep(1)
    print(json.dumps({"failed": f"stopped after {limit:g} s of a processor"}), flush=True)
    os._exit(0)


def measured(name: str, options: Sequence[str]) -> dict[str, Any]:
    """The row of a model, from a process of its own with one thread."""
    command = [sys.executable, "-m", "benchmarks.torch_models", "--alone", name, *options]
    threads = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    found = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, **threads},
        check=False,
    )
    row: dict[str, Any] = {"model": name}
    for line in found.stdout.splitlines():
        if line.startswith("{"):
            row |= json.loads(line)
    if found.returncode:
        row["failed"] = (found.stderr.strip().splitlines() or [f"ended with {found.returncode}"])[-1]
    return row


def table(every: Iterable[dict[str, Any]]) -> list[str]:
    """Lines of a table of rows; what is wrong or failed is said in the last column."""
    lines = [
        "| model | nodes | computed once | left to torch | MFLOP | % in polyfuse | regions | kernels | error "
        "| error of torch | compile, CPU s | ms | eager, ms | notes |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in every:
        if "skipped" in row:
            lines.append(f"| {row['model']} | skipped: {row['skipped']} |" + " |" * 12)
            continue
        share = row.get("share")
        cells = [
            row["model"] + (f", {row['layers']} layers" if row.get("layers") else ""),
            row.get("nodes", ""),
            row.get("known", ""),
            sum(count for count, *_ in row.get("left", ())),
            f"{row.get('MFLOP', 0):.1f}",
            "" if share is None else f"{100 * share:.1f}",
            row.get("regions", ""),
            row.get("kernels", ""),
            *(f"{row[key]:.1e}" if key in row else "" for key in ("error", "error of torch")),
            f"{row['compile CPU s']:.0f}" if "compile CPU s" in row else "",
            *(f"{row[key]:.2f}" if key in row else "" for key in ("ms", "eager ms")),
            "; ".join(notes(row)),
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def notes(row: dict[str, Any]) -> list[str]:
    """The complaints about a row: no nest, no graph, wrong outputs, regions that ran in eager."""
    found = [row["failed"]] if "failed" in row else []
    if row.get("graphs") == 0:
        found.append("torch makes no graph of it")
    if "error" in row and not row["error"] <= max(BOUND, 4 * row["error of torch"]):
        found.append("WRONG")
    if row.get("in eager"):
        found.append(f"{len(row['in eager'])} regions run in eager")
    return found


def main(given: Sequence[str] | None = None) -> None:
    """Measure models one after the other, or print the table of a file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=NAMES, help="models")
    parser.add_argument("--size", type=int, default=64, help="rows and columns of images")
    parser.add_argument("--layers", type=int, help="layers of each transformer; their own number by default")
    parser.add_argument("--freeze", action="store_true", help="weights are constants")
    parser.add_argument("--coverage", action="store_true", help="compile nothing")
    parser.add_argument("--limit", type=float, default=150, help="seconds of a processor for each model")
    parser.add_argument("--rows", type=Path, help="a file to which rows are appended")
    parser.add_argument("--table", type=Path, help="a file of rows to print; of each model, the last")
    parser.add_argument("--alone", action="store_true", help="in this process, as lines of JSON")
    args = parser.parse_args(given)
    if args.table is not None:
        every = [json.loads(line) for line in args.table.read_text("utf-8").splitlines()]
        print("\n".join(table({row["model"]: row for row in every}.values())))
        return
    if args.alone:
        for name in args.names:
            alone(name, args.size, args.layers, args.freeze, not args.coverage, args.limit)
        return
    options = [
        "--size",
        str(args.size),
        "--limit",
        str(args.limit),
        *(["--layers", str(args.layers)] if args.layers else []),
    ]
    options += [flag for flag, on in (("--freeze", args.freeze), ("--coverage", args.coverage)) if on]
    for name in args.names:
        row = measured(name, options)
        if args.rows is not None:
            with args.rows.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()

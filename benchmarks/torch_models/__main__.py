"""Models of torch through torch.compile: what of each runs in polyfuse, how far off it is, and how long it compiles.

    python -m benchmarks.torch_models [NAME …] [--size 64] [--layers N] [--freeze] [--coverage] [--limit 150]
    python -m benchmarks.torch_models [NAME …] --peers eager,inductor,onnxruntime --threads 2
    python -m benchmarks.torch_models [NAME …] --freeze [--unchecked] --nothing
    python -m benchmarks.torch_models --table FILE

Each model has two processes of its own: one compiles it with an empty cache, one with what that one kept, and times it
beside other sides. `--nothing` adds one that times a backend that computes nothing. Each may take a number of seconds
of a processor. `--rows FILE` appends its row to a file, as a line of JSON; `--table FILE` prints these. `--coverage`
divides graphs and imports regions, and compiles nothing. Weights are random. The error is the largest difference to
torch in float64, over the largest element. Models of torchvision and transformers are skipped where these are not
installed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.fresh import with_threads
from benchmarks.torch_models.cases import NAMES, Skipped
from benchmarks.torch_models.measured import cold, none, warm
from benchmarks.torch_models.peers import PEERS

KINDS = ("cold", "warm", "none")
"""The processes of a model (`measured`)."""

BOUND = 1e-4
"""An error is right up to this, or up to four times that of torch's own float32."""


def alone(name: str, args: argparse.Namespace) -> None:
    """Print what is found about a model as lines of JSON; end the process after so many seconds of a processor."""
    threading.Thread(target=_stop_after, args=(args.limit,), daemon=True).start()
    try:
        freeze = "unchecked" if args.unchecked else args.freeze
        if args.alone == "warm":
            parts = warm(name, args.size, args.layers, freeze, args.peers)
        elif args.alone == "none":
            parts = none(name, args.size, args.layers, args.peers)
        else:
            parts = cold(name, args.size, args.layers, freeze, not args.coverage)
        for part in parts:
            print(json.dumps(part), flush=True)
    except Skipped as reason:
        print(json.dumps({"model": name, "skipped": str(reason)}), flush=True)


def _stop_after(limit: float) -> None:
    while time.process_time() < limit:
        time.sleep(1)
    print(json.dumps({"failed": f"stopped after {limit:g} s of a processor"}), flush=True)
    os._exit(0)


def measured(name: str, options: Sequence[str], threads: int, kinds: Sequence[str]) -> dict[str, Any]:
    """The row of a model, from processes of its own."""
    row: dict[str, Any] = {"model": name, "threads": threads}
    with tempfile.TemporaryDirectory() as cache:
        environment = {**with_threads(threads), "POLYFUSE_CACHE": cache}
        for kind in kinds:
            command = [sys.executable, "-m", "benchmarks.torch_models", "--alone", kind, name, *options]
            found = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
            for line in found.stdout.splitlines():
                if line.startswith("{"):
                    row |= json.loads(line)
            if found.returncode:
                row["failed"] = _reason(found.stderr) or f"ended with {found.returncode}"
            if {"failed", "skipped"} & row.keys():
                break
    return row


def _reason(stderr: str) -> str:
    """The last line that names an error, or the last line: torch says behind an error how to see more."""
    lines = stderr.strip().splitlines()
    return next((line for line in reversed(lines) if "Error" in line), lines[-1] if lines else "")


def table(every: Iterable[dict[str, Any]]) -> list[str]:
    """Lines of a table of rows; what is wrong or failed is said in the last column."""
    lines = [
        "| model | nodes | computed once | left to torch | MFLOP | % in polyfuse | regions | kernels | error "
        "| error of torch | compile, CPU s | cached, CPU s | peak, MiB | ms | torch alone | exported | eager "
        "| inductor | onnxruntime | best over ours | best over exported | notes |",
        "|" + "---|" * 22,
    ]
    for row in every:
        if "skipped" in row:
            lines.append(f"| {row['model']} | skipped: {row['skipped']} |" + " |" * 20)
            continue
        share = row.get("share")
        times = ("ms", "torch alone ms", "exported ms", *(f"{one} ms" for one in PEERS))
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
            f"{row['cached CPU s']:.1f}" if "cached CPU s" in row else "",
            f"{row['peak MiB']:.0f}" if "peak MiB" in row else "",
            *(f"{row[key]:.3g}" if key in row else "" for key in times),
            *("" if one is None else f"{one:.2f}" for one in (ratio(row), ratio(row, "exported ms"))),
            "; ".join(notes(row)),
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def ratio(row: dict[str, Any], ours: str = "ms") -> float | None:
    """The time of the fastest other side over ours: by torch.compile, or as an exported nest."""
    found = [row[f"{one} ms"] for one in PEERS if f"{one} ms" in row]
    return min(found) / row[ours] if found and ours in row else None


def summary(every: Iterable[dict[str, Any]]) -> str:
    """How many rows are right and not slower than the best side, and the geometric mean."""
    kept = list(every)
    right = sum("error" in row and not notes(row) for row in kept)
    said = [f"{right} of {len(kept)} right"]
    for name, ours in (("by torch.compile", "ms"), ("exported", "exported ms")):
        ratios = [one for one in (ratio(row, ours) for row in kept) if one is not None]
        if ratios:
            mean = f"geometric mean {statistics.geometric_mean(ratios):.2f}, worst {min(ratios):.2f}"
            said.append(f"{name} {sum(one >= 1 for one in ratios)} of {len(ratios)} at least 1, {mean}")
    return "; ".join(said)


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
    parser.add_argument(
        "--unchecked",
        action="store_true",
        help="weights are promised not to change, and modules of torch neither",
    )
    parser.add_argument("--nothing", action="store_true", help="time a backend that computes nothing, too")
    parser.add_argument("--coverage", action="store_true", help="compile nothing")
    parser.add_argument("--limit", type=float, default=150, help="seconds of a processor for each model")
    parser.add_argument("--rows", type=Path, help="a file to which rows are appended")
    parser.add_argument("--table", type=Path, help="a file of rows to print; of each model, the last")
    parser.add_argument("--peers", type=_peers, default=["eager"], help=f"some of {', '.join(PEERS)}")
    parser.add_argument("--threads", type=int, default=1, help="threads of every side")
    parser.add_argument("--alone", choices=KINDS, help="in this process, as lines of JSON")
    args = parser.parse_args(given)
    if args.table is not None:
        every = [json.loads(line) for line in args.table.read_text("utf-8").splitlines()]
        last = {(row["model"], row.get("threads", 1)): row for row in every}.values()
        print("\n".join(table(last)))
        print(summary(last))
        return
    if args.alone:
        for name in args.names:
            alone(name, args)
        return
    options = [
        "--size",
        str(args.size),
        "--limit",
        str(args.limit),
        "--peers",
        ",".join(args.peers),
        *(["--layers", str(args.layers)] if args.layers else []),
    ]
    flags = ("--freeze", args.freeze), ("--unchecked", args.unchecked), ("--coverage", args.coverage)
    options += [flag for flag, on in flags if on]
    kinds = KINDS[:1] if args.coverage else KINDS if args.nothing else KINDS[:2]
    for name in args.names:
        row = measured(name, options, args.threads, kinds)
        if args.rows is not None:
            with args.rows.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)


def _peers(given: str) -> list[str]:
    names = [name for name in given.split(",") if name]
    for name in names:
        if name not in PEERS:
            raise argparse.ArgumentTypeError(f"no side {name!r}; there are {', '.join(PEERS)}")
    return names


if __name__ == "__main__":
    main()

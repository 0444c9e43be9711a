"""`make bench`: compile time and the demo's networks; results as JSON and CSV in benchmarks/results/.

python -m benchmarks [compile] [networks] [--out DIR] [--turns N]
"""

from __future__ import annotations

import os

os.environ.pop("OPENBLAS_CORETYPE", None)  # before NumPy loads: its product must suit this CPU

import argparse
import csv
import json
from pathlib import Path
from typing import Any

import polyfuse as pf
from benchmarks import compile_time, networks

PARTS = {"compile": compile_time.measure, "networks": networks.measure}
HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks", description="Measure polyfuse on this machine.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"any of {', '.join(PARTS)}; all without")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="folder for the results")
    parser.add_argument("--turns", type=int, default=25, help="how often each candidate is timed")
    options = parser.parse_args()
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    for part in options.parts or PARTS:
        about = pf.measure.environment()
        rows = PARTS[part](options.turns)
        for path in write(options.out, part, about, rows):
            print(f"wrote {path}")


def write(folder: Path, part: str, about: dict[str, object], rows: list[dict[str, Any]]) -> tuple[Path, Path]:
    """The rows as JSON, with all facts about the machine, and as CSV, with date, CPU and commit in each row."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{part}-{str(about['date'])[:10]}"
    as_json, as_csv = folder / f"{stem}.json", folder / f"{stem}.csv"
    as_json.write_text(
        json.dumps({**about, "rows": rows}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    common = {name: about[name] for name in ("date", "cpu", "cpus", "commit")}
    with as_csv.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*common, *dict.fromkeys(name for row in rows for name in row)])
        writer.writeheader()
        writer.writerows({**common, **row} for row in rows)
    return as_json, as_csv


main()

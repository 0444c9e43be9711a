"""`make bench`: compile time, the cache, a call's cost, networks, functions, bandwidth; into benchmarks/results/.

python -m benchmarks [compile] [cache] [call] [networks] [functions] [bandwidth] [--out DIR] [--turns N]
"""

from __future__ import annotations

import os

os.environ.pop("OPENBLAS_CORETYPE", None)  # before NumPy loads: its product must suit this CPU

import argparse
from pathlib import Path

import polyfuse as pf
from benchmarks import bandwidth, call_path, compile_time, functions, networks, results, second_process

PARTS = {
    "compile": compile_time.measure,
    "cache": second_process.measure,
    "call": call_path.measure,
    "networks": networks.measure,
    "functions": functions.measure,
    "bandwidth": bandwidth.measure,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks", description="Measure polyfuse on this machine.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"any of {', '.join(PARTS)}; all without")
    parser.add_argument("--out", type=Path, default=results.FOLDER, help="folder for the results")
    parser.add_argument("--turns", type=int, default=25, help="how often each candidate is timed")
    options = parser.parse_args()
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    for part in options.parts or PARTS:
        about = pf.measure.environment()
        rows = PARTS[part](options.turns)
        for path in results.write(options.out, part, about, rows):
            print(f"wrote {path}")


main()

"""The short table at the end."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.gpu.parts import Part

COLUMNS = (
    "workload",
    "side",
    "µs",
    "expected",
    "TFLOP/s",
    "GB/s",
    "of a copy",
    "host µs",
    "build s",
    "best other",
    "other/this",
)
FIELDS = (
    "workload",
    "side",
    "median_us",
    "expected_us",
    "tflops",
    "gb_per_s",
    "of_copy",
    "host_us",
    "build_s",
    "best_other",
    "ratio",
)


def lines(rows: Iterable[Mapping[str, Any]]) -> list[list[str]]:
    """Our rows for a person; a side that failed says why instead."""
    return [
        [str(row.get(name, "")) for name in FIELDS]
        if "missing" not in row
        else [row["workload"], row["side"], row["missing"], *[""] * (len(FIELDS) - 3)]
        for row in rows
        if row["side"].startswith("polyfuse")
    ]


def summary(part: Part, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What was wanted, and the ratios together, of all and of each group."""
    ours = [row for row in rows if row["side"].startswith("polyfuse")]
    if not any(row["measured"] for row in ours):
        right = sum("error" in row for row in ours)
        yield f"{part.name}: a dry run, {right} of {len(ours)} right; nothing was measured"
        return
    yield f"{part.name}: wanted: {part.wanted}"
    for side in dict.fromkeys(row["side"] for row in ours):
        compared = [row for row in ours if row["side"] == side and "ratio" in row]
        yield from _together(side, [row["ratio"] for row in compared])
        for name, belongs in part.groups.items():
            yield from _together(
                f"{side}, {name}", [row["ratio"] for row in compared if belongs(row["workload"])]
            )


def _together(what: str, ratios: Sequence[float]) -> Iterator[str]:
    if ratios:
        below = sum(value < 1 for value in ratios)
        yield (
            f"  {what}: {len(ratios)} measured, geometric mean {statistics.geometric_mean(ratios):.2f}, "
            f"least {min(ratios):.2f}, {below} below 1"
        )

"""PolyBench results for a person: a Markdown table for each number of threads, and what they come to."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Row = Mapping[str, Any]

WANTED = 0.95
"""The fastest peer's time over ours, which no kernel should be below."""

COLUMNS = ("polyfuse", "numba", "gcc", "gcc_auto", "polly", "numpy")


def table(rows: Iterable[Row]) -> Iterator[str]:
    """Milliseconds, ratios to ours, and what was decided; one table for each number of threads."""
    every = [row for row in rows if "failed" not in row]
    for threads in sorted({row["threads"] for row in every}):
        yield f"## {counted(threads)}"
        yield ""
        yield (
            "| kernel | polyfuse | numba | gcc | gcc, parallelised | Polly | numpy "
            "| best of these but NumPy / polyfuse | turns | kernels | parallel | tiled | schedule |"
        )
        yield "|---" * 13 + "|"
        yield from (_row(row) for row in every if row["threads"] == threads)
        yield ""
    yield "Medians of turns in ms; a peer marked with * was far behind in its first call and not timed again."
    wrong = sorted({f"{row['kernel']} {row['polly_error']:.2g}" for row in every if _is_wrong(row)})
    if wrong:
        yield f"Polly computes something else, and is not timed, in: {', '.join(wrong)} (largest difference)."


def _is_wrong(row: Row) -> bool:
    """True if Polly's values were not the reference's."""
    return "polly_error" in row and "polly_ms" not in row


def _row(row: Row) -> str:
    once = row["once"].split()
    times = [f"{row[f'{c}_ms']:.4g}{'*' if c in once else ''}" if f"{c}_ms" in row else "" for c in COLUMNS]
    ratio = f"{row['best_ratio']:.2f}"
    marked = ratio if row["best_ratio"] >= WANTED else f"**{ratio}**"
    decided = [row["turns"], row["kernels"], row["parallel"], row["tiled"], f"{row['schedule_s']:.2f} s"]
    return f"| {' | '.join([row['kernel'], *times, marked, *map(str, decided)])} |"


def summary(rows: Iterable[Row]) -> Iterator[str]:
    """The geometric mean of the best peer over ours, and the kernels that lose, by number of threads."""
    every = list(rows)
    done = [row for row in every if "failed" not in row]
    for threads in sorted({row["threads"] for row in done}):
        own = [row for row in done if row["threads"] == threads]
        mean = statistics.geometric_mean(row["best_ratio"] for row in own)
        lost = [f"{row['kernel']} {row['best_ratio']:.2f}" for row in own if row["best_ratio"] < WANTED]
        yield (
            f"{counted(threads)}, {counted(len(own), 'kernel')}: the best of numba, gcc and Polly / polyfuse, "
            f"geometric mean {mean:.2f}; below {WANTED}: {', '.join(lost) or 'none'}."
        )
    for row in every:
        if "failed" in row:
            yield f"{row['kernel']}, {counted(row['threads'])}, failed: {row['failed']}"


def counted(number: int, thing: str = "thread") -> str:
    return f"1 {thing}" if number == 1 else f"{number} {thing}s"

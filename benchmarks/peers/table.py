"""What the rows come to, for a person: a Markdown table for each number of threads, and a summary."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.peers.rows import OURS, Row
from benchmarks.polybench_table import counted


def best_peer(rows: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Of the rows of one workload and number of threads, the peer's with the least ratio; None if no peer ran."""
    timed = [row for row in rows if row["side"] != OURS and "median_ms" in row]
    return min(timed, key=lambda row: row.get("ratio", row["median_ms"]), default=None)


def by_workload(rows: Iterable[Row]) -> dict[tuple[str, int], list[Row]]:
    """The rows of each workload and number of threads, in the order they were measured."""
    groups: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["workload"], row["threads"]), []).append(row)
    return groups


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Milliseconds of every side, and the best peer's time over ours."""
    sides = list(dict.fromkeys(row["side"] for row in rows))
    for threads in sorted({row["threads"] for row in rows}):
        yield f"## {counted(threads)}"
        yield ""
        yield f"| workload | {' | '.join(sides)} | best peer | best peer / polyfuse |"
        yield "|---" * (len(sides) + 3) + "|"
        for (name, its_threads), group in by_workload(rows).items():
            if its_threads == threads:
                yield line_of(name, group, sides)
        yield ""
    yield "Medians of turns in ms; * far behind in its first timing, and not timed again; – not there."
    yield ""
    for row in rows:
        if row["side"] == OURS and "missing" in row:
            yield f"- {without(row)}: {row['workload']}, {counted(row['threads'])}: {row['missing']}"
    for (side, why), names in reasons(rows).items():
        yield f"- {side}: {why} ({', '.join(names)})"
    yield ""


def line_of(name: str, group: list[Row], sides: list[str]) -> str:
    of = {row["side"]: row for row in group}
    cells = [cell(of.get(side, {})) for side in sides]
    best = best_peer(group)
    ratio = (best or {}).get("ratio")
    if "missing" in of.get(OURS, {}):
        cells[sides.index(OURS)], said = without(of[OURS]), ""
    else:
        said = "" if ratio is None else f"{ratio:.2f}" if ratio >= 1 else f"**{ratio:.2f}**"
    return f"| {name} | {' | '.join(cells)} | {best['side'] if best else ''} | {said} |"


def without(row: Mapping[str, Any]) -> str:
    """Why ours has no time, in a word."""
    return "not yet" if row["missing"].startswith("NotYet") else "failed"


def cell(row: Mapping[str, Any]) -> str:
    if "median_ms" not in row:
        return "–"
    return f"{row['median_ms']:.4g}{'*' if row['turns'] == 1 else ''}"


def reasons(rows: Iterable[Row]) -> dict[tuple[str, str], list[str]]:
    """Why peers did not run what they have: by side and reason, the workloads."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row["side"] != OURS and row.get("missing", "not written") != "not written":
            names = found.setdefault((row["side"], row["missing"]), [])
            if row["workload"] not in names:
                names.append(row["workload"])
    return found


def summary(rows: Iterable[Row]) -> Iterator[str]:
    """For each number of threads: the geometric mean of the best peer over ours, and the workloads that lose."""
    groups = by_workload(rows)
    for threads in sorted({threads for _, threads in groups}):
        ratios = {
            name: best["ratio"]
            for (name, its), group in groups.items()
            if its == threads and (best := best_peer(group)) and "ratio" in best
        }
        if ratios:
            mean = statistics.geometric_mean(ratios.values())
            lost = [f"{name} {ratio:.2f}" for name, ratio in ratios.items() if ratio < 1]
            yield (
                f"{counted(threads)}, {counted(len(ratios), 'workload')}: best peer / polyfuse, geometric mean "
                f"{mean:.2f}; below 1: {', '.join(lost) or 'none'}."
            )


def line(group: list[Row]) -> str:
    """One workload, while it is measured."""
    ours = next(row for row in group if row["side"] == OURS)
    best = best_peer(group)
    start = f"{counted(ours['threads']):<9} {ours['workload']:<26}"
    peer = f"best peer {best['side']} {best['median_ms']:.4g} ms" if best else "no peer"
    if "missing" in ours:
        return f"{start} {without(ours)} ({ours['missing']}); {peer}"
    ratio = f", ratio {best['ratio']:.2f}" if best else ""
    return f"{start} ours {ours['median_ms']:.4g} ms, {peer}{ratio}"

"""Snapshots: a record of each of many cases as a JSON file, and the differences of two such files.

    {"about": {…}, "cases": {name: {part: text, list or number}}}

The file has one entry of a list a line and a fixed order, so that `git diff` of two files is readable too. A record is
deterministic: no times, no dates, no addresses.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import zip_longest
from pathlib import Path
from typing import Any

import polyfuse as pf
from benchmarks.options import some_of
from benchmarks.polybench_table import counted

Record = dict[str, Any]
Snapshot = dict[str, Any]

WIDEST = 60
"""Characters of a value that a difference shows on each side."""

TASKS = 50
"""Cases that a worker process records, on average, before another takes its place: isl and numba keep memory."""


def main(
    prog: str,
    description: str,
    groups: Sequence[str],
    names: Callable[[str], Iterable[str]],
    record: Callable[[str], Record],
    about: Mapping[str, Any],
) -> None:
    """The command line: record the cases of some groups, or compare two files, as a whole or in these cases alone.

    Args:
        prog: the module, for the usage.
        description: what it records.
        groups: the groups there are; a case's name begins with its group's and a slash.
        names: the names of a group's cases, in order.
        record: one case's record. Called in worker processes where there are several jobs.
        about: what the records depend on beside the source, such as versions.
    """
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--only", type=some_of(groups), default=list(groups), help=f"of {', '.join(groups)}")
    parser.add_argument("--named", default="", metavar="TEXT", help="only cases whose names contain this")
    parser.add_argument("--every", type=int, default=1, metavar="K", help="only each K-th case of a group")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes at a time")
    parser.add_argument("--out", type=Path, metavar="FILE", help="file to write; printed without")
    parser.add_argument(
        "--compare",
        type=Path,
        nargs=2,
        metavar=("A", "B"),
        help="print what differs, and exit with 1 if anything does",
    )
    options = parser.parse_args()
    if options.every < 1 or options.jobs < 1:
        parser.error("--every and --jobs take positive numbers")
    chosen = [
        name
        for group in options.only
        for name in [name for name in names(group) if options.named in name][:: options.every]
    ]
    if options.compare is not None:
        one, other = (json.loads(path.read_text(encoding="utf-8")) for path in options.compare)
        if options.only != list(groups) or options.named or options.every > 1:
            one, other = _only(chosen, one), _only(chosen, other)
        print("\n".join(report(one, other)))
        sys.exit(any(differences(one, other)))
    start = time.perf_counter()
    found = {"about": dict(about), "cases": recorded(chosen, record, options.jobs)}
    print(f"{counted(len(chosen), 'case')} in {time.perf_counter() - start:.0f} s", file=sys.stderr)
    if options.out is None:
        print(written(found), end="")
    else:
        options.out.write_text(written(found), encoding="utf-8")


def recorded(names: Sequence[str], record: Callable[[str], Record], jobs: int = 1) -> dict[str, Record]:
    """The records of cases by name, in the order of the names.

    A case that polyfuse refuses has a record that says why.
    """
    if jobs == 1:
        return dict(_named(record, name) for name in names)
    # Spawned, not forked: OpenMP's threads and isl's contexts do not survive a fork. New processes for each batch and
    # not `max_tasks_per_child`: with it Python 3.11 waits for ever once all workers have done their share.
    context = multiprocessing.get_context("spawn")
    found: dict[str, Record] = {}
    for start in range(0, len(names), TASKS * jobs):
        batch = names[start : start + TASKS * jobs]
        with ProcessPoolExecutor(jobs, context) as pool:
            found.update(pool.map(_named, [record] * len(batch), batch))
    return found


def _named(record: Callable[[str], Record], name: str) -> tuple[str, Record]:
    start = time.perf_counter()
    try:
        found = record(name)
    except pf.PolyfuseError as error:
        found = {"refused": f"{type(error).__name__}: {error}".splitlines()}
    print(f"{time.perf_counter() - start:7.1f} s  {name}", file=sys.stderr, flush=True)
    return name, found


def written(snapshot: Snapshot) -> str:
    """A snapshot as JSON, each entry of a record's lists on a line of its own."""
    cases = ",\n".join(
        f"  {_json(name)}: {{\n{_members(record)}\n  }}" for name, record in snapshot["cases"].items()
    )
    return f'{{\n "about": {_json(snapshot["about"])},\n "cases": {{\n{cases}\n }}\n}}\n'


def _members(record: Record) -> str:
    return ",\n".join(f"   {_json(part)}: {_value(value)}" for part, value in record.items())


def _value(value: Any) -> str:
    if not (isinstance(value, list) and value):
        return _json(value)
    entries = ",\n".join(f"    {_json(entry)}" for entry in value)
    return f"[\n{entries}\n   ]"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _only(names: Sequence[str], snapshot: Snapshot) -> Snapshot:
    """A snapshot without the cases that have other names."""
    return {**snapshot, "cases": {n: record for n, record in snapshot["cases"].items() if n in names}}


def differences(one: Snapshot, other: Snapshot) -> Iterator[tuple[str, str, str]]:
    """(case, part, what differs) for each part of each case; a case that only one has is a difference of "cases"."""
    before, after = one["cases"], other["cases"]
    for name in dict.fromkeys([*before, *after]):
        if name not in before or name not in after:
            yield name, "cases", "only in the second file" if name in after else "only in the first file"
            continue
        for part in dict.fromkeys([*before[name], *after[name]]):
            old, new = before[name].get(part), after[name].get(part)
            if old != new:
                yield name, part, difference(old, new)


def difference(old: Any, new: Any) -> str:
    """The first difference of two values as one line, with the number of others where they are lists."""
    if not (isinstance(old, list) and isinstance(new, list)):
        return f"{_short(old)} -> {_short(new)}"
    pairs = [pair for pair in enumerate(zip_longest(old, new)) if pair[1][0] != pair[1][1]]
    (position, (first, second)), others = pairs[0], len(pairs) - 1
    more = f", and {others} more" if others else ""
    return f"[{position}] {_short(first)} -> {_short(second)}{more}"


def _short(value: Any) -> str:
    text = "nothing" if value is None else value if isinstance(value, str) else _json(value)
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"


def report(one: Snapshot, other: Snapshot) -> Iterator[str]:
    """One line a difference, then totals."""
    for key in dict.fromkeys([*one["about"], *other["about"]]):
        old, new = one["about"].get(key), other["about"].get(key)
        if old != new:
            yield f"about: {key}: {_short(old)} -> {_short(new)}"
    found = list(differences(one, other))
    for name, part, what in found:
        yield f"{name}: {part}: {what}"
    both = one["cases"].keys() & other["cases"].keys()
    differing = {name for name, part, _ in found if part != "cases"}
    by_part = Counter(part for _, part, _ in found)
    parts = f" ({', '.join(f'{part} {count}' for part, count in by_part.items())})" if found else ""
    yield (
        f"{len(differing)} of {counted(len(both), 'case')} in both files differ; "
        f"{counted(len(found), 'difference')}{parts}"
    )

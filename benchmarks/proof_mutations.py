"""Mutations of the proofs themselves: each has to fail a test of the same package within a minute of CPU time.

    module -> pytest collects its package's tests, once
           -> a forked process runs them and notes each test's time and the lines of the module that it ran
           -> for each change: a forked process puts it in place, and runs the tests of its line, short ones first

python -m benchmarks.proof_mutations [--module polyfuse/analysis/legality.py]… [--named TEXT] [--out FILE]

A change that no test notices either has its place in `proof_mutants.toml`, with the reason why the module computes the
same with it, or is printed, and the exit status is 1. mutmut and cosmic-ray start Python, numba and isl anew for each
mutant, which takes five seconds before the first test; a fork takes none.
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import os
import pickle
import resource
import signal
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from benchmarks.proof_mutants import Change, changes, put_in_place

ROOT = Path(__file__).parents[1]
EQUIVALENT = Path(__file__).with_name("proof_mutants.toml")

LIMIT = 60.0
"""CPU seconds of tests, as they take without a change, in which one has to fail."""

PATIENCE = 4.0
"""A test that takes as many times what it should, and ten seconds more, has failed."""

ANALYSIS = ("analysis", "schedule")
DEPENDENCES = ("ir", "random/test_random_programs.py")
PROOFS: Mapping[str, tuple[str, ...]] = {
    "polyfuse/analysis/legality.py": ANALYSIS,
    "polyfuse/analysis/storage.py": ANALYSIS,
    "polyfuse/analysis/copies.py": ANALYSIS,
    "polyfuse/analysis/validation.py": ANALYSIS,
    "polyfuse/analysis/barriers.py": ANALYSIS,
    "polyfuse/analysis/stages.py": ANALYSIS,
    "polyfuse/analysis/across_blocks.py": ANALYSIS,
    "polyfuse/analysis/producer_consumer.py": ANALYSIS,
    "polyfuse/analysis/once.py": ANALYSIS,
    "polyfuse/analysis/liveness.py": ANALYSIS,
    "polyfuse/analysis/doacross.py": ANALYSIS,
    "polyfuse/analysis/lanes.py": ANALYSIS,
    "polyfuse/analysis/hardware_bindings.py": ANALYSIS,
    "polyfuse/analysis/full_tiles.py": ANALYSIS,
    "polyfuse/analysis/bands.py": ANALYSIS,
    "polyfuse/analysis/digits.py": ANALYSIS,
    "polyfuse/analysis/clusters.py": ANALYSIS,
    "polyfuse/analysis/vector_access.py": ANALYSIS,
    "polyfuse/analysis/same_array.py": ANALYSIS,
    "polyfuse/ir/dependences.py": DEPENDENCES,
    "polyfuse/schedule/binding.py": ("schedule", "analysis"),
    "polyfuse/schedule/promote/copy_order.py": ("schedule", "analysis"),
    "polyfuse/rewrite/inline.py": ("rewrite/test_inline.py",),
    "polyfuse/rewrite/index_set_splitting.py": ("rewrite/test_index_set_splitting.py",),
    "polyfuse/rewrite/reductions/online_softmax.py": ("rewrite/reductions",),
    "polyfuse/rewrite/reductions/split_reduction.py": ("rewrite/reductions",),
    "polyfuse/rewrite/reductions/factor_out.py": ("rewrite/reductions",),
    "polyfuse/rewrite/storage/privatize_scratch.py": ("rewrite/storage",),
    "polyfuse/rewrite/storage/expansion.py": ("rewrite/storage",),
    "polyfuse/rewrite/views/read_through.py": ("rewrite/views",),
}
"""Modules that prove something, and the tests below `tests/` that have to notice a change of them."""


@dataclass
class Counts:
    """The changes of one module: killed by a test, equivalent as listed, not in any test's way; and those that live."""

    killed: int = 0
    equivalent: int = 0
    seconds: float = 0.0
    alive: list[str] = field(default_factory=list)

    @property
    def all(self) -> int:
        """All changes that were tried."""
        return self.killed + self.equivalent + len(self.alive)


@dataclass(frozen=True)
class Ran:
    """A test without a change: its CPU seconds and the module's lines that it ran."""

    item: int
    seconds: float
    lines: frozenset[int]


class Mutating:
    """A plugin of pytest that runs the collected tests of a module with each change of it."""

    def __init__(self, file: Path, named: str, known: Mapping[str, str]) -> None:
        self.file, self.named, self.known = file, named, known
        self.counts = Counts()
        self.failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure, in the process that runs the tests."""
        self.failed = self.failed or report.failed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """In place of pytest's own loop: once without a change, then with each."""
        start = time.perf_counter()
        sound = apart(lambda: list(self.sound(session)), None)
        if not isinstance(sound, list):
            raise pytest.UsageError(f"{self.file.name}: a test fails without a change: {sound}")
        for change in changes(self.file.read_text(encoding="utf-8")):
            if self.named in change.name:
                self.judge(session, change, sound)
        self.counts.seconds = time.perf_counter() - start
        return True

    def judge(self, session: pytest.Session, change: Change, sound: Sequence[Ran]) -> None:
        """Run the tests that ran the change's line and count what came of it."""
        if change.name in self.known:
            self.counts.equivalent += 1
            return
        chosen = in_the_way(change, sound)
        spent = sum(ran.seconds for ran in chosen)
        by = apart(lambda: self.killer(session, change, chosen), 10 + PATIENCE * spent) if chosen else None
        if by is None:
            self.counts.alive.append(change.name)
            why = f"{len(chosen)} tests, {spent:.0f} s" if chosen else "no test runs this line"
            print(
                f"ALIVE {self.file.name}:{change.lines.start} {change.name}   ({why})",
                file=sys.stderr,
                flush=True,
            )
        else:
            self.counts.killed += 1

    def sound(self, session: pytest.Session) -> Iterator[Ran]:
        """Run every test without a change."""
        for number, item in enumerate(session.items):
            before = time.process_time()
            with lines_of(str(self.file)) as lines:
                self.run(session, number, number + 1)
            if self.failed:
                raise RuntimeError(item.nodeid)
            yield Ran(number, time.process_time() - before, frozenset(lines))

    def killer(self, session: pytest.Session, change: Change, chosen: Sequence[Ran]) -> str | None:
        """The first test that fails with a change in place; None if all pass."""
        if not put_in_place(change, self.file):
            raise RuntimeError(f"{change.name} changes nothing that is alive")
        later = [*(ran.item for ran in chosen[1:]), len(session.items)]
        for ran, after in zip(chosen, later, strict=True):
            self.run(session, ran.item, after)
            if self.failed:
                return session.items[ran.item].nodeid
        return None

    def run(self, session: pytest.Session, number: int, after: int) -> None:
        """Run one test; fixtures that the test after it has too stay."""
        item, *_ = session.items[number:]
        following = session.items[after] if after < len(session.items) else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


def in_the_way(change: Change, sound: Sequence[Ran]) -> list[Ran]:
    """The tests that run a changed line, short ones first, in LIMIT seconds; all for a constant."""
    chosen, spent = [], 0.0
    for ran in sorted(sound, key=lambda ran: ran.seconds):
        if (not change.function or ran.lines.intersection(change.lines)) and spent + ran.seconds <= LIMIT:
            chosen.append(ran)
            spent += ran.seconds
    return chosen


@contextmanager
def lines_of(file: str) -> Iterator[set[int]]:
    """The lines of a file that run inside."""
    lines: set[int] = set()

    def here(frame: FrameType, event: str, argument: Any) -> Any:
        lines.add(frame.f_lineno)
        return here

    def tracer(frame: FrameType, event: str, argument: Any) -> Any:
        return here(frame, event, argument) if frame.f_code.co_filename == file else None

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        yield lines
    finally:
        sys.settrace(before)


def apart(work: Callable[[], Any], limit: float | None) -> Any:
    """Return what a forked process returns, which prints nothing; what it raises, or how it ended, as text."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _child(work, writing, limit)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    return pickle.loads(answer) if answer else f"ended with {os.waitstatus_to_exitcode(status)}"


def _child(work: Callable[[], Any], writing: int, limit: float | None) -> None:
    """The forked process: it ends here."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    sys.stdout = sys.stderr = io.StringIO()
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 1, int(limit) + 2))
        signal.alarm(10 * int(limit) + 60)  # for one that waits and computes nothing
    try:
        answer = work()
    except BaseException as error:  # noqa: BLE001  whatever a change does to pytest itself is a failure
        answer = f"{type(error).__name__}: {error}"
    os.write(writing, pickle.dumps(answer))
    os._exit(0)


def counts_of(module: str, named: str = "") -> Counts:
    """Try the changes of one module, in this process, which imports it and collects its tests."""
    plugin = Mutating(ROOT / module, named, reasons(module))
    tests = [str(ROOT / "tests" / name) for name in PROOFS[module]]
    quiet = ("-s", "-q", "--no-header", "--no-summary", "-p", "no:cacheprovider", "-m", "not nightly")
    code = pytest.main([*quiet, *tests], plugins=[plugin])
    if code != pytest.ExitCode.OK:
        raise RuntimeError(f"{module}: pytest ended with {code}")
    return plugin.counts


def reasons(module: str) -> dict[str, str]:
    """The changes of a module that are listed as equivalent, each with its reason."""
    listed = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8"))
    return {one["change"]: one["reason"] for one in listed.get(module, ())}


def table(counts: Mapping[str, Counts]) -> str:
    """The counts as Markdown."""
    rows = ["| module | changes | killed | equivalent | alive | seconds |", "|---|---|---|---|---|---|"]
    for name, of in counts.items():
        rows.append(
            f"| {name} | {of.all} | {of.killed} | {of.equivalent} | {len(of.alive)} | {of.seconds:.0f} |"
        )
    return "\n".join(rows)


def main() -> None:
    """Try the changes of some modules or of all; exit 1 if one is alive."""
    parser = argparse.ArgumentParser(prog="benchmarks.proof_mutations", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--module", choices=sorted(PROOFS), action="append", help="a module; repeatable", metavar="FILE"
    )
    parser.add_argument("--named", default="", metavar="TEXT", help="only changes whose name contains this")
    parser.add_argument("--out", type=Path, metavar="FILE", help="keep the counts here, as JSON")
    options = parser.parse_args()
    counts: dict[str, Counts] = {}
    fresh = multiprocessing.get_context("spawn")
    for module in options.module or PROOFS:
        with fresh.Pool(1) as pool:  # a process for each, as pytest keeps what it has imported
            counts[module] = pool.apply(counts_of, (module, options.named))
        if options.out is not None:
            keep(options.out, module, counts[module])
    print(table(counts))
    raise SystemExit(any(of.alive for of in counts.values()))


def keep(file: Path, module: str, counts: Counts) -> None:
    """Put a module's counts into a file, beside those of the others."""
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    known[module] = {**vars(counts), "seconds": round(counts.seconds)}
    file.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

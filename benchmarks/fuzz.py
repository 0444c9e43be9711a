"""Fuzz loops, networks, schedules and conversions: the property tests, with new seeds, in processes, for a given time.

    seed -> batches of cases of a property -> processes -> a Count each -> the table, and the text of each failure

`make fuzz OPTIONS="--minutes 10 --jobs 4 --seed 7"`. A case *agrees* when what polyfuse computes is what the oracle,
NumPy or Python computes; it is *refused* when polyfuse says that it does not take it. hypothesis minimises a failure
where it draws the case itself, for a minute; a program of loops is reduced by `polyfuse.checks.reduce`. A case that
takes longer than `--limit` is stopped, and a process may die; both count as failed, with the seed that makes it again.

With `--out FILE` the counts are written after each batch, and a later run with the same file adds to them, with seeds
that no run before had: so do 100,000 random array programs, in nights or in minutes between other work:

    python -m benchmarks.fuzz --only arrays --only "array types" --cases 50000 --minutes 600 --out FILE
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import multiprocessing
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis.internal.conjecture import engine
from hypothesis.statistics import collector

from polyfuse.checks.reduce import Options, reduced, trial

Property = Callable[..., None]

PROPERTIES: Mapping[str, str] = {
    "loops": "tests.random.test_random_programs:test_random_programs",
    "conversions": "tests.frontend.python.test_random_loops:test_random_loops_mean_what_python_means",
    "networks": "tests.nn.test_random_networks:test_random_networks",
    "schedules": "tests.random.test_random_schedules:test_random_schedules",
    "verbs": "tests.random.test_random_programs:test_random_verbs_on_random_programs",
    "plans": "tests.random.test_random_plans:test_random_plans",
    "products": "tests.random.test_random_products:test_machine_code_is_what_the_oracle_says",
    "gathers": "tests.random.test_random_gathers:test_rows_that_integers_choose",
    "places": "tests.frontend.python.test_random_places:test_random_updates_at_places",
    "arrays": "tests.frontend.python.numpy.test_random_arrays:test_random_arrays_mean_what_numpy_means",
    "array types": "tests.frontend.python.numpy.test_random_types:test_random_types_mean_what_numpy_means",
    "array tests": "tests.frontend.python.numpy.test_random_tests:test_random_tests_mean_what_numpy_means",
    "types": "tests.random.test_random_types:test_both_targets_have_numpys_types",
}
"""A kind of case and the test that makes and checks such cases."""

REFUSED = ("refused", "invalid", "not affine")
"""Prefixes of the hypothesis events that mark a case which polyfuse refused."""

BATCH = 20
"""Cases of a process: few, so that a failure does not end many, and that a seed makes them again in minutes."""

LONG: Mapping[str, int] = {"arrays": 500, "array types": 500}
"""Cases of a process of kinds that take a hundredth of the time in which a process starts."""

SHRINKING = 60
"""Seconds for a failure to be minimised; hypothesis has 300."""


@dataclass
class Count:
    """Numbers of cases that ran, agreed and were refused, and the text of each failure."""

    cases: int = 0
    agreed: int = 0
    refused: int = 0
    failures: list[str] = field(default_factory=list)

    def __iadd__(self, other: Count) -> Count:
        self.cases += other.cases
        self.agreed += other.agreed
        self.refused += other.refused
        self.failures += other.failures
        return self


def main() -> None:
    """Fuzz for the time asked for; exit 1 if a case of this run failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=5.0, help="start no batch after this time")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument(
        "--seed", type=int, default=0, help="the seed of the first batch; each next has one more"
    )
    parser.add_argument("--cases", type=int, help="start no batch of a kind that has so many cases")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds after which a case is stopped")
    parser.add_argument("--only", choices=sorted(PROPERTIES), action="append", help="a kind; repeatable")
    parser.add_argument("--out", type=Path, help="JSON file of counts, to which this run's are added")
    given = parser.parse_args()
    kept = Kept.read(given.out, given.seed)
    kinds = given.only or list(PROPERTIES)
    before = kept.failed()
    counts = fuzzed(kinds, kept, 60 * given.minutes, given.jobs, given.limit, given.cases, print)
    print(table(counts))
    raise SystemExit(kept.failed() > before)


def table(counts: Mapping[str, Count]) -> str:
    """The counts as Markdown."""
    rows = ["| kind | cases | agreed | refused | failed |", "|---|---|---|---|---|"]
    total = Count()
    for kind, count in counts.items():
        total += count
        rows.append(f"| {kind} | {count.cases} | {count.agreed} | {count.refused} | {len(count.failures)} |")
    rows.append(f"| all | {total.cases} | {total.agreed} | {total.refused} | {len(total.failures)} |")
    return "\n".join(rows)


@dataclass
class Kept:
    """The counts of all runs with one file, and the seed of the next batch.

    Attributes:
        path: The file; None keeps the counts in memory alone.
        seed: One more than the seeds of all batches that were begun.
        counts: The counts by kind.
    """

    path: Path | None
    seed: int
    counts: dict[str, Count] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path | None, seed: int) -> Kept:
        """Read the counts of the runs before; without the file there are none, and the first seed is as given."""
        if path is None or not path.exists():
            return cls(path, seed)
        told = json.loads(path.read_text())
        return cls(path, told["next seed"], {kind: Count(**one) for kind, one in told["counts"].items()})

    def failed(self) -> int:
        """The number of failures of all runs."""
        return sum(len(count.failures) for count in self.counts.values())

    def add(self, kind: str, count: Count) -> None:
        """Add a batch's counts, and write the file."""
        self.counts.setdefault(kind, Count())
        self.counts[kind] += count
        if self.path is not None:
            told = {"next seed": self.seed, "counts": {k: vars(c) for k, c in sorted(self.counts.items())}}
            self.path.write_text(json.dumps(told, indent=1) + "\n")


@dataclass
class Batch:
    """A process that runs cases of one kind, and what it said last."""

    kind: str
    seed: int
    process: BaseProcess
    pipe: Connection
    heard: float
    begun: int = 0


def fuzzed(
    kinds: list[str],
    kept: Kept,
    seconds: float,
    jobs: int,
    limit: float,
    cases: int | None,
    say: Callable[[str], None],
) -> dict[str, Count]:
    """Run batches of the kinds in turn until the time is over, or each has so many cases; the counts by kind."""
    for kind in kinds:
        kept.counts.setdefault(kind, Count())
    waiting = _seeds(kinds, kept, cases)
    running: list[Batch] = []
    start = time.monotonic()
    while True:
        while len(running) < jobs and time.monotonic() - start < seconds:
            following = next(waiting, None)
            if following is None:
                break
            running.append(_started(*following))
        if not running:
            return {kind: kept.counts[kind] for kind in kinds}
        for batch in list(running):
            done = _heard(batch, limit)
            if done is not None:
                running.remove(batch)
                kept.add(batch.kind, done)
                for failure in done.failures:
                    say(f"{batch.kind}, seed {batch.seed}: {failure}")


def _seeds(kinds: list[str], kept: Kept, cases: int | None) -> Iterator[tuple[str, int]]:
    """Each kind that has fewer cases than wanted, with the next seed, again and again."""
    while wanted := [kind for kind in kinds if cases is None or kept.counts[kind].cases < cases]:
        number, kept.seed = kept.seed, kept.seed + 1
        yield from ((kind, number) for kind in wanted)


def _started(kind: str, seed: int) -> Batch:
    """A process of its own for a batch: a crash or a hang of one is not one of all."""
    here, there = multiprocessing.get_context("spawn").Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=_run, args=(kind, seed, there))
    process.start()
    there.close()
    return Batch(kind, seed, process, here, time.monotonic())


def _heard(batch: Batch, limit: float) -> Count | None:
    """Return the counts of a finished or stopped batch; None while it runs."""
    again = f"python -m benchmarks.fuzz --only {batch.kind} --seed {batch.seed} --minutes 0.01 --jobs 1"
    try:
        while batch.pipe.poll(0.1):
            batch.heard, message = time.monotonic(), batch.pipe.recv()
            if isinstance(message, Count):
                batch.process.join()
                return message
            batch.begun = message
    except EOFError:
        batch.process.join()
        why = f"the process ended with {batch.process.exitcode}"
    else:
        if time.monotonic() - batch.heard < limit:
            return None
        batch.process.kill()
        batch.process.join()
        why = f"not done after {limit:.0f} s"
    agreed = max(0, batch.begun - 1)
    return Count(batch.begun, agreed, 0, [f"case {batch.begun}: {why}; again: {again}"])


def _run(kind: str, seed: int, pipe: Connection) -> None:
    """Run a batch in this process; say the number of each case as it begins, and then the count."""
    hypothesis.settings.register_profile(
        "fuzz", deadline=None, derandomize=False, database=None, max_examples=100, print_blob=False
    )
    hypothesis.settings.load_profile("fuzz")
    module, _, name = PROPERTIES[kind].partition(":")
    pipe.send(
        batch_of(getattr(importlib.import_module(module), name), seed, LONG.get(kind, BATCH), pipe.send)
    )
    pipe.close()


def batch_of(test: Property, seed: int, size: int, begin: Callable[[int], None]) -> Count:
    """Draw cases of a property and check them; hypothesis minimises the one that fails, which ends the batch."""
    count = Count()
    drawn: dict[str, Any] = {}
    handle: Any = test
    inner = handle.hypothesis.inner_test

    def counted(*args: Any, **given: Any) -> None:
        count.cases += 1
        begin(count.cases)
        drawn.clear()
        drawn.update(given)
        inner(*args, **given)

    handle.hypothesis.inner_test = counted
    given = handle._hypothesis_internal_use_settings
    phases = [phase for phase in given.phases if phase not in (Phase.explicit, Phase.reuse)]
    handle._hypothesis_internal_use_settings = hypothesis.settings(
        given,
        max_examples=size,
        derandomize=False,
        database=None,
        phases=phases,
        suppress_health_check=list(HealthCheck),
    )
    statistics: list[Any] = []
    with tempfile.TemporaryDirectory() as folder:
        wanted: dict[str, Any] = {"folder": Path(folder), "tally": Counter()}
        fixtures = {name: wanted[name] for name in wanted if name in inspect.signature(test).parameters}
        try:
            with (
                collector.with_value(statistics.append),  # type: ignore[arg-type]
                patch.object(engine, "MAX_SHRINKING_SECONDS", SHRINKING),
            ):
                hypothesis.seed(seed)(test)(**fixtures)
        except Exception as error:  # noqa: BLE001  any failure of a property is what is looked for
            count.failures.append(_told(error) + _reduced(test, drawn))
        finally:
            handle.hypothesis.inner_test = inner
    for case in (case for phase in statistics for case in _cases(phase)):
        events = " ".join(case["events"]) if case["status"] == "valid" else "invalid"
        if events.startswith(REFUSED):
            count.refused += 1
        elif case["status"] in ("valid", "invalid"):
            count.agreed += 1
    return count


def _cases(statistics: Mapping[str, Any]) -> list[Any]:
    """The cases that were drawn, not those of shrinking."""
    return [
        case
        for phase in ("reuse-phase", "generate-phase")
        for case in statistics.get(phase, {}).get("test-cases", ())
    ]


def _told(error: Exception) -> str:
    """An exception as text: where it was raised, what it says, and hypothesis's minimal example."""
    frames = traceback.format_tb(error.__traceback__)[-2:]
    lines = [*frames, f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())]
    return "\n" + "\n".join(line.rstrip() for line in lines)


def _reduced(test: Property, drawn: Mapping[str, Any]) -> str:
    """The program of loops of a case of `loops`, after reduction; nothing for other kinds."""
    if getattr(test, "__name__", "") != "test_random_programs":
        return ""
    from tests.random.test_random_programs import Program

    text = "import polyfuse as pf\n" + Program(Random(drawn["seed"])).source.replace(
        "def ", "@pf.nest\ndef ", 1
    )
    shown = []
    for target in ("cpu", "cuda"):
        options = Options(
            target, "h200" if target == "cuda" else None, "lockstep" if target == "cuda" else None
        )
        outcome = trial(text, options)
        if outcome.fails:
            shown.append(f"\n{target}: {outcome}\n{reduced(text, options, outcome, seconds=120)}")
    return "".join(shown)


if __name__ == "__main__":
    main()

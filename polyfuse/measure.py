"""Measuring: callables timed in turns, and the facts about a machine that a figure is worth nothing without.

    A B C  A B C  A B C …      each letter: a pause, one call that is not counted, then enough calls, timed together

In turns, so that a clock that changes or a neighbour that wakes up meets all of them alike; the median, so that one
interruption does not decide. The pause goes on until no thread of the process is busy: those of one library go on
spinning after its last call (OpenBLAS's for 105 ms on a Zen 5), on the cores that the next candidate needs. A ratio is
only worth something between rows of one run.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

Clock = Callable[[], float]

PACKAGES = ("polyfuse", "numpy", "numba", "islpy", "sympy", "numba-cuda", "cuda-core")
"""Whose versions a figure depends on."""

BUSY = 0.1
"""The part of a CPU that threads may take while all of them rest."""

SETTLED = 2.0
"""Seconds after which a turn begins all the same."""


@dataclass(frozen=True)
class Timing:
    """Seconds per call: the median turn, the quartiles around it, the best turn.

    `calls` were timed together in each turn. A best far below the low quartile says that others used the machine.
    """

    median: float
    low: float
    high: float
    best: float
    turns: int
    calls: int

    def __str__(self) -> str:
        return f"{duration(self.median)} ({duration(self.low)} – {duration(self.high)}), best {duration(self.best)}"


def in_turns(
    candidates: Mapping[str, Callable[[], object]],
    turns: int = 25,
    seconds: float = 0.004,
    pause: float = 0.05,
    after_turn: Callable[[int], None] | None = None,
    clock: Clock = time.perf_counter,
) -> dict[str, Timing]:
    """Time callables in turns; each turn of each takes about `seconds`, or one call where a call takes longer.

    Before each there is a `pause`, in seconds, or more where threads are still busy. Every callable runs before the
    clock starts. `after_turn` gets the number of turns done, to show progress. For one thread on a machine that others
    use, `time.process_time` is a `clock` that stands still while they run.
    """
    calls = {name: _calls(candidate, seconds, clock) for name, candidate in candidates.items()}
    taken: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(turns):
        for name, candidate in candidates.items():
            settle(pause)
            candidate()
            taken[name].append(_seconds(candidate, calls[name], clock))
        if after_turn is not None:
            after_turn(turn + 1)
    return {name: _timing(values, calls[name]) for name, values in taken.items()}


def in_turns_prepared(
    candidates: Mapping[str, Callable[[], object]],
    prepare: Callable[[], object],
    seconds: float = 3.0,
    turns: tuple[int, int] = (3, 25),
    pause: float = 0.05,
    clock: Clock = time.perf_counter,
) -> dict[str, tuple[float, ...]]:
    """The seconds of each turn of callables that change what they are given: one call a turn, `prepare` before it.

    Every callable should have run before. Turns go on until all calls together took `seconds` for each candidate, but
    there are at least and at most so many `turns`. One turn's calls stand at the same place in each tuple. In the
    `pause` the threads of the candidate before go to sleep, and so does the processor: a call that is not longer than
    the pause is made twice, and the second one counts (a call of 0.25 ms took 0.58 ms right after the pause).
    """
    taken: dict[str, list[float]] = {name: [] for name in candidates}
    least, most = turns
    for turn in range(most):
        if turn >= least and sum(map(sum, taken.values())) >= seconds * len(candidates):
            break
        for name, candidate in candidates.items():
            prepare()
            settle(pause)
            once = _seconds(candidate, 1, clock)
            if once <= pause:
                prepare()
                once = _seconds(candidate, 1, clock)
            taken[name].append(once)
    return {name: tuple(values) for name, values in taken.items()}


def settle(pause: float, cpu_seconds: Clock = time.process_time) -> None:
    """Wait for `pause` seconds, again and again until no thread was busy meanwhile, by the CPU time of a process."""
    end = time.perf_counter() + SETTLED * (pause > 0)
    busy = True
    while busy and time.perf_counter() < end:
        before, start = cpu_seconds(), time.perf_counter()
        time.sleep(pause)
        busy = cpu_seconds() - before > BUSY * (time.perf_counter() - start)


def _calls(candidate: Callable[[], object], seconds: float, clock: Clock) -> int:
    candidate()
    once = min(_seconds(candidate, 1, clock) for _ in range(3))
    return max(1, round(seconds / max(once, 1e-9)))


def _seconds(candidate: Callable[[], object], calls: int, clock: Clock) -> float:
    start = clock()
    for _ in range(calls):
        candidate()
    return (clock() - start) / calls


def _timing(values: list[float], calls: int) -> Timing:
    low, median, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    return Timing(median, low, high, min(values), len(values), calls)


def duration(seconds: float) -> str:
    """Seconds for a person, three digits.

    >>> duration(0.00123)
    '1.23 ms'
    >>> duration(0.0000456)
    '45.6 µs'
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def environment() -> dict[str, object]:
    """What a results file says of where it was made: date, CPU, usable CPUs, load, versions, commit."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": cpu_name(),
        "cpus": usable_cpus(),
        "load": load(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": versions(),
        "commit": commit(),
    }


def cpu_name() -> str:
    """The CPU's model as Linux gives it, else what Python knows."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def usable_cpus() -> int:
    """The CPUs this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def load() -> float | None:
    """How many processes wanted a CPU over the last minute; None where the system does not say."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def versions() -> dict[str, str]:
    """The installed versions of the packages that figures depend on; absent ones are left out."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def commit() -> str | None:
    """The commit of the checkout this package runs from, "+changes" if files differ; None outside a checkout."""
    root = Path(__file__).parent.parent
    if not (root / ".git").exists():
        return None
    try:
        head = _git(root, "rev-parse", "HEAD")
        changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{head}+changes" if changed else head


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()

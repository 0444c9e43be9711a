"""Measurement: time callables in turns, and record the facts about a machine that a figure needs.

    A B C  A B C  A B C …      each letter: a pause, one call that is not counted, then enough calls, timed together

In turns, so that a clock that changes or a neighbour that wakes up meets all of them alike; the median, so that one
interruption does not decide. The pause goes on until no thread of the process is busy: those of one library go on
spinning after its last call (OpenBLAS's for 105 ms on a Zen 5), on the cores that the next candidate needs. A ratio is
only worth something between rows of one run.
"""

from __future__ import annotations

import logging
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

STAGES = logging.getLogger("polyfuse.stages")
"""Says which stage of a compile begins, at level INFO: for what shows progress. Nothing reads it by default."""

Clock = Callable[[], float]

PACKAGES = ("polyfuse", "numpy", "numba", "islpy", "sympy", "numba-cuda", "cuda-core")
"""Whose versions a figure depends on."""

BUSY = 0.1
"""The part of a CPU that threads may take while all of them rest."""

SETTLED = 2.0
"""Seconds after which a turn begins all the same."""


@dataclass(frozen=True)
class Timing:
    """The distribution of a candidate's seconds per call over all turns.

    A best far below the low quartile indicates that other processes used the machine.

    Attributes:
        median: Seconds per call of the median turn.
        low: The lower quartile.
        high: The upper quartile.
        best: The fastest turn.
        turns: The number of turns.
        calls: Calls timed together in each turn.
    """

    median: float
    low: float
    high: float
    best: float
    turns: int
    calls: int

    @staticmethod
    def of(values: list[float], calls: int) -> Timing:
        """Return the distribution of some turns.

        Args:
            values: Seconds per call of each turn.
            calls: Calls timed together in each turn.

        Returns:
            The distribution.
        """
        # "inclusive": of few values the other method goes beyond them, below zero too
        several = len(values) > 1
        low, median, high = statistics.quantiles(values, n=4, method="inclusive") if several else values * 3
        return Timing(median, low, high, min(values), len(values), calls)

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
    """Time candidates in turns, so that all of them see the same disturbances.

    Every callable runs once before the clock starts.

    Args:
        candidates: Callables by name.
        turns: The number of turns of each candidate.
        seconds: The time of one turn, or of one call where a call takes longer.
        pause: Seconds to wait before each candidate, or longer while threads are still busy.
        after_turn: Called with the number of turns done, to show progress.
        clock: The clock. `time.process_time` leaves out other processes, for one thread on a shared machine.

    Returns:
        A Timing by name.
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
    return {name: Timing.of(values, calls[name]) for name, values in taken.items()}


def in_turns_prepared(
    candidates: Mapping[str, Callable[[], object]],
    prepare: Callable[[], object],
    seconds: float = 3.0,
    turns: tuple[int, int] = (3, 25),
    pause: float = 0.05,
    clock: Clock = time.perf_counter,
) -> dict[str, tuple[float, ...]]:
    """Time candidates that modify their arguments: one call a turn, each after `prepare`.

    Every callable should have run before. A call shorter than the pause is made twice and the second one counts,
    because threads and processor wake up in the first (a call of 0.25 ms took 0.58 ms right after the pause).

    Args:
        candidates: Callables by name.
        prepare: Called before each timed call.
        seconds: The total time of calls per candidate after which no further turn starts.
        turns: The least and the greatest number of turns.
        pause: Seconds to wait before each candidate.
        clock: The clock.

    Returns:
        The seconds of each turn by name; entries at one position belong to the same turn.
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
    """Wait in steps of `pause` seconds until the process's threads are idle.

    Args:
        pause: Seconds of a step.
        cpu_seconds: The clock that measures the process's CPU time.
    """
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


def duration(seconds: float) -> str:
    """Format seconds for a reader, with three digits.

    Args:
        seconds: The time.

    Returns:
        The number with a unit.

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
    """Return what identifies a measurement's environment: date, CPU, usable CPUs, load, versions, commit."""
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
    """Return the CPU's model name from Linux, else from Python's platform module."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def usable_cpus() -> int:
    """Return the number of CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def load() -> float | None:
    """Return the load average of the last minute; None if the system does not provide it."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def versions() -> dict[str, str]:
    """Return the installed versions of the packages that affect performance; absent ones are left out."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def commit() -> str | None:
    """Return the commit of the checkout that this package runs from; None outside of one.

    Returns:
        The hash, with "+changes" if files differ.
    """
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

"""Time on the device, in turns.

    ours A B …  ours A B …     each letter: one call that is not counted, then calls that take about TURN together

A call is one of a side's `calls`, taken one after the other: each works on arrays of its own, together larger than the
L2 cache, so that none finds its arrays there. A ratio is a side's time over another's in the same turn; medians count.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle, islice
from typing import Any

TURN = 0.003
"""Seconds of calls that are timed together, where one takes less."""

QUEUED = 16
"""Calls that the host is timed for, one by one: behind some 32 on an H200 it waited for the device."""

Call = Callable[[], Any]
Clock = Callable[[Callable[[], object]], float]
"""Seconds that the device needs for what a function queues; returns when it is done."""


def in_turns(sides: Mapping[str, Sequence[Call]], turns: int, clock: Clock) -> dict[str, list[float]]:
    """Seconds a call of each side in each turn; one turn's stand at the same place."""
    rings = {label: cycle(calls) for label, calls in sides.items()}
    counts = {label: _count(rings[label], len(calls), clock) for label, calls in sides.items()}
    taken: dict[str, list[float]] = {label: [] for label in sides}
    for _ in range(turns):
        for label, ring in rings.items():
            next(ring)()
            taken[label].append(clock(lambda r=ring, n=counts[label]: _run(r, n)) / counts[label])
    return taken


def _count(ring: Any, sets: int, clock: Clock) -> int:
    _run(ring, 2 * sets)  # on the second round, addresses have come before and launches are captured
    once = min(clock(lambda: _run(ring, sets)) / sets for _ in range(3))
    return max(1, round(TURN / max(once, 1e-9)))


def _run(ring: Any, count: int) -> None:
    for call in islice(ring, count):
        call()


def host_seconds(calls: Sequence[Call], clock: Clock, turns: int = 5) -> float:
    """Seconds that the host needs to queue a call, the median over several times QUEUED of them."""
    found: list[float] = []

    def queue() -> None:
        for call in islice(cycle(calls), QUEUED):
            start = time.perf_counter()
            call()
            found.append(time.perf_counter() - start)

    for _ in range(turns):
        clock(queue)
    return statistics.median(found)


def ratio(seconds: Sequence[float], over: Sequence[float]) -> float:
    """The median over turns of one side's time over another's."""
    return statistics.median(a / b for a, b in zip(seconds, over, strict=True))

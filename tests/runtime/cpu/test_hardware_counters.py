from __future__ import annotations

import errno
import os

import pytest

from polyfuse.runtime.cpu import hardware_counters
from polyfuse.runtime.cpu.hardware_counters import SOFTWARE, Counts, Event, counted

TASK_CLOCK = Event("nanoseconds", SOFTWARE, 1)
"""What the kernel counts itself, on machines without counters too."""


def test_calls_are_counted_and_what_is_before_them_is_not() -> None:
    def long() -> None:
        sum(range(200_000))

    found = counted(long, lambda: None, 2, [TASK_CLOCK])
    if found.refused:
        pytest.skip(found.refused)
    around = counted(lambda: None, long, 2, [TASK_CLOCK])
    assert found.values["nanoseconds"] > 10 * around.values["nanoseconds"] > 0


def test_what_is_refused_is_said_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(event: Event, thread: int) -> int:
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))

    monkeypatch.setattr(hardware_counters, "_opened", refused)
    found = counted(lambda: None, lambda: None, 1)
    assert not found.values
    said = "no hardware counters: perf_event_open refuses cycles here (No such file or directory)"
    assert found.refused == str(found) == said


def test_counts_are_said_with_their_rate() -> None:
    found = Counts({"cycles": 1000.0, "instructions": 2500.0})
    assert str(found) == "counted in a call: 1,000 cycles, 2,500 instructions; 2.50 instructions a cycle"

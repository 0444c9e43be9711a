"""The processor's counters while some calls run, by Linux's perf_event_open.

A counter is opened for each thread of the process and each event, and counts in user mode alone. Where the kernel has
more events than the processor has counters it counts each for a part of the time; values are scaled by that part.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import struct
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

HARDWARE, SOFTWARE = 0, 1
"""PERF_TYPE_HARDWARE, PERF_TYPE_SOFTWARE."""

_NUMBERS = {"x86_64": 298, "aarch64": 241}
"""The number of the system call by machine."""

_SIZE = 64
"""PERF_ATTR_SIZE_VER0: the attributes that every kernel knows."""

_DISABLED, _EXCLUDE_KERNEL, _EXCLUDE_HV = 1 << 0, 1 << 5, 1 << 6
_ENABLED_AND_RUNNING = 0b11
_ENABLE, _DISABLE = 0x2400, 0x2401


@dataclass(frozen=True)
class Event:
    """Something that is counted: its name, and perf's type and number of it."""

    name: str
    kind: int
    number: int


EVENTS = (
    Event("cycles", HARDWARE, 0),
    Event("instructions", HARDWARE, 1),
    Event("cache references", HARDWARE, 2),
    Event("cache misses", HARDWARE, 3),
    Event("branch misses", HARDWARE, 5),
)
"""What a profile counts. References are to the last cache, or what the processor calls so."""

MOST_COUNTED = 16
"""Calls that a profile counts at most."""


@dataclass(frozen=True)
class Counts:
    """What was counted in one call.

    Attributes:
        values: By event, the mean of the calls, of all threads together; without those that this machine does not have.
        refused: Why nothing was counted, as a sentence; "" if something was.
    """

    values: dict[str, float] = field(default_factory=dict)
    refused: str = ""

    def __str__(self) -> str:
        if not self.values:
            return self.refused
        text = ", ".join(f"{value:,.0f} {name}" for name, value in self.values.items())
        cycles, instructions = (self.values.get(name) for name in ("cycles", "instructions"))
        rate = f"; {instructions / cycles:.2f} instructions a cycle" if cycles and instructions else ""
        return f"counted in a call: {text}{rate}"


def counted(
    run: Callable[[], object], restore: Callable[[], object], calls: int, events: Sequence[Event] = EVENTS
) -> Counts:
    """Return what calls count, or why they do not.

    Args:
        run: Makes a call; its threads have been started.
        restore: Called before each call; it is not counted.
        calls: The number of calls.
        events: What to count.
    """
    with ExitStack() as stack:
        opened: list[tuple[str, int]] = []
        refused = ""
        for event in events:
            for thread in os.listdir("/proc/self/task"):
                try:
                    number = _opened(event, int(thread))
                except OSError as error:
                    refused = (
                        refused
                        or f"no hardware counters: perf_event_open refuses {event.name} here ({error.strerror})"
                    )
                    break
                stack.callback(os.close, number)
                opened.append((event.name, number))
        if not opened:
            return Counts(refused=refused)
        for _ in range(calls):
            restore()
            for _, number in opened:
                fcntl.ioctl(number, _ENABLE, 0)
            run()
            for _, number in opened:
                fcntl.ioctl(number, _DISABLE, 0)
        found: dict[str, float] = {}
        for name, number in opened:
            found[name] = found.get(name, 0.0) + _value(number) / calls
        return Counts(found)


def _opened(event: Event, thread: int) -> int:
    """The file of a counter, which does not count yet."""
    number = _NUMBERS.get(platform.machine())
    if number is None:
        raise OSError(0, f"its number is not known on {platform.machine()}")
    flags = _DISABLED | _EXCLUDE_KERNEL | _EXCLUDE_HV
    # type, size, config, sample_period, sample_type, read_format, flags
    values = struct.pack("IIQQQQQ", event.kind, _SIZE, event.number, 0, 0, _ENABLED_AND_RUNNING, flags).ljust(
        _SIZE, b"\0"
    )
    system = ctypes.CDLL(None, use_errno=True).syscall
    file: int = system(number, values, thread, -1, -1, 0)
    if file < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return file


def _value(file: int) -> float:
    """What a counter has counted, scaled to the whole time."""
    value, enabled, running = struct.unpack("QQQ", os.read(file, 24))
    return value * enabled / running if running else 0.0

"""Times in the sentences of remarks and reports."""

from __future__ import annotations

import re

UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}


def seconds_in(text: str) -> list[float]:
    """Return the times in a text, in seconds, in order.

    >>> seconds_in("1.25 ms so, 3 µs apart")
    [0.00125, 3e-06]
    """
    found = re.findall(r"([\d.]+(?:e[+-]\d+)?) (s|ms|µs|ns)\b", text)
    return [float(number) * UNITS[unit] for number, unit in found]

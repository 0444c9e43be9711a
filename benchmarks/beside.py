"""Run a command while a benchmark measures, such as one that keeps other work off the machine."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

SETTLING = 2.0
"""Seconds before anything is measured beside a command."""


@contextmanager
def running(command: Sequence[str]) -> Iterator[None]:
    """A command that runs meanwhile, until its input ends; without one, nothing."""
    if not command:
        yield
        return
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        time.sleep(SETTLING)
        yield
        assert process.stdin is not None
        process.stdin.close()

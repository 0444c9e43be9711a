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
        if process.poll() is not None:
            raise SystemExit(f"{' '.join(command)} ended before anything was measured beside it")
        yield  # leaving the block closes the command's input and waits for it

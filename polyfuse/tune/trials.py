"""What a user asks of a search."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass

from polyfuse.errors import InvalidTuning


@dataclass(frozen=True)
class Trials:
    """How long to search, and where to measure.

    The search ends after `count` schedules, or after `seconds`, if that comes first; the model's own choice is the
    first. `executor` runs the trials: this process without one, else any concurrent.futures.Executor, such as a
    ProcessPoolExecutor or Dask's `client.get_executor()`, which gets `at_once` of them at a time. Trials side by side
    on one machine disturb each other. The same `seed` tries the same schedules if they take the same times.

    Raises InvalidTuning for numbers that ask for nothing.
    """

    count: int = 50
    seconds: float | None = None
    executor: Executor | None = None
    at_once: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value in (("count", self.count), ("at_once", self.at_once)):
            if not isinstance(value, int) or value < 1:
                raise InvalidTuning(f"Trials({name}={value!r}): expected a whole number, at least 1")
        if self.seconds is not None and not self.seconds > 0:
            raise InvalidTuning(
                f"Trials(seconds={self.seconds!r}): expected more than 0, or None for no limit"
            )

"""The options of a search."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass

from polyfuse.errors import InvalidTuning


@dataclass(frozen=True)
class Trials:
    """The length of a search for a schedule, and where it is measured.

    The model's own choice is the first trial. The search ends after `count` schedules or `seconds`, whichever comes
    first. The same `seed` tries the same schedules if they take the same times. Numbers below 1 raise InvalidTuning.

    Attributes:
        count: The number of schedules.
        seconds: The time limit; None for none.
        executor: Runs the trials: by default this process, else any concurrent.futures.Executor, such as a
            ProcessPoolExecutor or Dask's `client.get_executor()`.
        at_once: The number of trials that the executor gets at a time. Concurrent trials on one machine disturb each
            other.
        seed: The sampler's seed.
    """

    count: int = 50
    seconds: float | None = None
    executor: Executor | None = None
    at_once: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value in (("count", self.count), ("at_once", self.at_once)):
            if not isinstance(value, int) or value < 1:
                raise InvalidTuning(f"Trials({name}={value!r}): expected an integer, at least 1")
        if self.seconds is not None and not self.seconds > 0:
            raise InvalidTuning(
                f"Trials(seconds={self.seconds!r}): expected more than 0, or None for no limit"
            )

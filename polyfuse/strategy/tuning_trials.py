"""The measurements of a search for a schedule.

tuning ::= trial*           trial 0 is the model's own choice
trial  ::= picks  predicted seconds  (measured seconds, and as a part of the model's choice's | why not)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import StatisticsError, correlation

from polyfuse.errors import quantity
from polyfuse.errors.viewed import Viewed
from polyfuse.measure import duration


@dataclass(frozen=True)
class Trial:
    """One schedule of a search.

    `parameters` says what the search varied: by name, the position taken and how many options there were; `picks` the
    same by the strategy's questions, of which several may share a parameter. `predicted` is what the model expects of
    the kernels that were asked about, `seconds` the median of a call; `ratio` that as a part of what the model's own
    choice took in the same turn, the median of turns: below 1 is faster. Both are infinite for a schedule that was
    refused, and `refused` says why. `digest` tells schedules apart.
    """

    parameters: Mapping[str, tuple[int, int]]
    picks: Mapping[str, int]
    predicted: float
    digest: str
    seconds: float = math.inf
    ratio: float = math.inf
    refused: str = ""


@dataclass(frozen=True)
class Tuning(Viewed):
    """The trials of a search, in order, the seconds they took, and why it ended."""

    trials: tuple[Trial, ...]
    spent: float
    ended: str

    @property
    def best(self) -> Trial:
        """The fastest trial; the model's choice if nothing beats it."""
        return min(self.trials, key=lambda trial: trial.ratio)

    @property
    def best_so_far(self) -> tuple[float, ...]:
        """After each trial, the least time so far as a part of the model's choice's."""
        return tuple(accumulate((trial.ratio for trial in self.trials), min))

    def seconds_of(self, trial: Trial) -> float:
        """Return a trial's time beside the model's own choice as that was measured first: their order is the ratios'.

        Seconds of two trials were measured at different moments, at which the computer may have been differently fast.
        """
        return trial.ratio * self.trials[0].seconds

    @property
    def rank_correlation(self) -> float | None:
        """Of the order that the model expects and the order measured; None if one of them is no order."""
        timed = [trial for trial in self.trials if not trial.refused]
        return spearman([trial.predicted for trial in timed], [trial.ratio for trial in timed])

    def __repr__(self) -> str:
        return (
            f"<Tuning: {quantity(len(self.trials), 'trial')} in {duration(self.spent)}; the best takes "
            f"{duration(self.seconds_of(self.best))}, {self.best.ratio:.2f} of the model's choice>"
        )

    def __str__(self) -> str:
        best, refused = self.best, sum(bool(trial.refused) for trial in self.trials)
        order = self.rank_correlation
        return (
            f"{quantity(len(self.trials), 'trial')} in {duration(self.spent)}, {refused} refused ({self.ended}); "
            f"the best is trial {self.trials.index(best)}: {duration(self.seconds_of(best))}, "
            f"{best.ratio:.2f} of the model's choice; rank correlation of the model's order and the measured one: "
            f"{'none' if order is None else f'{order:.2f}'}"
        )


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's rank correlation, equal values sharing their ranks; None for fewer than two different values.

    >>> spearman([1, 2, 3], [10, 30, 20])
    0.5
    """
    try:
        return correlation(ranks(first), ranks(second))
    except StatisticsError:
        return None


def ranks(values: Sequence[float]) -> list[float]:
    """Each value's place, from 1; equal ones get the mean of theirs.

    >>> ranks([5, 7, 5])
    [1.5, 3.0, 1.5]
    """
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) + 1) / 2 for value in values]

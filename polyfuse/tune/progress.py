"""Show a running search on a terminal: a bar, the best time so far, and its curve."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from polyfuse.measure import duration
from polyfuse.strategy.tuning_trials import Tuning

BARS = "▁▂▃▄▅▆▇█"
WIDTH = 24
"""Columns of the curve."""


class Shown:
    """A line on standard error, if that is a terminal; nothing elsewhere."""

    def __init__(self, name: str, count: int) -> None:
        console = Console(stderr=True)
        text = TextColumn("{task.description}", markup=False)
        columns = (text, BarColumn(WIDTH), MofNCompleteColumn(), TimeElapsedColumn())
        self._name = name
        self._progress = Progress(
            *columns, console=console, disable=not console.is_terminal, redirect_stdout=False
        )
        self._task = self._progress.add_task(f"tuning {name}", total=count)

    def __enter__(self) -> Shown:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def update(self, tuning: Tuning) -> None:
        """Show one more trial."""
        self._progress.update(
            self._task, completed=len(tuning.trials), description=described(self._name, tuning)
        )


def described(name: str, tuning: Tuning) -> str:
    """The best so far as text: its time, the part of the model's choice's that it takes, the curve."""
    best = tuning.best
    return (
        f"tuning {name}: {duration(tuning.seconds_of(best))}, {best.ratio:.2f} of the model's {curve(tuning)}"
    )


def curve(tuning: Tuning) -> str:
    """The best so far, trial by trial, from 0 to the first trial's time; the last ones if there are many."""
    values = tuning.best_so_far[-WIDTH:]
    return "".join(BARS[min(len(BARS) - 1, int(value * len(BARS)))] for value in values)

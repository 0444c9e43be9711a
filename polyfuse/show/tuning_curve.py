"""Plot a search for a schedule: each trial as a point, the best so far as a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyfuse.errors.proving import proving
from polyfuse.show.log_ticks import plain_log_ticks
from polyfuse.show.optional import need
from polyfuse.strategy.tuning_trials import Tuning

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@proving("the view tuning_plot")
def tuning_plot(tuning: Tuning) -> Figure:
    """Plot the trials' times relative to the model's own choice, which is 1. Refused trials have no point.

    Args:
        tuning: The search's trials.

    Returns:
        A matplotlib Figure.

    Raises:
        TargetUnavailable: if matplotlib is not installed.
    """
    figure: Figure = need("matplotlib.figure").Figure(figsize=(6.4, 3.2), layout="constrained")
    axes = figure.subplots()
    timed = [(number, trial.ratio) for number, trial in enumerate(tuning.trials) if not trial.refused]
    axes.plot(*zip(*timed, strict=True), "o", color="#888888", label="trials")
    axes.step(range(len(tuning.trials)), tuning.best_so_far, where="post", label="best so far")
    axes.axhline(1.0, linestyle=":", color="#888888", label="the model's choice")
    axes.set(xlabel="trial", ylabel="time / time of the model's choice", yscale="log")
    plain_log_ticks(axes.yaxis)
    axes.locator_params(axis="x", integer=True)
    axes.legend()
    return figure

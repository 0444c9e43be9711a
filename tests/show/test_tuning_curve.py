"""The picture of a search."""

from __future__ import annotations

import math

import pytest

from polyfuse.show import tuning_plot
from polyfuse.strategy.tuning_trials import Trial, Tuning

pytest.importorskip("matplotlib")


def trial(ratio: float) -> Trial:
    return Trial({}, {}, 1.0, "", ratio, ratio, "" if ratio < math.inf else "results differ")


def test_a_point_a_trial_that_has_a_time_and_the_best_so_far() -> None:
    found = Tuning(tuple(map(trial, (1.0, 1.5, math.inf, 0.5, 0.75))), 1.0, "interrupted")
    points, best, model = tuning_plot(found).axes[0].lines
    assert points.get_xydata().tolist() == [[0, 1.0], [1, 1.5], [3, 0.5], [4, 0.75]]
    assert best.get_xydata().tolist() == [[0, 1.0], [1, 1.0], [2, 1.0], [3, 0.5], [4, 0.5]]
    assert set(model.get_ydata()) == {1.0}
    ticks = [text.get_text() for text in tuning_plot(found).axes[0].get_yticklabels()]
    assert {"0.5", "1", "1.5"} <= {*ticks}  # numbers, not powers of ten

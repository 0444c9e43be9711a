"""What is said of a search: the best, the best so far, and how well the model ordered the trials."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyfuse.strategy.tuning_trials import Trial, Tuning, ranks, spearman


def trial(predicted: float, ratio: float, refused: str = "") -> Trial:
    return Trial({"tiles of S": (0, 3)}, {"tiles of S": 0}, predicted, str(ratio), ratio, ratio, refused)


TRIALS = (trial(1, 1.0), trial(2, 1.5), trial(4, math.inf, "wrong"), trial(3, 0.5), trial(5, 0.75))


def test_the_best_and_the_best_so_far() -> None:
    found = Tuning(TRIALS, 2.0, "interrupted")
    assert found.best is TRIALS[3]
    assert found.best_so_far == (1.0, 1.0, 1.0, 0.5, 0.5)


def test_times_are_in_the_order_of_their_ratios() -> None:
    """The second was measured when the computer was faster: it took fewer seconds, and more of the model's choice's."""
    slow_then_fast = (
        Trial({}, {}, 1, "a", 2.0, 1.0),
        Trial({}, {}, 1, "b", 0.75, 0.75),
        Trial({}, {}, 1, "c", 1.5, 0.5),
    )
    found = Tuning(slow_then_fast, 1.0, "")
    assert found.best is slow_then_fast[2]
    assert [found.seconds_of(one) for one in slow_then_fast] == [2.0, 1.5, 1.0]
    assert "the best is trial 2: 1 s, 0.50 of the model's choice" in str(found)


def test_it_is_said_in_a_sentence() -> None:
    assert str(Tuning(TRIALS, 2.0, "interrupted")) == (
        "5 trials in 2 s, 1 refused (interrupted); the best is trial 3: 500 ms, 0.50 of the model's choice; "
        "rank correlation of the model's order and the measured one: -0.60"
    )
    assert str(Tuning(TRIALS[:1], 2.0, "")).endswith("measured one: none")


def test_a_refused_trial_has_no_place_in_the_order() -> None:
    timed = tuple(one for one in TRIALS if not one.refused)
    assert Tuning(TRIALS, 0.0, "").rank_correlation == Tuning(timed, 0.0, "").rank_correlation


VALUES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=12)


@given(VALUES)
def test_ranks_by_counting(pairs: list[tuple[int, int]]) -> None:
    values = [first for first, _ in pairs]
    for value, rank in zip(values, ranks(values), strict=True):
        assert 2 * rank == 1 + sum(v < value for v in values) + sum(v <= value for v in values)


@given(VALUES)
def test_the_correlation_of_orders(pairs: list[tuple[int, int]]) -> None:
    first, second = map(list, zip(*pairs, strict=True))
    found = spearman(first, second)
    if len(set(first)) == 1 or len(set(second)) == 1:
        assert found is None
        return
    assert found == pytest.approx(spearman(second, first))
    assert found == pytest.approx(spearman([v**3 for v in first], second)), "only the order counts"
    assert found == pytest.approx(-spearman([-v for v in first], second))
    assert spearman(first, first) == pytest.approx(1.0)

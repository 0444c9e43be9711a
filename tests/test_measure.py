"""Timing in turns, and what a results file says of its machine."""

from __future__ import annotations

import time

import pytest

import polyfuse as pf
from polyfuse import measure


def test_candidates_run_in_turns_and_are_counted() -> None:
    order: list[str] = []
    done: list[int] = []
    times = pf.measure.in_turns(
        {"a": lambda: order.append("a"), "b": lambda: order.append("b")},
        turns=3,
        seconds=0.0,
        pause=0.0,
        after_turn=done.append,
    )
    # a warm-up and three calls to find how many fit into a turn; then in each turn one uncounted and one counted
    assert "".join(order) == "aaaa" + "bbbb" + 3 * ("aa" + "bb")
    assert done == [1, 2, 3]
    assert list(times) == ["a", "b"]
    assert times["a"].turns == 3
    assert times["a"].calls == 1
    assert 0 < times["a"].best <= times["a"].low <= times["a"].median <= times["a"].high


def test_the_uncounted_call_of_a_turn_is_not_counted() -> None:
    now = 0.0
    # four calls before the turns; then pairs of an uncounted and a counted one
    costs = iter([1.0] * 4 + [50.0, 1.0, 50.0, 2.0, 50.0, 30.0])

    def call() -> None:
        nonlocal now
        now += next(costs)

    took = measure.in_turns({"call": call}, turns=3, pause=0.0, clock=lambda: now)["call"]
    assert (took.best, took.median) == (1.0, 2.0)


def test_what_changes_its_arguments_is_prepared_before_each_call() -> None:
    now, order = 0.0, ""

    def call(name: str, seconds: float) -> None:
        nonlocal now, order
        now, order = now + seconds, order + name

    candidates = {"a": lambda: call("a", 1.0), "b": lambda: call("b", 2.0)}
    clock = {"pause": 0.0, "clock": lambda: now}
    taken = measure.in_turns_prepared(candidates, lambda: call("-", 9.0), 4.0, (2, 5), **clock)
    assert order == 3 * "-a-b"  # 3 × (1 + 2) is the first sum that reaches 4 for each of the two
    assert taken == {"a": (1.0, 1.0, 1.0), "b": (2.0, 2.0, 2.0)}
    assert len(measure.in_turns_prepared(candidates, lambda: None, 0.0, (2, 5), **clock)["a"]) == 2
    assert len(measure.in_turns_prepared(candidates, lambda: None, 99.0, (2, 5), **clock)["a"]) == 5


def test_a_turn_waits_until_nobodys_threads_are_busy() -> None:
    cpu_seconds = iter([0.0, 0.001, 0.001, 0.002, 0.002, 0.002])
    start = time.perf_counter()
    measure.settle(0.001, lambda: next(cpu_seconds))  # two pauses with busy threads, and one without
    assert next(cpu_seconds, None) is None
    assert time.perf_counter() - start >= 0.003


def test_a_turn_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "SETTLED", 0.01)
    measure.settle(0.001, lambda: 1e6 * time.perf_counter())


def test_one_turn_is_its_own_quartile() -> None:
    took = measure.in_turns({"a": lambda: None}, turns=1, pause=0.0)["a"]
    assert took.low == took.median == took.high == took.best


def test_the_environment_says_what_figures_depend_on() -> None:
    about = measure.environment()
    assert about["versions"]["polyfuse"] == pf.__version__  # type: ignore[index]
    assert about["cpus"] >= 1  # type: ignore[operator]
    assert str(about["cpu"])
    assert {"date", "load", "system", "python", "commit"} <= about.keys()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(2.5, "2.5 s"), (0.0199, "19.9 ms"), (1e-6, "1 µs"), (3.2e-8, "32 ns"), (0.0, "0 ns")],
)
def test_durations(seconds: float, text: str) -> None:
    assert measure.duration(seconds) == text


def test_quartiles_lie_between_the_least_and_the_greatest_time() -> None:
    timing = measure.Timing.of([1.0, 9.0], 1)
    assert timing.best <= timing.low <= timing.median <= timing.high <= 9.0

"""Work of isl ends at a time, in the middle of a call and in later calls."""

from __future__ import annotations

import sys
import threading
import time

import islpy as isl
import pytest

from polyfuse.errors import BudgetExceeded, alarm
from polyfuse.errors.budget import LATE, at_most, stopped, until, within
from polyfuse.errors.proving import proving

CONTEXT = isl.DEFAULT_CONTEXT


def endless() -> isl.Map:
    """Seven divisors, and what lies between: isl takes minutes."""
    divisors = " - ".join(f"{d}*floor(i/{d})" for d in (3, 5, 7, 11, 13, 17, 19))
    access = isl.Map(f"{{ S[i] -> a[o] : (7i - {divisors}) mod 64 = o and 0 <= i, o < 64 }}")
    both = access.apply_range(access.reverse())
    return both.subtract(isl.Map("{ S[i] -> S[j] : exists k : i < k < j }").intersect(both))


def short() -> isl.Set:
    return isl.Set("{ [i] : 0 <= i < 4 }")


@pytest.mark.skipif(sys.platform != "linux", reason="the timer is Linux's")
def test_a_call_is_interrupted() -> None:
    start = time.monotonic()
    with pytest.raises(isl.Error, match=LATE) as caught, until(CONTEXT, 0.05):
        endless()
    assert time.monotonic() - start < 10
    assert stopped(caught.value)
    assert short().dim_max_val(0) == 3


def for_ever() -> None:
    """Short work of isl, again and again."""
    while True:
        short()


def wait() -> None:
    """Do nothing until isl is stopped."""
    while not CONTEXT.aborted():
        time.sleep(1e-3)


@pytest.mark.parametrize("native", [True, False])
def test_what_comes_later_is_refused(monkeypatch: pytest.MonkeyPatch, native: bool) -> None:
    if not native:
        monkeypatch.setattr(alarm, "_native", lambda context, seconds: None)
    with pytest.raises(isl.Error, match=LATE), until(CONTEXT, 0.01):
        for_ever()
    assert not CONTEXT.aborted()
    with until(CONTEXT, 60):
        short()


def test_another_error_after_the_time_comes_from_it() -> None:
    def asked() -> None:
        wait()
        raise ValueError("isl read nothing")

    with pytest.raises(isl.Error, match=LATE), until(CONTEXT, 1e-6):
        asked()
    with pytest.raises(ValueError, match="in time"), until(CONTEXT, 60):
        raise ValueError("in time")


def test_times_lie_inside_each_other() -> None:
    def asked() -> None:
        with until(CONTEXT, 60):
            short()
        with pytest.raises(isl.Error), until(CONTEXT, 1e-6):
            for_ever()
        short()  # the inner end is over, the outer is not
        with until(CONTEXT, 60):
            for_ever()

    with pytest.raises(isl.Error, match=LATE), until(CONTEXT, 0.1):
        asked()
    short()


def test_an_end_that_passes_inside_another_is_not_lost() -> None:
    def late() -> None:
        wait()
        time.sleep(0.03)
        short()

    def asked() -> None:
        with pytest.raises(isl.Error), until(CONTEXT, 0.01):
            late()
        short()

    with pytest.raises(isl.Error, match=LATE), until(CONTEXT, 0.02):
        asked()
    short()


def test_limits_of_operations_are_kept_through_an_end() -> None:
    def asked() -> None:
        while True:
            with at_most(CONTEXT, 1000):
                short()

    with at_most(CONTEXT, 100_000_000):
        with pytest.raises(isl.Error, match=LATE), until(CONTEXT, 0.005):
            asked()
        short()
    assert CONTEXT.get_max_operations() == 0


def test_no_other_answer_is_taken_after_the_end() -> None:
    def other() -> None:
        pytest.fail("an answer of which the caller of `until` does not know that it is another one")

    with pytest.raises(isl.Error, match=LATE), until(CONTEXT, 0.005):
        within(CONTEXT, 10**12, for_ever, other)


def test_an_end_in_a_step_says_so() -> None:
    @proving("some question")
    def asked() -> None:
        for_ever()

    with pytest.raises(BudgetExceeded, match="some question needs more time of isl"), until(CONTEXT, 1e-6):
        asked()


def test_no_thread_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alarm, "_native", lambda context, seconds: None)
    before = threading.active_count()
    with until(CONTEXT, 60):
        short()
    assert threading.active_count() == before


def test_a_context_that_is_not_found_has_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alarm, "_address", lambda context: None)
    assert alarm._native(CONTEXT, 60) is None
    alarm.alarm(CONTEXT, 60)()
    assert not CONTEXT.aborted()

"""Limits of isl's work lie inside each other."""

from __future__ import annotations

import sys
from contextlib import suppress
from types import FrameType
from typing import Any

import islpy as isl
import pytest

from polyfuse.errors import budget
from polyfuse.errors.budget import at_most, stopped, within

CONTEXT = isl.DEFAULT_CONTEXT


def done(operations: int) -> int:
    """Operations of isl, one after the other, until so many are done or one is refused: how many were."""
    for number in range(operations):
        try:
            isl.Val.zero(CONTEXT)
        except isl.Error as error:
            return number if stopped(error) else -1
    return operations


def test_a_limit_is_exact() -> None:
    with at_most(CONTEXT, 100):
        assert done(1000) == 100
    assert done(1000) == 1000


@pytest.mark.parametrize("inner", [1, 7, 50, 0])
@pytest.mark.parametrize("before", [0, 1, 40])
def test_what_is_done_inside_counts_for_the_limit_around_it(before: int, inner: int) -> None:
    with at_most(CONTEXT, 100):
        assert done(before) == before
        for _ in range(2):
            with at_most(CONTEXT, inner):
                assert done(5) == min(5, inner or 5)
        assert done(1000) == 100 - before - 2 * min(5, inner or 5)
        with at_most(CONTEXT, 30):
            assert done(1) == 0  # nothing is left, whatever the inner limit
        assert done(1) == 0
    assert done(1000) == 1000


def test_an_inner_limit_ends_at_the_outer_one() -> None:
    with at_most(CONTEXT, 10), at_most(CONTEXT, 1000):
        assert done(1000) == 10


def test_what_takes_too_long_has_another_answer() -> None:
    def sets() -> int:
        return len([isl.Set("{ [i, j] : 0 <= i and i < 9 and i < j and j < 99 }") for _ in range(9)])

    assert within(CONTEXT, 1_000_000, sets, lambda: 0) == 9
    assert within(CONTEXT, 20, sets, lambda: 0) == 0
    assert CONTEXT.get_max_operations() == 0


def test_another_error_of_isl_is_not_a_limit() -> None:
    with pytest.raises(isl.Error):
        within(CONTEXT, 1_000_000, lambda: isl.Set("no set"), lambda: None)


def test_ctrl_c_at_any_line_leaves_no_limit() -> None:
    """Whatever it interrupts, the search for what is left or the way back: isl would refuse all that comes later."""

    def interrupting(at: int) -> bool:
        """Raise KeyboardInterrupt at a line of the budget's own code, counted as they run; False behind the last."""
        lines = 0

        def line(frame: FrameType, event: str, _: object) -> Any:
            nonlocal lines
            lines += event == "line"
            if lines == at and event == "line":
                raise KeyboardInterrupt
            return line

        def call(frame: FrameType, event: str, _: object) -> Any:
            return line if frame.f_code.co_filename == budget.__file__ else None

        before = sys.gettrace()
        sys.settrace(call)
        try:
            with suppress(KeyboardInterrupt), at_most(CONTEXT, 1000), at_most(CONTEXT, 100):
                isl.Val.zero(CONTEXT)
        finally:
            sys.settrace(before)
        return lines >= at

    lines = 1
    while interrupting(lines):
        assert CONTEXT.get_max_operations() == 0, f"a limit stays after line {lines}"
        lines += 1
    assert lines > 50

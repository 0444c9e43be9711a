"""Work in processes of their own: all of it comes back, until time is up; a process that dies is said."""

from __future__ import annotations

import os
import time
from concurrent.futures.process import BrokenProcessPool

import pytest

from polyfuse.checks.side_by_side import side_by_side


def squared(n: int) -> tuple[int, int]:
    return n * n, os.getpid()


def slow(n: int) -> int:
    time.sleep(0.4)
    return n


def dying(n: int) -> int:
    if n == 1:
        os._exit(3)
    return n


def refusing(n: int) -> int:
    raise ValueError(f"not {n}")


@pytest.mark.parametrize("processes", [1, 2])
def test_each_piece_comes_with_its_result(processes: int) -> None:
    found = dict(side_by_side(squared, range(6), processes))
    assert {n: square for n, (square, _) in found.items()} == {n: n * n for n in range(6)}
    assert (os.getpid() in {process for _, process in found.values()}) == (processes == 1)


@pytest.mark.parametrize("processes", [1, 2])
def test_what_had_not_begun_in_time_does_not_come(processes: int) -> None:
    found = dict(side_by_side(slow, range(40), processes, 0.2))
    assert 1 <= len(found) <= 8
    assert all(n == result for n, result in found.items())


def test_a_process_that_dies_is_said_of_every_piece_that_is_left() -> None:
    found = dict(side_by_side(dying, range(8), 2))
    assert len(found) == 8
    assert isinstance(found[1], BrokenProcessPool)


@pytest.mark.parametrize("processes", [1, 2])
def test_what_the_work_raises_is_raised_here(processes: int) -> None:
    with pytest.raises(ValueError, match="not 0"):
        list(side_by_side(refusing, [0], processes))

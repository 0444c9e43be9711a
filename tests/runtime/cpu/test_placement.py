"""Workers of parallel kernels are kept off the CPU of the thread that calls; the caller's own thread is left alone."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from polyfuse.runtime.cpu import placement

pytestmark = pytest.mark.skipif(
    not (placement.may_place() and placement._uses_openmp()),
    reason="one CPU, or threads that the user or the system places",
)


def in_a_new_thread(function: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def nothing() -> None:
    """A program's function."""


def test_workers_leave_the_cpu_of_their_caller_and_the_caller_keeps_its_choice() -> None:
    def called() -> None:
        allowed = os.sched_getaffinity(0)
        placement.apart(nothing)()
        here = placement._TEAM.kept_off
        workers = placement._workers()
        assert threading.get_native_id() not in workers
        for worker in workers:
            assert os.sched_getaffinity(worker) == allowed - {here}
        assert os.sched_getaffinity(0) == allowed

    in_a_new_thread(called)


def test_they_move_when_the_caller_has_moved() -> None:
    def called() -> None:
        placement.apart(nothing)()
        team, allowed = placement._TEAM, os.sched_getaffinity(0)
        for cpu in sorted(allowed)[:2]:
            team.keep_off(cpu)
            assert {frozenset(os.sched_getaffinity(one)) for one in team._workers} <= {
                frozenset(allowed - {cpu})
            }

    in_a_new_thread(called)


def test_workers_that_are_gone_are_found_anew() -> None:
    def called() -> None:
        placement.apart(nothing)()
        team, found = placement._TEAM, placement._TEAM._workers
        team._workers = frozenset({2**22 - 1})  # no thread has so high a number
        team.keep_off(min(os.sched_getaffinity(0)))
        assert team._workers == found

    in_a_new_thread(called)


def test_a_caller_that_wanders_in_a_call_is_held_in_later_ones() -> None:
    def called() -> None:
        allowed = os.sched_getaffinity(0)
        seen: list[set[int]] = []

        def wandering(fails: bool = False) -> None:
            seen.append(os.sched_getaffinity(0))
            if len(seen) == 1:
                os.sched_setaffinity(0, allowed - {placement._TEAM.kept_off})
                os.sched_setaffinity(0, allowed)
            if fails:
                raise ValueError("no")

        call = placement.apart(wandering)
        call()
        placement._TEAM._workers = frozenset({2**22 - 1})  # OpenMP has ended its workers
        with pytest.raises(ValueError, match="no"):
            call(True)
        here = placement._TEAM.kept_off
        assert seen == [allowed, {here}]
        assert os.sched_getaffinity(0) == allowed
        assert {frozenset(os.sched_getaffinity(one)) for one in placement._workers()} == {
            frozenset(allowed - {here})
        }

    in_a_new_thread(called)


@pytest.mark.parametrize(
    ("name", "value"), [*((name, "false") for name in placement.USERS_OWN), (placement.SWITCH, "off")]
)
def test_who_places_threads_is_left_alone(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    assert placement.apart(nothing) is nothing


def test_a_switch_that_is_on_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(placement.SWITCH, "on")
    assert placement.apart(nothing) is not nothing


def test_where_the_system_refuses_to_place_threads_the_call_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setaffinity", refused)
    in_a_new_thread(placement.apart(nothing))


def test_a_process_that_may_use_one_cpu_is_left_alone() -> None:
    script = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from polyfuse.runtime.cpu.placement import apart\n"
        "assert apart(print) is print"
    )
    subprocess.run([sys.executable, "-c", script], check=True)

# ruff: noqa: F821
"""Parts of a kernel: run on every core, once for each member; what they raise; what runs meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import numba
import numpy as np
import pytest

import polyfuse as pf
from polyfuse.codegen.cpu.intrinsics.atomics import load, pause
from polyfuse.codegen.cpu.intrinsics.parallel_parts import Part, on_cores, run
from polyfuse.codegen.cpu.intrinsics.stack_arrays import on_heap


@Part
def told(found, number, row, member, members):
    found[member, 0] = number
    found[member, 1] = row[member]
    found[member, 2] = members


@numba.njit
def every_member(found, row):
    for step in range(3):
        on_cores(told, len(found), (found, 40 + step, row))


def test_each_member_runs_once_with_all_arguments() -> None:
    for members in (1, 2, 3, 17, 300):
        row = np.random.default_rng(0).permutation(members)
        found = np.zeros((members, 3), np.int64)
        every_member(found, row)
        np.testing.assert_array_equal(
            found, np.stack([np.full_like(row, 42), row, np.full_like(row, members)], 1)
        )


LAYERS = """
import sys, numba, numpy as np
from tests.codegen.cpu.intrinsics.test_parallel_parts import every_member
found = np.zeros((7, 3), np.int64)
every_member(found, np.arange(7))
assert found.tolist() == [[42, member, 7] for member in range(7)], found
print(numba.threading_layer())
"""


@pytest.mark.parametrize("layer", ["omp", "workqueue"])
def test_each_layer_of_threads_that_numba_has(layer) -> None:
    environment = os.environ | {"NUMBA_THREADING_LAYER": layer, "NUMBA_NUM_THREADS": "3"}
    done = subprocess.run(
        [sys.executable, "-c", LAYERS], capture_output=True, text=True, env=environment, check=False
    )
    if "No threading layer could be loaded" in done.stderr:
        pytest.skip(f"numba has no {layer} here")
    assert done.stdout.strip() == layer, done.stderr


@Part
def too_much(found, member, members):
    found[member] = 1
    if member == 1:
        found[member] += on_heap((2**60,), np.int8)[0]


@numba.njit
def on_cores_too_much(found):
    on_cores(too_much, 3, (found,))
    found[:] = 7


@numba.njit
def here_too_much(found):
    run(too_much, (found, 1, 3))
    found[:] = 7


@pytest.mark.parametrize("function", [on_cores_too_much, here_too_much])
def test_where_memory_ends_nothing_behind_runs(function) -> None:
    found = np.zeros(3, np.int64)
    with pytest.raises(MemoryError):
        function(found)
    assert found.max() == 1


@Part
def wait_for_it(flag, waited, member, members):
    while load(flag, 0) == 0 and waited[member] < 10**8:
        waited[member] += 1
        pause()


@numba.njit
def waits(flag, waited):
    on_cores(wait_for_it, 2, (flag, waited))


def test_other_threads_of_python_run_meanwhile() -> None:
    flag, waited = np.zeros(1, np.int64), np.zeros(2, np.int64)
    flag[0] = 1
    waits(flag, waited)
    flag[0] = 0

    def say_so() -> None:
        time.sleep(0.05)
        flag[0] = 1

    other = threading.Thread(target=say_so)
    other.start()
    waits(flag, waited)
    other.join()
    assert 0 < waited.max() < 10**8


@pf.nest
def run_for(Part: f64[8], on_cores: f64[8], share_from: f64[8]):
    for member in range(8):
        on_cores[member] = Part[member] * 2.0
    for int64 in range(8):
        share_from[int64] = on_cores[int64] + 1.0


def test_arrays_and_loops_may_be_called_as_what_the_source_calls() -> None:
    schedule = pf.Schedule(run_for).bind("S0", member="cores").bind("S1", int64="cores")
    given, twice, more = np.arange(8.0), np.zeros(8), np.zeros(8)
    pf.compile(run_for, target="cpu", schedule=schedule)(given, twice, more)
    np.testing.assert_array_equal(twice, 2 * given)
    np.testing.assert_array_equal(more, 2 * given + 1)


@pf.nest
def flat(x: f64[6, 4, 5], y: f64[6, 20]):
    for i in range(6):
        for c in range(20):
            y[i, c] = x[i, c // 5, c % 5] * 2.0


def test_a_part_makes_its_own_rows_of_two_axes() -> None:
    net = pf.compile(flat, target="cpu", schedule=pf.Schedule(flat).bind("S0", i="cores"))
    part, kernel = net.source.split("def S(")
    assert "    x_rows = joined(x, 1)\n" in part
    assert "rows" not in kernel
    x, y = np.random.default_rng(0).random((6, 4, 5)), np.zeros((6, 20))
    net(x, y)
    np.testing.assert_array_equal(y, 2 * x.reshape(6, 20))

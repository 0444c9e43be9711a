"""Buffers of several stages: what they hold, what is refused, what copies ahead are waited for, folded storage."""

# ruff: noqa: F821

from dataclasses import replace

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.analysis.storage import buffers_of
from polyfuse.analysis.validation import validate
from polyfuse.checks import cuda_cases as cases
from polyfuse.errors import IllegalSchedule, InvalidSchedule, ValidationFailure
from polyfuse.ir.tree import Sequence, replace_node
from polyfuse.machine import Machine
from polyfuse.simulator import lockstep
from polyfuse.simulator.numba_simulator import simulate
from polyfuse.strategy.pipeline import plan_for


@pf.nest
def smooth(x: "f64[N]", y: "f64[N]"):
    t = np.empty(N)
    for i in range(N):
        t[i] = 2.0 * x[i]
    for i in range(1, N - 1):
        y[i] = t[i - 1] + t[i] + t[i + 1]


def pipelined(stages: int = 2, ahead: int = 1) -> pf.Schedule:
    """A product in tiles of 4 x 4 x 8 with x's tiles in shared memory, copied some iterations before they are used."""
    s = pf.Schedule(cases.dense(24, 4, batch=8)).split("mac0", "i", 4).split("mac0", "k", 8)
    s = s.reorder("mac0", "i", "k", "i_in", "j", "k_in").bind(
        "mac0", i="block.x", i_in="thread.y", j="thread.x"
    )
    s = s.promote("x", "mac0", at="k", memory="shared", stages=stages)
    s = s.bind("load_x", load_x_0="thread.y", load_x_1="thread.x")
    return s.shift("load_x", "k", -ahead)


def run(schedule: pf.Schedule) -> pf.Executable:
    net = pf.compile(schedule.source, schedule=schedule, target="cuda", machine="h200", device="lockstep")
    x = np.random.default_rng(0).standard_normal((8, 24), np.float32)
    expected = pf.interpret(schedule.source, {"x": x})["out"]
    np.testing.assert_allclose(net(x), expected, rtol=1e-5)
    return net


def test_a_tile_is_copied_while_another_is_used() -> None:
    schedule = pipelined()
    assert "x_shared in shared, 2 stages" in str(schedule)
    net = run(schedule)
    assert "x_shared = cuda.shared.array((2, 4, 8), float32)" in net.source


def test_one_barrier_an_iteration_is_enough() -> None:
    """Where a tile is copied and used in one iteration, threads meet in between and after it."""
    for schedule, between in ((pipelined(), ()), (pipelined(1, 0), (0,))):
        loop = next(x for x in schedule.synchronised().loops("mac0") if x.name == "k")
        assert isinstance(loop.body, Sequence)
        assert loop.barrier
        assert loop.body.barriers == between


def test_more_stages_than_iterations_are_apart_hold_too() -> None:
    run(pipelined(stages=3, ahead=1))
    run(pipelined(stages=3, ahead=2))


def test_a_copy_that_runs_too_early_is_refused_with_its_use() -> None:
    with pytest.raises(IllegalSchedule) as refused:
        pipelined(stages=2, ahead=2)
    violation = refused.value.violation
    assert violation.kind == "flow"
    assert (violation.source.statement, violation.sink.statement) == ("load_x", "mac0")
    assert "2 iterations of k only" in violation.why
    with pytest.raises(IllegalSchedule, match="one iteration of k only"):
        pipelined(stages=1, ahead=1)


def test_validation_finds_a_stage_that_is_given_away_too_early() -> None:
    schedule = pipelined(stages=3, ahead=2).synchronised()
    validate(schedule.source, schedule.nest, schedule.tree)
    ((loop, buffer),) = (found for found in buffers_of(schedule.tree) if found[1].stages > 1)
    fewer = replace(loop, buffers=(replace(buffer, stages=2),))
    with pytest.raises(ValidationFailure, match="validation of storage failed"):
        validate(schedule.source, schedule.nest, replace_node(schedule.tree, loop, fewer))


@pytest.mark.parametrize(
    ("memory", "stages", "why"),
    [
        ("register", 2, "registers cannot have stages"),
        ("shared", 0, "stages=0, expected at least 1"),
        ("shared", True, "stages=True, expected at least 1"),
    ],
)
def test_stages_that_cannot_be(memory: str, stages: int, why: str) -> None:
    start = pf.Schedule(cases.dense(24, 4, batch=8)).split("mac0", "k", 8)
    with pytest.raises(InvalidSchedule, match=why):
        start.promote("x", "mac0", at="k", memory=memory, stages=stages)


def test_stages_are_of_iterations_in_order() -> None:
    s = pf.Schedule(cases.dense(24, 4, batch=8)).promote("x", "mac0", at="i", memory="local", stages=2)
    with pytest.raises(
        InvalidSchedule, match="x_local has a stage for each of several consecutive iterations of i"
    ):
        s.bind("mac0", i="cores")


def test_storage_is_folded_on_a_cpu() -> None:
    """t of three elements, of as many iterations in a row: element i at i mod 3, overwritten when it is used up."""
    nest = pf.Schedule(smooth).nest
    first, second = (s.name for s in nest.statements if s.write.tensor in ("t", "y") and s.reads)
    s = pf.Schedule(smooth).fuse(first, second, at="i", shift={"i": 1})
    with pytest.raises(IllegalSchedule, match="2 iterations of i only"):
        s.promote("t", first, at="i", stages=2)
    folded = s.promote("t", first, at="i", stages=3)
    net = pf.compile(smooth, schedule=folded)
    assert "% 3" in net.source
    for n in (3, 4, 50):
        x, y, expected = np.random.default_rng(n).random(n), np.zeros(n), np.zeros(n)
        smooth.python(x, expected)
        net(x, y)
        np.testing.assert_allclose(y, expected, rtol=1e-14)


KERNEL = """
def k(x, y):
    tx = cuda.threadIdx.x
    s = cuda.shared.array((32,), float32)
    {copy}
    {wait}
    cuda.syncthreads()
    y[tx] = s[31 - tx]
"""


COPIES = {
    "copy_ahead(1, s, tx, 1, x, tx)": np.arange(32, dtype=np.float32),
    "pad_ahead(1, s, tx, 1, x, tx + 8, tx < 24)": np.pad(np.arange(8, 32, dtype=np.float32), (0, 8)),
}


@pytest.mark.parametrize("copy", COPIES)
def test_what_is_not_waited_for_has_not_arrived(copy: str) -> None:
    x, y = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    lockstep.run(KERNEL.format(copy=copy, wait="await_copies(0)"), "k", 1, 32, [x, y])
    np.testing.assert_array_equal(y, COPIES[copy][::-1])
    lockstep.run(KERNEL.format(copy=copy, wait="await_copies(1)"), "k", 1, 32, [x, y])
    assert np.isnan(y).all(), "zeros too are on their way"


@pytest.mark.parametrize("copy", COPIES)
def test_what_arrives_without_a_barrier_is_a_race(copy: str) -> None:
    source = KERNEL.format(copy=copy, wait="await_copies(0)").replace("    cuda.syncthreads()\n", "")
    with pytest.raises(lockstep.RaceError, match="race on shared array 's'"):
        lockstep.run(source, "k", 1, 32, [np.zeros(32, np.float32), np.zeros(32, np.float32)])


def test_the_strategy_asks_for_tiles_ahead_and_the_simulator_agrees() -> None:
    nest = cases.dense(80, 32, batch=16)
    plan = plan_for(nest, Machine.preset("h200"), force={"register tiles": True})
    assert "stages" in str(plan.schedule)
    net = pf.compile(nest, schedule=plan.schedule, target="cuda", machine="h200", device="lockstep")
    (launch,) = (each for each in net.program.launches if "tile_fma(" in each.source)
    assert "copy_ahead(" in launch.source
    x = np.random.default_rng(0).standard_normal((16, 80), np.float32)
    expected = net(x)
    held = dict(nest.constants) | {"x": x, "out": np.full((16, 32), np.nan, np.float32)}
    simulate(launch.source, launch.name, *launch.extents({}), [held[t].reshape(-1) for t in launch.tensors])
    np.testing.assert_allclose(held["out"], expected, rtol=1e-5)

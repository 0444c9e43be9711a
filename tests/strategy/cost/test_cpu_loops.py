"""Loops on a CPU: which levels data come from, what waits along a loop, and rows side by side."""
# ruff: noqa: F821, UP037

from __future__ import annotations

from dataclasses import replace

import pytest

import polyfuse as pf
from papers.polybench import KERNELS
from polyfuse.ir import Nest
from polyfuse.ir.tree import loops
from polyfuse.machine import CpuMachine, rates
from polyfuse.strategy.cost.composite import schedule_costs
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.cpu_loops import Estimator, Run
from polyfuse.strategy.cost.roofline import RESTART_SECONDS
from polyfuse.strategy.pipeline import plan_for

ZEN5 = CpuMachine.preset("zen5")


@pf.nest
def diagonal(c: "f64[N, N]"):
    for i in range(N):
        c[i, i] = 1.0


@pf.nest
def down(x: "f64[N, M]"):
    for i in range(1, N):
        for j in range(M):
            x[i, j] = 0.5 * x[i - 1, j] + x[i, j]


@pf.nest
def doubled(y: "f64[N]", x: "f64[N]"):
    for i in range(N):
        y[i] = 2.0 * x[i]


@pf.nest
def running(y: "f64[N]"):
    for i in range(1, N):
        y[i] = 0.5 * y[i - 1] + y[i]


def estimated(nest: Nest) -> tuple[float, float]:
    """Seconds of memory, and bytes that come into the last cache."""
    found = Estimator(Counts(nest), ZEN5).of(nest.order)
    return found.memory, found.traffic


def test_bytes_count_at_the_level_they_come_from() -> None:
    nest = doubled.with_sizes({"N": 2**23})  # 128 MiB
    memory, traffic = estimated(nest)
    assert traffic == 2**27
    assert memory == pytest.approx(2**27 / ZEN5.levels[-1].bandwidth)


def test_what_a_cache_holds_from_call_to_call_comes_from_there() -> None:
    nest = doubled.with_sizes({"N": 2**14})  # 256 KiB
    memory, _ = estimated(nest)
    assert memory == pytest.approx(2**18 / ZEN5.levels[1].bandwidth)
    assert estimated(doubled.with_sizes({"N": 64})) == (0.0, 0.0)


def test_a_diagonal_moves_its_lines_and_not_the_box_around_it() -> None:
    assert estimated(diagonal.with_sizes({"N": 4000}))[1] == 64 * 4000


@pytest.mark.parametrize(
    ("nest", "sizes", "chained", "waits"),
    [
        (running, {"N": 100}, True, False),
        (doubled, {"N": 100}, False, False),
        (KERNELS["floyd-warshall"].nest, {"N": 100}, False, False),
        (KERNELS["seidel-2d"].nest, {"N": 100, "T": 10}, True, False),
        (KERNELS["adi"].nest, {"N": 100, "T": 10}, True, True),
    ],
)
def test_what_waits_along_an_innermost_loop(
    nest: Nest, sizes: dict[str, int], chained: bool, waits: bool
) -> None:
    """One value of j writes what floyd-warshall's others read, and is taken apart; running sums have other prices."""
    fixed = nest.with_sizes(sizes)
    *_, inner = loops(fixed.order)
    estimator = Estimator(Counts(fixed), ZEN5)
    run = Run(estimator, fixed.order, *estimator.chains(fixed.order))
    assert bool(run.chained(inner)) == chained
    assert run.waits(fixed.order) == waits


@pytest.mark.parametrize(("name", "seconds"), [("adi", 1.9), ("seidel-2d", 2.1), ("floyd-warshall", 6.7)])
def test_kernels_that_wait_for_themselves_cost_what_their_data_do_each_time(
    name: str, seconds: float
) -> None:
    """At LARGE they took so long on one Zen 5 core; adi was expected to take 0.48, the others 5.6 and 68."""
    kernel = KERNELS[name]
    plan = plan_for(kernel.nest.with_sizes(kernel.large), replace(ZEN5, units=1, row=rates.ZEN5.row))
    assert seconds / 2 < sum(group.cost.total for group in plan.groups) < 2 * seconds


def test_tiles_of_columns_begin_a_piece_of_each_row() -> None:
    """Whole rows follow each other. Besides, tiles read the row before again: a fifth of that."""
    nest = down.with_sizes({"N": 1000, "M": 2000})

    def memory(width: int) -> float:
        s = pf.Schedule(nest).tile("S0", j=width).reorder("S0", "j", "i", "j_in").vectorize("S0", "j_in")
        (cost,) = schedule_costs(s, replace(ZEN5, units=1))
        return cost.memory

    pieces = 999 * 8  # each of x alone
    assert memory(250) - memory(2000) == pytest.approx(pieces * RESTART_SECONDS, rel=0.3)


def test_packed_factors_are_in_no_call() -> None:
    """covariance packs 13 blocks of one buffer, of which the nest has all."""
    kernel = KERNELS["covariance"]
    nest = kernel.nest.with_sizes(kernel.large)
    schedule = plan_for(nest, ZEN5).schedule
    assert Counts.of(schedule).total_bytes <= Counts(nest).total_bytes < Counts(schedule.nest).total_bytes
    assert all(cost.total > 0 for cost in schedule_costs(schedule, ZEN5))

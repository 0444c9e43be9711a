"""Plans of backward passes: column sums and what reads them, recurrences with their pointwise loops together."""

from __future__ import annotations

from dataclasses import replace

import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.machine import CpuMachine, Machine
from polyfuse.schedule import Schedule
from polyfuse.sets import IN
from polyfuse.strategy.fusion.group_search import aligned
from polyfuse.strategy.pipeline import plan_for
from polyfuse.strategy.plan import Plan


def machine(units: int = 1) -> CpuMachine:
    found = Machine.preset("zen4")
    assert isinstance(found, CpuMachine)
    return replace(found, units=units)


@pytest.mark.parametrize("units", [1, 2])
def test_a_column_sum_goes_along_rows_also_where_another_statement_reads_it(units: int) -> None:
    z, momentum = nn.input("z", (2048, 512)), nn.input("m", (512,))
    plan = plan_for(pf.lower(momentum * 0.9 + nn.sum(z, 0)), machine(units))
    names = {name for group in plan.groups for name in group.statements}
    assert len(plan.groups) == 1, "the sum is used where it is made"
    assert names == {"mul0", "sum_init0", "sum0", "add0"}
    *_, rows, columns, _ = plan.schedule.loops("sum0")
    step = plan.schedule.nest.statement("sum0")
    assert [columns.date("sum0").involves_dims(IN, step.dims.index(d), 1) for d in "ij"] == [False, True]
    assert [rows.date("sum0").involves_dims(IN, step.dims.index(d), 1) for d in "ij"] == [True, False]


def backward(times: int = 6, batch: int = 16, hidden: int = 32) -> Plan:
    x = nn.input("x", (times, batch, hidden))
    w, u = nn.input("w", (4 * hidden, hidden)), nn.input("u", (4 * hidden, hidden))
    b, bu = nn.input("b", (4 * hidden,)), nn.input("bu", (4 * hidden,))
    return plan_for(pf.grad(pf.lower(nn.sum(nn.lstm(x, w, u, b, bu)[0])), ("u", "b")), machine())


def test_an_lstm_backwards() -> None:
    plan = backward()
    schedule = plan.schedule
    names = [s.name for s in schedule.nest.statements]
    assert "zero_z0_bar" not in names, "each element of it is assigned by one of four terms"
    for term in ("hidden0_to_z0", "cell0_to_z0", "cell0_to_z0_2", "cell0_to_z0_3"):
        assert schedule.nest.statement(term).op == "="
        assert schedule.nest.statement(term).dims == ("i", "j", "k"), (
            "gates are where the forward pass has them"
        )
    shared = {id(schedule.loops(name)[-1]) for name in ("cell0_to_z0", "cell0_to_z0_2", "cell0_to_z0_3")}
    assert len(shared) == 1, "sigmoids and tanh are computed once for all"
    steps, sums = schedule.loops("cell0_to_z0")[0], schedule.loops("first0_to_bs0")[0]
    assert steps is not sums, "a loop over columns is none of the time loop's iterations"


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        ((-49, 0), (0, 511), False),
        ((0, 49), (0, 2499), False),
        ((0, 49), (0, 50), True),
        ((0, 0), (0, 49), True),
    ],
    ids=["one value in common", "fifty of 2500", "nearly all", "all there is of one side"],
)
def test_loops_that_share_few_values_stay_apart_also_around_others(
    first: tuple[int, int], second: tuple[int, int], together: bool
) -> None:
    """A gradient of weights joined at its features would have columns in the loop over time."""
    (low, high), (begin, end) = first, second
    nest = (
        pf.NestBuilder("two")
        .tensor("x", (50,))
        .tensor("y", (2500, 50), role="output")
        .tensor("z", (2500, 50), role="output")
        .statement("one", f"{{ [t, i] : {low} <= t <= {high} and 0 <= i < 50 }}", f"y[t - {low}, i]", "x[i]")
        .statement("two", f"{{ [k, i] : {begin} <= k <= {end} and 0 <= i < 50 }}", "z[k, i]", "x[i]")
        .nest()
    )
    assert isinstance(aligned(Schedule(nest), "one", "two", "i"), Schedule) == together

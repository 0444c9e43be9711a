"""collapse: one loop of two, the subscripts it makes, values, refusals, and where the strategy takes it."""

from __future__ import annotations

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.errors import InvalidSchedule
from polyfuse.ir import Nest, Tensor, statement
from polyfuse.machine import Machine
from polyfuse.strategy import plan_for


def images() -> Nest:
    """A sum over two of three axes of one array, and another one transposed, which has no row of both."""
    domain = "0 <= i < 3 and 0 <= k < 4 and 0 <= l < 5"
    return Nest.of(
        [
            Tensor("x", (3, 4, 5), "float32", "input"),
            Tensor("t", (5, 4), "float32", "input"),
            Tensor("y", (3, 4, 5), "float32", "output"),
        ],
        [statement(f"{{ S[i, k, l] : {domain} }}", "y[i, k, l] = x[i, k, l] + t[l, k]")],
    )


def test_one_loop_walks_along_two_axes_where_an_array_has_them_so() -> None:
    schedule = pf.Schedule(images()).collapse("S", "k", "l").vectorize("S", "k_l")
    assert "for k_l:  @ vector    { S[i, k, l] -> [5k + l] }" in str(schedule)
    net = pf.compile(schedule.source, target="cpu", schedule=schedule)
    assert "y_rows[i, k_l] = x_rows[i, k_l] + t[k_l % 5, k_l // 5]" in net.source
    numbers = np.random.default_rng(0)
    x, t = numbers.random((3, 4, 5), np.float32), numbers.random((5, 4), np.float32)
    np.testing.assert_array_equal(net(x, t), x + t.T)


def test_rows_may_count_more_than_they_have() -> None:
    schedule = pf.Schedule(images()).collapse("S", "k", "l", width=8)
    assert "{ S[i, k, l] -> [8k + l] }" in str(schedule)
    assert "collapse('S', 'k', 'l', width=8)" in schedule.trace()
    net = pf.compile(schedule.source, target="cpu", schedule=schedule)
    numbers = np.random.default_rng(0)
    x, t = numbers.random((3, 4, 5), np.float32), numbers.random((5, 4), np.float32)
    np.testing.assert_array_equal(net(x, t), x + t.T)


def test_what_is_refused() -> None:
    schedule = pf.Schedule(images())
    for width in (4, 0, True, "8", 8.0):
        with pytest.raises(InvalidSchedule, match=r"l has 5 values, more than width=.*: give an integer"):
            schedule.collapse("S", "k", "l", width=width)  # type: ignore[arg-type]
    with pytest.raises(InvalidSchedule, match="l is not the only thing inside i"):
        schedule.collapse("S", "i", "l")
    with pytest.raises(InvalidSchedule, match="i or k is bound"):
        schedule.bind("S", i="cores").collapse("S", "i", "k")
    with pytest.raises(InvalidSchedule, match="not known to lie between 0 and a constant"):
        schedule.shift("S", "l", -1).collapse("S", "k", "l")


def test_the_strategy_joins_short_rows_of_all_arrays() -> None:
    machine = Machine.preset("zen5")
    nest = pf.lower(nn.sum(nn.input("g", (4, 8, 7, 6)), axis=(0, 2, 3)))
    plan = plan_for(nest, machine)
    assert "k and l are one loop of 42 values" in str(plan)
    g = np.random.default_rng(0).integers(-4, 5, (4, 8, 7, 6)).astype(np.float32)
    net = pf.compile(plan.schedule.source, target="cpu", schedule=plan.schedule)
    np.testing.assert_array_equal(net(g), g.sum((0, 2, 3)))


def test_it_leaves_rows_that_are_long_or_not_of_one_piece() -> None:
    machine = Machine.preset("zen5")
    assert "are one loop" not in str(plan_for(images(), machine))
    long = pf.lower(nn.sum(nn.input("g", (4, 8, 7, 600)), axis=(0, 2, 3)))
    assert "are one loop" not in str(plan_for(long, machine))

"""Loops taken apart by what waits for what: components in another order than written, and products that come of it."""

# ruff: noqa: F821, UP037

from __future__ import annotations

import numpy as np
import pytest

import polyfuse as pf
from papers.polybench import KERNELS
from polyfuse.ir.tree import loops, parts, statements
from polyfuse.rewrite import expand
from polyfuse.strategy import plan_for
from polyfuse.strategy.fusion.scc_order import in_waiting_order
from tests.frontend.python.running import assert_close, by_python, called
from tests.frontend.python.test_polybench import inputs_of


@pf.nest
def backwards(a: "f64[N]", b: "f64[N]", c: "f64[N]"):
    """R reads what T made in earlier iterations, and stands before it."""
    for i in range(1, N):
        c[i] = b[i - 1] * 2.0
        b[i] = a[i] + 1.0


@pf.nest
def circle(a: "f64[N]", b: "f64[N]"):
    for i in range(1, N):
        a[i] = b[i - 1] * 2.0
        b[i] = a[i] + 1.0


def names(nest: pf.Nest) -> list[tuple[str, ...]]:
    schedule = pf.Schedule(nest)
    found = in_waiting_order(schedule, tuple(s.name for s in nest.statements))
    return [statements(part) for part in parts(found.tree)]


def test_what_is_read_comes_first() -> None:
    with pytest.raises(pf.IllegalSchedule):
        pf.Schedule(backwards).distribute("S0", "i")
    assert names(backwards) == [("S1",), ("S0",)]


def test_what_waits_for_each_other_stays_together() -> None:
    assert names(circle) == [("S0", "S1")]


def test_a_symmetric_product_is_two_products() -> None:
    symm = KERNELS["symm"]
    nest = expand(symm.nest).nest
    assert names(nest) == [("S0",), ("S2",), ("S3",), ("S1",)]
    plan = plan_for(nest.with_sizes({"M": 200, "N": 220}), pf.Machine.preset("zen5"))
    tiles = [name for loop in loops(plan.schedule.tree) if loop.bind == "microkernel" for name in loop.names]
    assert tiles == ["S2", "S1"]
    net = pf.compile(symm.nest, target="cpu", machine="zen5")
    for sizes in ({"M": 1, "N": 1}, {"M": 37, "N": 41}):
        arrays = inputs_of(symm, sizes)
        assert_close(called(net, arrays), by_python(symm.nest, arrays))


def test_a_product_that_is_subtracted_is_a_product() -> None:
    @pf.nest
    def less(C: "f32[60, 70]", A: "f32[60, 50]", B: "f32[50, 70]"):
        for i in range(60):
            for j in range(70):
                for k in range(50):
                    C[i, j] -= A[i, k] * B[k, j]

    net = pf.compile(less, target="cpu")
    assert any(loop.bind == "microkernel" for loop in loops(net.schedule.tree))
    draw = np.random.default_rng(3)
    a, b, c = (draw.integers(-4, 5, shape).astype(np.float32) for shape in ((60, 50), (50, 70), (60, 70)))
    expected = c - a @ b
    net(c, a, b)
    np.testing.assert_array_equal(c, expected)

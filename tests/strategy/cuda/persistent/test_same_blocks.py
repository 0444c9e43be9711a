# ruff: noqa: F821, UP037 — sizes are names in annotations
"""Parts of a step in the blocks that computed what they read, and those that wait for all blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence as Several
from dataclasses import replace

import islpy as isl
import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.analysis.digits import cells_of, digits_of, held_along, left_out
from polyfuse.ir.tree import Sequence, loops, parts
from polyfuse.machine import Machine
from polyfuse.sets import points
from polyfuse.strategy import plan_for
from polyfuse.strategy.candidates import Choose
from polyfuse.strategy.plan import Plan
from tests.strategy.cuda.persistent.test_grid_steps import quick

pytest.importorskip("numba.cuda")

RUN = "run in the blocks that compute what they read of step0"


@pf.nest
def mirrored(W: "f32[64, 64]", z: "f32[4, 32, 64]", h: "f32[5, 32, 64]"):  # type: ignore[no-untyped-def]
    for t in range(4):
        for b in range(32):
            for u in range(64):
                z[t, b, u] = 0.0
                for k in range(64):
                    z[t, b, u] += W[u, k] * h[t, b, k]
        for b in range(32):
            for u in range(64):
                h[t + 1, b, u] = math.tanh(z[t, b, u] - z[t, b, 63 - u])


def lstm(units: int, rows: int = 20, times: int = 3) -> pf.Nest:
    return pf.lower(nn.Sequential(nn.LSTM(24, units)), batch=times, features=(rows, 24))


def meetings(plan: Plan) -> int:
    return sum(group.cost.meetings for group in plan.groups)


def test_gates_run_in_the_blocks_of_their_units() -> None:
    plan = plan_for(lstm(96), Machine.preset("h200"))
    assert f"cell0, hidden0, narrow0 {RUN}" in str(plan)
    assert meetings(plan) == 3
    (kernel,) = (part for part in parts(plan.schedule.synchronised().tree) if "step0" in part.names)
    (steps,) = (loop for loop in loops(kernel) if loop.name == "i")
    assert isinstance(steps.body, Sequence)
    assert steps.grid
    assert not steps.body.grid
    assert steps.body.barriers, "the threads of a block wait for each other's results"


def test_a_thread_has_several_rows_where_blocks_are_few() -> None:
    few = replace(Machine.preset("h200"), units=8)
    nest = lstm(64, rows=32, times=2)
    net = pf.compile(nest, target="cuda", machine=few, device="lockstep")
    assert RUN in str(net.compiled.plan)
    (launch,) = (launch for launch in net.program.launches if launch.code.grid_barriers)
    assert launch.extents({}) == ((8, 1, 1), (8, 8, 2))
    x = np.random.default_rng(0).standard_normal((2, 32, 24)).astype(np.float32)
    np.testing.assert_allclose(net(x), pf.interpret(nest, [x])["out"], rtol=1e-5, atol=1e-6)


def test_results_of_other_blocks_are_waited_for() -> None:
    net = pf.compile(mirrored, target="cuda", machine=quick(), device="lockstep")
    plan = net.compiled.plan
    assert plan is not None
    assert meetings(plan) == 8
    assert RUN.split(" of ")[0] not in str(plan)
    rng = np.random.default_rng(0)
    w, h, z = (
        rng.standard_normal((64, 64), np.float32) / 8,
        np.zeros((5, 32, 64), np.float32),
        np.zeros((4, 32, 64), np.float32),
    )
    h[0] = rng.standard_normal((32, 64), np.float32)
    net(w, z, h)
    for t in range(4):
        z = h[t] @ w.T
        np.testing.assert_allclose(h[t + 1], np.tanh(z - z[:, ::-1]), atol=1e-5)


def test_units_that_no_block_has_whole_wait() -> None:
    plan = plan_for(lstm(97), Machine.preset("h200"))
    assert f"do not {RUN}: no tiles for 132 blocks have 4 groups of columns that divide 97" in str(plan)
    assert meetings(plan) == 6


def test_a_search_may_try_blocks_of_their_own() -> None:
    def other(kernel: tuple[str, ...], what: str, seconds: Several[float]) -> int:
        return int(what == "blocks")

    plan = plan_for(lstm(96), Machine.preset("h200"), choose=Choose(other))
    assert f"do not {RUN}: " in str(plan)
    assert meetings(plan) == 6


@pytest.mark.parametrize(("apart", "groups"), [(512, 4), (96, 3), (2000, 2)])
def test_groups_of_neighbours_have_cells_of_their_own(apart: int, groups: int) -> None:
    touched = isl.Map(
        f"{{ [b] -> [e] : 0 <= b < 5 and exists(g, u: e = {apart} * g + 8 * b + u and 0 <= u < 8 and "
        f"0 <= g < {groups}) }}"
    )
    corner = isl.PwAff("{ [b] -> [8 * b] }")
    span = apart * (groups - 1) + 8
    digits = held_along(touched, 0, corner, span)
    assert cells_of(digits, span) == 8 * groups
    element = isl.PwAff("{ [e] -> [e] }")
    cell = digits_of(element, digits)
    held = touched.intersect_domain(isl.Set("{ [b] : b = 0 }")).range()
    assert left_out(element, digits).intersect(held).is_empty()
    assert not left_out(element, digits).intersect(isl.Set("{ [8] }")).is_empty()
    cells = [number for (number,) in points(held.apply(isl.Map.from_pw_aff(cell)))]
    assert cells == list(range(8 * groups))


def test_what_runs_behind_all_steps_is_no_part_of_one() -> None:
    @pf.nest
    def program(  # type: ignore[no-untyped-def]
        x: "i32[7]", a: "i32[3, 32]", b: "i32[7, 3]", y: "i32[7]", u: "i32[7]", v: "i32[7]"
    ):
        bound = np.zeros((32, 7), np.int32)
        product = np.zeros((32, 7), np.int32)
        for _t in range(3):
            for i in range(1, 31):
                for j in range(1, 6):
                    bound[i, j] = min(1, x[j])
            for i in range(32):
                for j in range(7):
                    product[i, j] = 0
            for k in range(3):
                for i in range(32):
                    for j in range(7):
                        product[i, j] += a[k, i] * b[j, k]
            for i in range(32):
                for j in range(7):
                    product[i, j] = max(min(product[i, j], 9), -9)
            for k in range(1, 7):
                y[k] = max(min(y[k - 1] + (u[k] + v[k]), 9), -9)

    rng = np.random.default_rng(0)
    given = [rng.integers(-3, 4, shape).astype(np.int32) for shape in (7, (3, 32), (7, 3), 7, 7, 7)]
    expected = [array.copy() for array in given]
    program.python(*expected)
    pf.compile(program, target="cuda", machine="h200", device="lockstep")(*given)
    np.testing.assert_array_equal(given[3], expected[3])

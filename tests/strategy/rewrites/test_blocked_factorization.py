"""Eliminations in panels and products: which programs run so, on cores, and what it costs by the model."""

from __future__ import annotations

import numpy as np
import pytest

import polyfuse as pf
from papers.polybench import KERNELS
from polyfuse.analysis.validation import validate
from polyfuse.ir import Nest, Tensor, statement
from polyfuse.ir.tree import loops, parts, statements
from polyfuse.machine import KiB, Machine, cpu
from polyfuse.rewrite import expand, panels
from polyfuse.schedule.binding import extent
from polyfuse.strategy import Plan, plan_for, schedule_costs
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.cpu_loops import Estimator
from polyfuse.strategy.rewrites.blocked_factorization import in_panels
from polyfuse.strategy.transforms.inner_loops import TURNS
from tests.rewrite.tiling.test_blocked_factorization import (
    BY,
    by_steps,
    draw,
    in_variables,
    lu,
    solved,
    upper,
)
from tests.support.execution import memory, run_plain

LEVELS = (16 * KiB, 64 * KiB, 256 * KiB)
ONE, TWO = (cpu(f"{cores} cores", cores, 32, LEVELS, 3.0e9) for cores in (1, 2))
CHOLESKY = KERNELS["cholesky"].nest


def planned(nest: Nest, n: int, machine: Machine) -> Plan:
    sizes = {"N": n} | ({"M": n} if "M" in nest.params else {})
    return plan_for(expand(nest).nest.with_sizes(sizes), machine)


@pytest.mark.parametrize("machine", [ONE, TWO], ids=["one core", "two cores"])
@pytest.mark.parametrize("nest", [lu, upper, by_steps, solved, in_variables, CHOLESKY], ids=lambda n: n.name)
def test_eliminations_are_products_behind_panels(nest: Nest, machine: Machine) -> None:
    plan = planned(nest, 400, machine)
    assert any(each.pass_ == "blocked factorization" and each.taken for each in plan.remarks)
    (part,) = parts(plan.schedule.tree)
    tiles = [loop for loop in loops(part) if loop.bind == "microkernel"]
    assert [name.rpartition("_")[2] for loop in tiles for name in loop.names] == ["rest"]
    shared = [loop for loop in loops(part) if loop.bind == "cores"]
    assert bool(shared) == (machine.units > 1)
    assert all(loop is not part for loop in shared)  # blocks follow each other


def test_rows_behind_a_panel_are_packed_by_their_value() -> None:
    """A[32b + k, i] moves along two axes of A with b and k, and along one of its own with each where it is packed."""
    assert "A[32b + k, i]" in str(planned(upper, 100, ONE).schedule)


@pf.nest
def numpys(a: f64[N, N]):  # noqa: F821
    return np.linalg.cholesky(a)


def test_numpys_cholesky_runs_in_panels() -> None:
    made = next(in_panels(expand(numpys).nest, ONE))
    assert made.said
    assert not made.refused


@pytest.mark.parametrize("machine", [ONE, TWO], ids=["one core", "two cores"])
@pytest.mark.parametrize(("n", "size"), [(40, 8), (45, 8), (50, 12)])
@pytest.mark.parametrize("name", BY)
def test_cores_and_lanes_in_any_order_leave_what_the_program_does(
    name: str, n: int, size: int, machine: Machine
) -> None:
    nest, dates, _ = BY[name]
    nest = nest.with_sizes({"N": n} | ({"M": 5} if "M" in nest.params else {}))
    schedule = plan_for(panels(nest, dates, size).nest, machine).schedule
    assert any(loop.bind == "microkernel" for loop in loops(schedule.tree))
    validate(panels(nest, dates, size).nest, schedule.nest, schedule.tree)
    inputs = draw(nest, n)
    arrays = memory(nest, schedule.nest, schedule.tree, inputs, {})
    run_plain(schedule.nest, schedule.tree, arrays, {}, n)
    for tensor, expected in pf.interpret(nest, inputs).items():
        np.testing.assert_allclose(arrays[tensor], expected, rtol=1e-12)


def test_rows_below_a_block_take_turns_in_each_step() -> None:
    plan = planned(lu, 400, ONE)
    names = [loop.name for loop in plan.schedule.loops("S0_below")]
    assert names == ["b", "i", "k", "i_in", "j"]
    rows = [loop for loop in plan.schedule.loops("S0_below") if loop.name.startswith("i")]
    assert [extent(plan.schedule.nest, loop) for loop in rows][-1] == TURNS


def test_what_has_nothing_behind_a_block_is_said() -> None:
    plan = planned(lu, 33, ONE)
    why = "no sum updates rows and columns behind a block of steps."
    assert f"S0, S1, S2 do not run in blocks of 64 steps: {why}" in plan.notes


def test_small_ones_stay_in_loops_and_the_numbers_are_said() -> None:
    plan = planned(CHOLESKY, 40, ONE)
    (line,) = (each.text for each in plan.remarks if each.pass_ == "blocked factorization" and each.seconds)
    assert line.startswith("not taken: S0, S1, S2, S3 run in blocks of 32 steps, S0_rest behind each block; ")
    assert line.endswith("in loops.")


def test_what_else_a_program_does_has_kernels_of_its_own() -> None:
    plan = planned(KERNELS["ludcmp"].nest, 300, TWO)
    assert any(each.pass_ == "blocked factorization" and each.taken for each in plan.remarks)
    elimination, *others = (set(statements(part)) for part in parts(plan.schedule.tree))
    assert "S1_rest" in elimination
    assert {"S7", "S10"} <= set().union(*others)


def test_the_model_counts_two_thirds_of_a_cube_for_lu() -> None:
    plan = planned(lu, 400, ONE)
    (cost,) = schedule_costs(plan.schedule, ONE)
    assert cost == plan.groups[0].cost
    assert cost.flops == pytest.approx(2 / 3 * 400**3, rel=0.2)


def test_a_statement_of_few_values_of_a_common_loop_is_priced_for_these() -> None:
    """for k: { for j: S at k < i; for j: T at k = i }: T runs once for each i, as in a loop of its own."""
    box = "0 <= i, j < 64"
    tensors = [Tensor(name, (64, 64), "float64", role) for name, role in (("x", "input"), ("y", "inout"))]
    sums = statement(f"{{ S[i, k, j] : {box} and 0 <= k < i }}", "y[i, j] += x[i, k] * x[k, j]")
    last = statement(f"{{ T[i, j] : {box} }}", "y[i, j] = exp(y[i, j])")
    nest = Nest.of(tensors, [sums, last])
    apart = pf.Schedule(nest).fuse("S", "T", at="i")
    common = pf.Schedule(nest).affine(S="[i, k, 0, j]", T="[i, i, 1, j]")
    estimator = Estimator(Counts(nest), ONE)
    first, second = (estimator.of(s.tree).compute for s in (apart, common))
    assert second == pytest.approx(first, rel=0.05)

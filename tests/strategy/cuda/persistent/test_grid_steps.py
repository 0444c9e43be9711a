"""Kernels in which all blocks take a step together: what is mapped so, where blocks wait, and what it computes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import polyfuse as pf
from papers.polybench import KERNELS
from polyfuse import nn
from polyfuse.ir.tree import loops, loops_around, parts
from polyfuse.machine import Machine
from polyfuse.runtime.cuda.runner import build_kernels
from polyfuse.strategy import plan_for
from polyfuse.strategy.plan import Plan
from tests.frontend.python.running import assert_close, by_python, called
from tests.frontend.python.test_polybench import inputs_of

pytest.importorskip("numba.cuda")

TIMES, ROWS, UNITS = 12, 8, 40


def quick(sms: int = 132) -> Machine:
    """An H200 whose blocks meet for nothing, so that small steps are worth it."""
    h200 = Machine.preset("h200")
    return replace(h200, units=sms, gpu=replace(h200.gpu, grid_barrier_seconds=1e-12))


def recurrent(layer: nn.Module) -> pf.Nest:
    return pf.lower(nn.Sequential(layer), batch=TIMES, features=(ROWS, 20))


def steps_of(plan: Plan, name: str) -> tuple[int, int]:
    """How often all blocks meet in the kernel of a statement, and the blocks that its launch has."""
    (group,) = (group for group in plan.groups if name in group.statements)
    (part,) = (part for part in parts(plan.schedule.tree) if name in part.names)
    blocks = [
        plan.schedule.nest.domains[loop.names[0]].apply(loop.date(loop.names[0]).as_map())
        for loop in loops(part)
        if loop.bind == "block.x"
    ]
    return group.cost.meetings, max(int(b.dim_max_val(0).to_python()) + 1 for b in blocks)


@pytest.mark.parametrize(
    ("layer", "a_step"),
    [(nn.LSTM(20, UNITS), 1), (nn.GRU(20, UNITS), 1), (nn.RNN(20, UNITS), 1)],
    ids=["LSTM", "GRU", "RNN"],
)
def test_recurrent_layers_take_their_steps_on_all_blocks(layer: nn.Module, a_step: int) -> None:
    nest = recurrent(layer)
    net = pf.compile(nest, target="cuda", machine="h200", device="lockstep")
    x = np.random.default_rng(0).standard_normal((TIMES, ROWS, 20)).astype(np.float32)
    np.testing.assert_allclose(net(x), pf.interpret(nest, [x])["out"], rtol=1e-5, atol=1e-6)
    plan = net.compiled.plan
    assert plan is not None
    product = next(s.name for s in plan.schedule.nest.statements if s.name == "step0")
    assert any(loop.bind == "microkernel" for loop in loops_around(plan.schedule.tree, product))
    times = nest.tensor("out").shape[0]
    assert steps_of(plan, product)[0] == a_step * int(times)
    assert "all blocks take the steps of" in str(plan)
    if isinstance(layer, nn.LSTM):
        for cubin in build_kernels(net.program, (9, 0)).values():
            assert cubin.spill_stores + cubin.spill_loads == 0
            assert cubin.registers <= 128


def test_a_step_with_more_tiles_than_blocks_runs_in_rounds() -> None:
    plan = plan_for(recurrent(nn.LSTM(20, UNITS)), quick(2))
    meetings, blocks = steps_of(plan, "step0")
    assert meetings
    assert blocks <= 2


@pytest.mark.parametrize("name", ["jacobi-2d", "fdtd-2d"])
def test_time_steps_of_loops(name: str) -> None:
    kernel = KERNELS[name]
    nest = kernel.nest.with_sizes(dict(kernel.mini))
    net = pf.compile(nest, target="cuda", machine=quick(), device="lockstep")
    assert any(launch.code.grid_barriers for launch in net.program.launches)
    arrays = inputs_of(kernel, kernel.mini)
    assert_close(called(net, arrays), by_python(kernel.nest, arrays))


def test_one_block_stays_where_waiting_costs_more() -> None:
    nest = KERNELS["jacobi-1d"].nest.with_sizes({"T": 20, "N": 200})
    plan = plan_for(nest, Machine.preset("h200"))
    assert not any(group.cost.meetings for group in plan.groups)
    assert any("not by all blocks together" in note for note in plan.notes)


def test_the_simulator_gets_a_plan_whose_blocks_wait_for_nobody() -> None:
    nest = pf.lower(nn.Sequential(nn.RNN(6, 32)), batch=4, features=(8, 6))
    assert any(group.cost.meetings for group in plan_for(nest, quick()).groups)
    net = pf.compile(nest, target="cuda", machine=quick(), device="simulator")
    assert not any(launch.code.grid_barriers for launch in net.program.launches)
    x = np.random.default_rng(0).standard_normal((4, 8, 6)).astype(np.float32)
    np.testing.assert_allclose(net(x), pf.interpret(nest, [x])["out"], rtol=1e-5, atol=1e-6)


def test_tensor_cores_multiply_where_the_product_is_all_of_a_step() -> None:
    # other parts of a step have threads that a warp's fragments do not fit
    for layer, math in ((nn.RNN(16, 64, dtype="float64"), "f64"), (nn.LSTM(16, 64, dtype="float64"), "ieee")):
        nest = pf.lower(nn.Sequential(layer), batch=3, features=(64, 16))
        net = pf.compile(nest, target="cuda", machine="h200", device="lockstep")
        product = next(loop for loop in net.schedule.loops("step0") if loop.bind == "microkernel")
        assert product.math == math
        if math == "f64":
            x = np.random.default_rng(0).standard_normal((3, 64, 16))
            np.testing.assert_allclose(net(x), pf.interpret(nest, [x])["out"], rtol=1e-12, atol=1e-13)

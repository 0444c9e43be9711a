"""Weights that stay in a block's shared memory for all steps: where they do, what is computed, why they do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.ir.tree import Loop, loops_around, parts
from polyfuse.machine import Machine
from polyfuse.runtime.cuda.runner import build_kernels
from polyfuse.strategy import plan_for
from polyfuse.strategy.candidates import Choose
from polyfuse.strategy.plan import Plan

pytest.importorskip("numba.cuda")


def recurrent(layer: nn.Module, times: int, rows: int) -> pf.Nest:
    return pf.lower(nn.Sequential(layer), batch=times, features=(rows, 24))


def around_copy(plan: Plan) -> tuple[Loop, ...] | None:
    """The loops around the copy of a recurrent layer's weights."""
    if all(s.name != "load_u0" for s in plan.schedule.nest.statements):
        return None
    return loops_around(plan.schedule.tree, "load_u0")


def stays(plan: Plan) -> bool:
    """Whether each block copies its part of the weights before the first step."""
    (kernel,) = (part for part in parts(plan.schedule.tree) if "step0" in part.names)
    copied, steps = around_copy(plan), loops_around(kernel, "step0")
    assert copied is not None
    assert copied[0] is steps[0]
    return copied[1] is not steps[1] and any(b.tensor == "u0_shared" for b in copied[0].buffers)


@pytest.mark.parametrize(
    ("layer", "rows"),
    [
        (nn.LSTM(24, 96), 20),
        (nn.LSTM(24, 97), 21),
        (nn.GRU(24, 100), 36),
        (nn.RNN(24, 130), 33),
        (nn.LSTM(24, 64, dtype="float64"), 20),
        (nn.GRU(24, 64, dtype="float16"), 20),
    ],
    ids=["LSTM", "odd", "GRU", "RNN", "float64", "float16"],
)
def test_what_is_computed(layer: nn.Module, rows: int) -> None:
    nest = recurrent(layer, 3, rows)
    net = pf.compile(nest, target="cuda", machine="h200", device="lockstep")
    plan = net.compiled.plan
    assert plan is not None
    assert stays(plan)
    assert "u0 stays in shared memory" in str(plan)
    x = np.random.default_rng(0).standard_normal((3, rows, 24)).astype(nest.tensor("x").dtype)
    np.testing.assert_allclose(
        net(x), pf.interpret(nest, [x])["out"], rtol=1e-5, atol=1e-6 if x.itemsize > 2 else 1e-3
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_as_machine_code_nothing_is_spilled(dtype: str) -> None:
    pytest.importorskip("cuda.core")
    nest = recurrent(nn.LSTM(24, 256, dtype=dtype), 8, 50)  # type: ignore[arg-type]
    net = pf.compile(nest, target="cuda", machine="h200", device="none")
    assert net.compiled.plan is not None
    assert stays(net.compiled.plan)
    (launch,) = (launch for launch in net.program.launches if launch.code.grid_barriers)
    for capability in ((8, 0), (9, 0)):
        (cubin,) = build_kernels(replace(net.program, launches=(launch,)), capability).values()
        assert launch.code.registers is not None
        assert cubin.registers <= launch.code.registers
        assert (cubin.spill_stores, cubin.spill_loads) == (0, 0)


def test_weights_that_do_not_fit_are_read_in_each_step() -> None:
    plan = plan_for(recurrent(nn.LSTM(24, 1100), 8, 50), Machine.preset("h200"))
    assert not stays(plan)
    assert "u0 does not stay in shared memory: h200 has 132 blocks of 232448 bytes" in str(plan)


def test_where_shared_memory_is_small_fewer_units_fit() -> None:
    h200 = Machine.preset("h200")
    small = replace(h200, gpu=replace(h200.gpu, shared_per_block=20_000))
    nest = recurrent(nn.LSTM(24, 256), 8, 50)
    assert stays(plan_for(nest, h200))
    assert not stays(plan_for(nest, small))


def test_a_search_may_try_both() -> None:
    def other(kernel: tuple[str, ...], what: str, seconds: Sequence[float]) -> int:
        return int(what == "held")

    nest, h200 = recurrent(nn.LSTM(24, 256), 8, 50), Machine.preset("h200")
    plan = plan_for(nest, h200, choose=Choose(other))
    assert not stays(plan)
    forced = plan_for(nest, h200, force={"stationary operand": False})
    assert str(forced.schedule) == str(plan.schedule)
    assert "u0 does not stay in shared memory: " in str(plan)

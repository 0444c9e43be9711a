"""Recurrent layers behind each other on cores: where the model wants them so, and what they compute."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.ir import Nest
from polyfuse.ir.tree import parts, statements
from polyfuse.machine import KiB, Machine, cpu
from polyfuse.strategy import Plan, plan_for

TWO = cpu("two cores", 2, 32, (32 * KiB, 1024 * KiB, 8192 * KiB), 3.0e9)

LAYERS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}


def stacked(kind: str, layers: int, times: int, rows: int, hidden: int = 48) -> Nest:
    return nn.lower(LAYERS[kind](hidden, hidden, layers), batch=(times, rows))


def said(plan: Plan) -> str:
    (note,) = (note for note in plan.notes if "behind each other" in note)
    return note


@pytest.mark.parametrize(("kind", "rows"), [("lstm", 40), ("gru", 40)])
def test_two_layers_on_two_cores_are_a_pipeline(kind: str, rows: int) -> None:
    plan = plan_for(stacked(kind, 2, 24, rows), TWO)
    assert " run behind each other on cores: " in said(plan)
    for name in ("step0", "mac1", "step1"):
        binds = [loop.bind for loop in plan.schedule.loops(name)]
        assert binds[:2] == ["pipeline", None]
        assert "microkernel" in binds


@pytest.mark.parametrize(("kind", "rows"), [("lstm", 40), ("gru", 40)])
def test_a_layer_waits_behind_the_product_with_its_own_state(kind: str, rows: int) -> None:
    run = pf.compile(stacked(kind, 2, 24, rows), target="cpu", machine=TWO)
    (part,) = (part for part in parts(run.schedule.tree) if "step1" in part.members)
    order = statements(part)
    assert order.index("mac0") < order.index("step0")
    assert order.index("step1") < order.index("mac1")
    own = run.source[run.source.index("if layer == 1:") :]
    before, behind = own.split("await_turn(")
    assert "u_panels_2" in before
    assert "w_panels_2" not in before
    assert "w_panels_2" in behind


def test_half_a_step_behind_costs_less_waiting() -> None:
    nest = stacked("lstm", 2, 24, 10)
    plan = plan_for(nest, TWO)
    assert " with 98% of the cores at work" in said(plan)


def test_machine_code_computes_what_the_oracle_does() -> None:
    draw = np.random.default_rng(5)
    x = draw.standard_normal((40, 2, 96)).astype(np.float32)
    y = nn.input("x", x.shape)
    for _ in range(2):
        w, u = (draw.uniform(-0.1, 0.1, (96, 96)).astype(np.float32) for _ in range(2))
        y = nn.rnn(y, w, u, nonlinearity="relu")[0]
    nest = nn.lower(y)
    run = pf.compile(nest, target="cpu", machine=TWO)
    assert "turns_of(2)" in run.source
    np.testing.assert_allclose(run(x), pf.interpret(nest, {"x": x})["out"], atol=2e-5)


@pytest.mark.parametrize(
    ("layers", "machine"), [(3, TWO), (2, replace(TWO, units=4))], ids=["3 on 2", "2 on 4"]
)
def test_a_core_without_work_is_told(layers: int, machine: Machine) -> None:
    plan = plan_for(stacked("lstm", layers, 12, 40), machine)
    assert " do not run behind each other on cores: " in said(plan)
    assert "of the cores at work" in said(plan)
    assert all(loop.bind != "pipeline" for loop in plan.schedule.loops("step1"))


def test_a_layer_that_begins_at_the_end_has_to_wait_for_the_last_step() -> None:
    x, w, u = (nn.input(n, s, "float64") for n, s in (("x", (6, 8, 8)), ("w", (8, 8)), ("u", (8, 8))))
    nest = nn.lower(nn.rnn(nn.flip(nn.rnn(x, w, u)[0], 0), w, u)[0])
    note = said(plan_for(nest, TWO))
    assert note.startswith("loops in time do not run behind each other on cores: bind(")
    assert "is refused: it would break the flow dependence " in note


def test_one_core_and_one_layer_have_nothing_to_tell() -> None:
    for layers, machine in ((2, replace(TWO, units=1)), (1, TWO)):
        plan = plan_for(stacked("rnn", layers, 6, 8), machine)
        assert not [note for note in plan.notes if "behind each other" in note]

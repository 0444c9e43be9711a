"""Products in steps: blocks inside the loop over time compute what the oracle does, for any sizes, on any cores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyfuse as pf
from polyfuse import nn
from polyfuse.ir import Nest
from polyfuse.ir.tree import Loop, loops
from polyfuse.machine import KiB, Machine, cpu
from polyfuse.schedule import Schedule
from polyfuse.strategy import Plan, plan_for
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.roofline import Model
from polyfuse.strategy.fusion.gemm_pairs import blocked_cost, in_steps_cost
from polyfuse.strategy.fusion.group_search import part_with
from tests.support.examples import examples
from tests.support.execution import memory, run_plain

LEVELS = (4 * KiB, 16 * KiB, 64 * KiB)
ONE, TWO = (cpu(f"{cores} cores", cores, 32, LEVELS, 3.0e9) for cores in (1, 2))

LAYERS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
FUNCTIONS = {"lstm": (nn.lstm, 4), "gru": (nn.gru, 3), "rnn": (nn.rnn, 1)}


def sequence(kind: str, times: int, rows: int, features: int, hidden: int, layers: int = 1) -> Nest:
    return nn.lower(LAYERS[kind](features, hidden, layers), batch=(times, rows))


def around(plan: Plan, statement: str) -> list[Loop]:
    return list(plan.schedule.loops(statement))


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("machine", [ONE, TWO], ids=["one core", "two cores"])
def test_a_steps_product_is_a_microkernel_inside_time(kind: str, machine: Machine) -> None:
    plan = plan_for(sequence(kind, 12, 40, 48, 48), machine)
    step = around(plan, "step0")
    time = around(plan, "hidden0")[machine.units - 1]
    assert any(loop is time for loop in step)
    assert step[-3].bind == "microkernel"
    assert around(plan, "hidden0")[-1].bind == "vector"
    packed = {name for s in plan.schedule.nest.statements if (name := s.name).startswith("pack_")}
    assert {"pack_w0", "pack_u0"} == packed


@pytest.mark.parametrize("machine", [ONE, TWO], ids=["one core", "two cores"])
def test_weights_that_a_call_brings_are_packed_before_time(machine: Machine) -> None:
    x = nn.input("x", (12, 40, 48))
    w, u = (nn.input(name, (192, 48)) for name in "wu")
    plan = plan_for(nn.lower(nn.lstm(x, w, u)[0]), machine)
    packs = [s.name for s in plan.schedule.nest.statements if s.name.startswith("pack_")]
    assert "pack_u" in packs
    assert set(packs) <= {"pack_u", "pack_w"}
    time = next(loop for loop in around(plan, "step0") if loop in around(plan, "hidden0") and not loop.bind)
    for name in packs:
        own = around(plan, name)
        assert time not in own
        assert (own[0].bind == "cores") == (machine is TWO)


def test_rows_are_shared_out_around_time() -> None:
    plan = plan_for(sequence("lstm", 12, 40, 48, 48), TWO)
    outer = around(plan, "step0")[0]
    assert outer.bind == "cores"
    assert outer is around(plan, "hidden0")[0]
    notes = " ".join(note for group in plan.groups for note in group.notes)
    assert "step0 in blocks inside i, which carries dependences; each core takes its values of j" in notes


def test_gates_of_one_column_are_in_the_products_tile() -> None:
    plan = plan_for(sequence("rnn", 12, 40, 48, 48), ONE)
    step, hidden = around(plan, "step0"), around(plan, "hidden0")
    assert [a is b for a, b in zip(step, hidden, strict=False)][:3] == [True, True, True]


def test_gates_of_several_columns_follow_the_product() -> None:
    plan = plan_for(sequence("lstm", 12, 40, 48, 48), ONE)
    step, cell = around(plan, "step0"), around(plan, "cell0")
    assert [a is b for a, b in zip(step, cell, strict=False)][:2] == [True, False]
    assert len({loop.name for loop in cell}) == len(cell) == 3


def test_a_steps_weights_that_do_not_stay_in_l2_are_asked_for() -> None:
    nest = sequence("lstm", 12, 40, 48, 48)
    roomy = cpu("roomy", 1, 32, (4 * KiB, 1024 * KiB, 4096 * KiB), 3.0e9)
    for machine, expected in ((ONE, True), (roomy, False)):
        step = around(plan_for(nest, machine), "step0")
        assert any(loop.fetches for loop in step) == expected


def test_a_sum_begins_with_its_bias_in_the_products_tile() -> None:
    plan = plan_for(sequence("lstm", 12, 40, 48, 48), ONE)
    first, mac = around(plan, "first0"), around(plan, "mac0")
    assert [a is b for a, b in zip(first, mac, strict=False)][:4] == [True] * 4


def test_a_product_over_all_times_is_apart_where_few_rows_read_both_weights_from_behind_l2() -> None:
    nest = sequence("lstm", 12, 2, 48, 48)
    # a dear launch: otherwise both forms take the same time where both weights are in L2
    roomy = replace(cpu("roomy", 1, 32, (32 * KiB, 1024 * KiB, 4096 * KiB), 3.0e9), launch_seconds=5e-7)
    for machine, shared in ((ONE, False), (roomy, True)):
        plan = plan_for(nest, machine)
        assert (around(plan, "mac0")[0] is around(plan, "step0")[0]) == shared
        (decision,) = (d for d in plan.decisions if (d.producer, d.consumer) == ("mac0", "step0"))
        assert decision.taken == shared
        assert shared or "would be read again" in decision.sentence


@pytest.mark.parametrize("kind", LAYERS)
def test_a_product_over_all_times_is_in_time_where_its_sums_would_go_through_memory(kind: str) -> None:
    """As many rows as times: apart, blocks read the weights as often, once a time, and sums go through memory."""
    plan = plan_for(sequence(kind, 40, 40, 48, 48), ONE)
    time = around(plan, "step0")[0]
    assert any(d.taken and d.cost_together for d in plan.decisions if d.producer == "mac0")
    assert around(plan, "mac0")[0] is around(plan, "hidden0")[0] is time
    assert around(plan, "mac0")[-3].bind == around(plan, "step0")[-3].bind == "microkernel"
    if kind == "rnn":  # a step's sums, which L2 holds there
        assert "z0" in {buffer.tensor for buffer in time.buffers}


def test_blocks_inside_batches_read_their_weights_again() -> None:
    """The fewer of times and rows are the batches; their weights, if L2 does not hold a batch, come once for each."""
    for times, rows in ((12, 3), (3, 12)):
        schedule = Schedule(sequence("lstm", times, rows, 48, 48))
        model = Model(Counts(schedule.nest), ONE)
        part = part_with(schedule, "mac0")
        weights = 48 * 4 * 48 * 4
        assert in_steps_cost(schedule.nest, model, part).again == 2 * weights
        assert blocked_cost(model, part).again == 0


def test_a_product_over_a_sequence_is_in_blocks() -> None:
    plan = plan_for(nn.lower(nn.Linear(48, 64), batch=(12, 40)), ONE)
    assert "microkernel" in {loop.bind for loop in loops(plan.schedule.tree)}


@settings(max_examples=examples(10))
@given(
    kind=st.sampled_from(list(FUNCTIONS)),
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 7), st.integers(1, 5), st.integers(1, 18)),
    machine=st.sampled_from([ONE, TWO]),
)
def test_any_sizes_compute_what_the_oracle_does(
    kind: str, sizes: tuple[int, int, int, int], machine: Machine
) -> None:
    times, rows, features, hidden = sizes
    function, gates = FUNCTIONS[kind]
    shapes = {"x": (times, rows, features), "w": (gates * hidden, features), "u": (gates * hidden, hidden)}
    x, w, u = (nn.input(name, shape, "float64") for name, shape in shapes.items())
    nest = nn.lower(function(x, w, u)[0])
    draw = np.random.default_rng(sizes)
    inputs = {name: draw.uniform(-1, 1, shape) for name, shape in shapes.items()}
    schedule = plan_for(nest, machine).schedule
    arrays = memory(nest, schedule.nest, schedule.tree, inputs, {})
    run_plain(schedule.nest, schedule.tree, arrays, {}, 0)
    np.testing.assert_allclose(arrays["out"], pf.interpret(nest, inputs)["out"], atol=1e-12)


def test_machine_code_computes_what_the_oracle_does() -> None:
    nest = sequence("lstm", 5, 23, 17, 33)
    x = np.random.default_rng(5).standard_normal((5, 23, 17)).astype(np.float32)
    found = pf.compile(nest, target="cpu", machine=TWO)(x)
    np.testing.assert_allclose(found, pf.interpret(nest, {"x": x})["out"], atol=2e-5)

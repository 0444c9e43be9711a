from __future__ import annotations

import pytest

from polyfuse.machine import Machine
from polyfuse.strategy import Decision, plan_for
from polyfuse.strategy.remarks import Reason, Remark
from tests.support.models import CPU, CUDA, diamond, mlp, softmax


def between(decisions: tuple[Decision, ...], producer: str, consumer: str) -> Decision:
    return next(d for d in decisions if (d.producer, d.consumer) == (producer, consumer))


def test_every_flow_between_statements_gets_one_decision() -> None:
    nest = mlp(2, 384, 64)
    decisions = plan_for(nest, CUDA).decisions
    pairs = [(d.producer, d.consumer) for d in decisions]
    assert len(set(pairs)) == len(pairs)
    assert pairs == [
        ("zero0", "mac0"),
        ("mac0", "bias0"),
        ("bias0", "relu0"),
        ("zero1", "mac1"),
        ("relu0", "mac1"),
        ("mac1", "bias1"),
        ("bias1", "relu1"),
    ]


def test_a_fusion_taken_says_what_it_saves() -> None:
    decision = between(plan_for(mlp(1, 384, 64), CUDA).decisions, "mac0", "bias0")
    assert (decision.taken, decision.at, decision.launches_saved) == (True, "j", 1)
    assert decision.bytes_saved == 2 * 64 * 384 * 4
    assert 0 < decision.cost_together < decision.cost_apart
    assert "196608 bytes and one launch are saved" in decision.sentence
    assert decision.remark == Remark(
        "group",
        ("mac0", "bias0"),
        True,
        Reason.CHEAPER,
        decision.sentence,
        (decision.cost_together, decision.cost_apart),
    )


def test_a_fusion_refused_by_cost_compares_the_two() -> None:
    decision = between(plan_for(mlp(2, 384, 64), CUDA).decisions, "relu0", "mac1")
    assert (decision.taken, decision.at) == (False, "i")
    assert decision.cost_together > decision.cost_apart > 0
    assert decision.violation is not None
    assert decision.violation.statements == ("relu0", "mac1")
    assert "does not pay" in decision.sentence
    assert "read again" in decision.sentence
    assert decision.reason is Reason.DEARER


def test_a_fusion_refused_by_isl_shows_two_instances() -> None:
    decision = between(plan_for(diamond(), CPU, fuse=True).decisions, "relu0", "tanh0")
    assert decision.taken
    refused = [d for d in plan_for(softmax(), CPU).decisions if d.violation is not None]
    assert refused
    assert {d.reason for d in refused if not d.cost_together} <= {Reason.ILLEGAL}
    assert all(
        d.cost_apart == 0.0 for d in refused if not d.cost_together
    )  # no price decides what is illegal
    assert all("rowmax0[" in str(d.violation) or "rowsum0[" in str(d.violation) for d in refused)


@pytest.mark.parametrize("machine", [CPU, CUDA], ids=lambda m: m.kind)
def test_every_decision_reads_as_a_sentence(machine: Machine) -> None:
    for nest in (mlp(2, 384, 64), softmax(), diamond()):
        for decision in plan_for(nest, machine).decisions:
            assert decision.producer in decision.sentence
            assert decision.consumer in decision.sentence
            assert decision.sentence.endswith(".")


def test_the_log_of_a_plan_has_every_decision_as_a_value() -> None:
    plan = plan_for(mlp(2, 384, 64), CUDA)
    assert [str(each) for each in plan.log if each.pass_ == "group"] == [d.sentence for d in plan.decisions]
    assert {each.pass_ for each in plan.log} >= {"group", "register tiles"}
    assert all(each.text and each.statements for each in plan.log)


def test_a_plan_prints_its_kernels_and_reasons() -> None:
    text = str(plan_for(mlp(1, 33, 1), CPU))
    assert text.startswith("1 kernel, ")
    assert "zero0, mac0, bias0, relu0" in text
    assert "- mac0 and bias0 are fused at j" in text


def test_why_a_product_has_no_tiles_is_a_reason_that_programs_read() -> None:
    (remark,) = (each for each in plan_for(mlp(1, 2, 4), CUDA).log if each.pass_ == "register tiles")
    assert (remark.taken, remark.reason) == (False, Reason.NO_SIZE)
    assert remark.statements == ("zero0", "mac0", "bias0", "relu0")

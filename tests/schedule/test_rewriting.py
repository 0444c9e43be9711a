"""Rewrites are steps: the schedule of a net is one of the nest that was given to the compile."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.checks.cuda_cases import attention
from polyfuse.errors import IllegalRewrite, InvalidSchedule
from polyfuse.rewrite.recorded import Origin
from polyfuse.schedule.rewriting import REWRITES


def normalized() -> pf.Nest:
    return pf.lower(
        nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm(4), nn.ReLU()), batch=2, features=(2, 6, 6)
    )


def rewrites(schedule: pf.Schedule) -> list[object]:
    return [step.args[0] for step in schedule.steps if step.verb == "rewrite"]


def test_a_network_with_batch_norm_compiles_by_its_own_schedule(tmp_path: Path) -> None:
    nest = normalized()
    net = pf.compile(nest, target="cpu", machine="zen5")
    assert net.schedule.given is nest
    assert rewrites(net.schedule) == ["fold"]
    again = pf.compile(nest, target="cpu", machine="zen5", schedule=net.schedule)
    x = np.random.default_rng(0).random((2, 2, 6, 6)).astype("float32")
    np.testing.assert_array_equal(again(x), net(x))
    net.schedule.save(tmp_path / "net.json")
    loaded = pf.Schedule.load(tmp_path / "net.json", normalized())
    assert str(loaded) == str(net.schedule)


def test_the_trace_makes_the_schedule_again() -> None:
    nest = normalized()
    schedule = pf.compile(nest, target="cpu", machine="zen5").schedule
    space = {"pf": pf, "nest": nest}
    exec(schedule.trace(), space)
    assert str(space["s"]) == str(schedule)
    assert schedule.trace().splitlines()[1] == "s = s.rewrite('fold', 'norm0')"


@pytest.mark.parametrize(
    ("nest", "machine", "expected"),
    [
        (lambda: attention(64, 24), "h200", "online"),
        (lambda: pf.lower(nn.sum(nn.input("x", (50003,)))), "h200", "split_reduction"),
        (lambda: pf.lower(nn.concat([nn.relu(nn.input("x", (8, 3))), nn.input("y", (8, 4))], 1)), "zen5", "place"),
    ],
)  # fmt: skip
def test_what_the_strategy_rewrites_is_repeated_by_its_steps(nest, machine, expected) -> None:  # type: ignore[no-untyped-def]
    made = nest()
    options = {"device": "none", "force": {"attention": expected == "online"}} if machine == "h200" else {}
    schedule = pf.compile(made, machine=machine, target="cuda" if options else "cpu", **options).schedule
    assert expected in rewrites(schedule)
    assert str(schedule.replay(made)) == str(schedule)


def test_rewrites_come_first_and_are_checked() -> None:
    nest = normalized()
    with pytest.raises(InvalidSchedule, match="rewrites come before the verbs"):
        pf.Schedule(nest).bind("norm0", i="cores").rewrite("fold", "norm0")
    with pytest.raises(IllegalRewrite, match="fold"):
        pf.Schedule(nest).rewrite("fold", "relu0")
    with pytest.raises(InvalidSchedule, match="unknown rewrite 'folding'; expected one of"):
        pf.Schedule(nest).rewrite("folding", "norm0")
    with pytest.raises(InvalidSchedule, match=r"rewrite\('fold'\): missing a required argument: 'statement'"):
        pf.Schedule(nest).rewrite("fold")
    with pytest.raises(InvalidSchedule, match="changes nothing in nest"):
        pf.Schedule(nest).rewrite("in_place")


def test_a_schedule_with_rewrites_is_pickled() -> None:
    schedule = pf.Schedule(normalized()).rewrite("fold", "norm0")
    again = pickle.loads(pickle.dumps(schedule))
    assert (again.given, again.source, again.steps) == (schedule.given, schedule.source, schedule.steps)


def test_every_rewrite_notes_itself_by_its_name() -> None:
    made = REWRITES["fold"](normalized(), "norm0").nest
    assert isinstance(made.origin, Origin)
    assert (made.origin.rewrite, made.origin.args, made.origin.before) == ("fold", ("norm0",), normalized())

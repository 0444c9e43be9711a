"""Change, leave out, repeat and compare steps; a refusal names the step that was edited."""

from __future__ import annotations

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.errors import IllegalSchedule, InvalidSchedule


@pytest.fixture(scope="module")
def nest() -> pf.Nest:
    return pf.lower(nn.Sequential(nn.Linear(24, 40), nn.ReLU()), batch=12)


def tiled(nest: pf.Nest) -> pf.Schedule:
    s = pf.Schedule(nest).fuse("bias0", "relu0", at="j").tile("mac0", i=8, j=20)
    return s.separate("mac0", "i_in").bind("mac0", i="cores")


def test_one_decision_of_the_automatic_plan_changes_and_the_rest_follows(nest: pf.Nest) -> None:
    automatic = pf.compile(nest, target="cpu", machine="zen5").schedule
    at = next(k for k, step in enumerate(automatic.steps) if step.verb == "split" and step.args[1] == "j")
    edited = automatic.with_step(at, size=8)
    assert edited.steps[at].args == (*automatic.steps[at].args[:2], 8)
    left = [step.verb for step in automatic.steps if step not in edited.steps]
    assert left == ["split", "separate", "separate"]  # 40 columns are whole tiles of 8
    x = np.random.default_rng(0).random((12, 24)).astype("float32")
    net = pf.compile(nest, target="cpu", machine="zen5", schedule=edited)
    np.testing.assert_allclose(net(x), pf.interpret(nest, {"x": x})["out"], rtol=1e-5, atol=1e-6)


def test_a_step_for_partial_tiles_goes_with_them(nest: pf.Nest) -> None:
    s = tiled(nest)
    assert [step.verb for step in s.with_step(1, i=4).steps] == ["fuse", "tile", "bind"]
    assert [step.verb for step in s.with_step(1, i=5).steps] == ["fuse", "tile", "separate", "bind"]


def test_an_edit_that_breaks_a_later_step_is_named(nest: pf.Nest) -> None:
    with pytest.raises(InvalidSchedule, match="has no argument 'size'; separate takes statement, loop"):
        tiled(nest).with_step(2, size=4)
    s = pf.Schedule(nest).split("mac0", "i", 8).bind("mac0", i_in="cores")
    named = r"step 0 as split\('mac0', 'j', 8\): step 1, bind\('mac0', i_in='cores'\), does not fit"
    with pytest.raises(InvalidSchedule, match=named):
        s.with_step(0, loop="j")
    with pytest.raises(InvalidSchedule, match=r"without\(9\): the schedule has 4 steps, numbered from 0"):
        tiled(nest).without(9)


def test_steps_go_with_the_one_that_made_their_loops_or_statements(nest: pf.Nest) -> None:
    s = pf.Schedule(nest).tile("mac0", i=8).tile("mac0", i_in=4).separate("mac0", "i_in")
    s = s.fuse("bias0", "relu0", at="j").pack("w0", "mac0", panel=(1, 20)).vectorize("pack_w0", "e1")
    verbs = [step.verb for step in s.without(0).steps]
    assert verbs == ["fuse", "pack", "vectorize"]
    assert [step.verb for step in s.without(4).steps] == ["tile", "tile", "separate", "fuse"]
    assert s.without(0, -1).steps == s.without(0).without(-1).steps
    assert s.without() is s


def test_an_edit_that_breaks_a_dependence_is_named(nest: pf.Nest) -> None:
    s = pf.Schedule(nest).fuse("bias0", "relu0", at="j")
    s = s.promote("z0", "bias0", at="j").bind("bias0", i="cores")
    with pytest.raises(
        IllegalSchedule, match=r"without step 0, fuse\(.*\): step 1, promote\(.*\), is refused"
    ) as no:
        s.without(0)
    assert no.value.violation.statements == ("bias0", "relu0")
    assert no.value.violation.remedy.endswith(", or leave this step out too: without(0, 1)")
    assert [step.verb for step in s.without(0, 1).steps] == ["bind"]


def test_steps_are_repeated_on_another_nest(nest: pf.Nest) -> None:
    other = pf.lower(nn.Sequential(nn.Linear(24, 72), nn.ReLU()), batch=20)
    again = tiled(nest).replay(other)
    assert again.trace() == tiled(nest).trace()
    assert again.source is other
    with pytest.raises(InvalidSchedule, match=r"step 0, fuse\(.*\), does not fit"):
        tiled(nest).replay(pf.lower(nn.Linear(4, 4), batch=2))


def test_a_difference_is_the_steps_that_one_has(nest: pf.Nest) -> None:
    s = tiled(nest)
    other = s.with_step(1, j=8)
    found = s.diff(other)
    assert (found.removed, found.added) == ((s.steps[1],), (other.steps[1],))
    assert "- tile('mac0', i=8, j=20)\n+ tile('mac0', i=8, j=8)" in str(found)
    assert not s.diff(tiled(nest))
    assert str(s.diff(s)) == "the same steps"

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import polyfuse as pf
from tests.show.subjects import dense, wavefronts


def test_a_legal_schedule_has_the_price_that_cost_gives() -> None:
    nest = dense()
    found = pf.verdict(nest, [{"verb": "split", "args": ["mac0", "j", 3]}], machine="zen5")
    assert found.legal
    assert found.predicted == pf.cost(pf.Schedule(nest).split("mac0", "j", 3), "zen5").seconds
    assert (found.refused, found.violation, found.instances, found.why, found.measured) == (
        None,
        None,
        (),
        "",
        None,
    )
    assert found.data()["steps"] == ["split('mac0', 'j', 3)"]


def test_a_refusal_is_a_value_with_two_instances() -> None:
    nest = wavefronts().nest
    steps = [{"verb": "split", "args": ["S", "i", 4]}, {"verb": "interchange", "args": ["S", "t", "i"]}]
    found = pf.verdict(nest, steps, machine="zen5")
    assert not found.legal
    assert found.refused == 1
    assert found.predicted is None
    assert [i.statement for i in found.instances] == ["S", "S"]
    data = found.data()
    assert json.loads(json.dumps(data)) == data
    assert data["violation"]["kind"] == "flow"
    assert data["instances"] == [
        {"statement": i.statement, "point": list(i.point)}
        for i in (found.violation.source, found.violation.sink)
    ]
    assert data["steps"] == ["split('S', 'i', 4)"]


def test_steps_of_a_saved_schedule_are_taken(tmp_path: Path) -> None:
    wavefronts().save(tmp_path / "s.json")
    steps = json.loads((tmp_path / "s.json").read_text(encoding="utf-8"))["steps"]
    assert pf.verdict(wavefronts().nest, steps, machine="zen5").schedule.tree == wavefronts().tree
    assert pf.verdict(wavefronts().nest, wavefronts().steps, machine="zen5").legal


def test_inputs_make_it_measure() -> None:
    found = pf.verdict(dense(), [], inputs=[np.ones((4, 8), np.float32)])
    assert found.measured is not None
    assert found.measured > 0


@pytest.mark.parametrize(
    ("step", "why"),
    [
        ({"verb": "explode"}, "there is no verb 'explode'"),
        ({"verb": "__init__", "args": [1]}, "there is no verb '__init__'"),
        (
            {"verb": "split", "args": ["mac0", "j"]},
            r"missing a required argument: 'size'; expected split\(statement: str",
        ),
        ({"verb": "split", "args": ["mac0", "j", "3"]}, "size is '3'; expected split"),
        ({"verb": "split", "args": ["mac0", "j", True]}, "size is True; expected split"),
        ({"verb": "tile", "args": ["mac0"], "options": {"i": 1.5}}, "sizes is {'i': 1.5}; expected tile"),
        ({"verb": "split", "args": ["mac0", "q", 3]}, "step 0, .* does not fit: "),
        ({"verb": "split", "argument": []}, "has 'argument'; a step has verb, args and options"),
        ({"args": []}, "'verb' is missing"),
        ("split('mac0', 'j', 3)", "expected a step such as"),
        ({"verb": "promote", "args": [{"is": "Popen"}]}, "there is no type 'Popen'"),
        ({"verb": "bind", "args": [[["mac0"]]], "options": {"i": "cores"}}, "step 0"),
    ],
)
def test_what_is_no_step_is_an_error_that_says_why(step: object, why: str) -> None:
    with pytest.raises(pf.InvalidSchedule, match=why):
        pf.verdict(dense(), [step], machine="zen5")  # type: ignore[list-item]

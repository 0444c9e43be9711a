from __future__ import annotations

import io
import json
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import polyfuse as pf
from polyfuse import nn
from polyfuse.cli.app import app
from polyfuse.cli.serve import answer, serve
from polyfuse.machine import Machine
from polyfuse.schedule.files import to_json
from tests.show.subjects import dense, wavefronts

ZEN5 = Machine.preset("zen5")


def answers(nest: pf.Nest, *requests: object) -> list[dict[str, Any]]:
    lines = [one if isinstance(one, str) else json.dumps(one) for one in requests]
    out = io.StringIO()
    serve(nest, ZEN5, [f"{line}\n" for line in lines], out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_each_request_gets_one_line_with_its_id() -> None:
    split = {"verb": "split", "args": ["mac0", "j", 3]}
    first, second = answers(
        dense(), {"id": 7, "do": "verdict", "steps": [split]}, "", {"id": "b", "steps": []}
    )
    assert (first["id"], first["legal"], second["id"]) == (7, True, "b")
    assert first == {"id": 7, **pf.verdict(dense(), [split], machine=ZEN5).data()}


def test_a_refusal_is_an_answer() -> None:
    (found,) = answers(wavefronts().nest, {"steps": [{"verb": "interchange", "args": ["S", "t", "i"]}]})
    assert found["legal"] is False
    assert len(found["instances"]) == 2


def test_next_steps_can_be_sent_back() -> None:
    nest = dense()
    (found,) = answers(nest, {"do": "next", "most": 3})
    steps = [{k: one[k] for k in ("verb", "args", "options")} for one in found["next"]]
    assert 0 < len(steps) <= 3
    for one, step in zip(found["next"], steps, strict=True):
        (after,) = answers(nest, {"steps": [step]})
        assert after["predicted"] == one["seconds"]


def test_the_nest_and_the_explorer_are_data() -> None:
    nest, explorer = answers(dense(), {"do": "nest"}, {"do": "explore"})
    assert nest["statements"][0] == "zero0"
    assert "split" in nest["verbs"]
    assert explorer["explorer"]["format"] == "polyfuse explorer"


@pytest.mark.parametrize(
    ("request_", "kind", "why"),
    [
        ("{", "BadArgument", "a request is one line of JSON"),
        ("[" * 100_000, "BadArgument", "a request is one line of JSON"),
        ([1], "BadArgument", "a request is an object, not list"),
        ({"do": "exec"}, "BadArgument", "do: 'exec'; expected one of nest, verdict, next, explore"),
        ({"do": ["nest"]}, "BadArgument", "expected one of"),
        ({"code": "1"}, "BadArgument", "unknown field 'code'"),
        ({"steps": "split"}, "BadArgument", "expected a list"),
        ({"do": "next", "most": 0}, "BadArgument", "expected a number from 1 to 100"),
        ({"steps": [{"verb": "stream", "args": ["T"]}]}, "InvalidSchedule", "unknown statement 'T'"),
        ({"steps": [{"verb": "given"}]}, "InvalidSchedule", "there is no verb 'given'"),
        (
            {"steps": [{"verb": "rewrite", "args": ["os.system", "true"]}]},
            "InvalidSchedule",
            "unknown rewrite",
        ),
    ],
)
def test_what_cannot_be_answered_is_an_error_as_json(request_: object, kind: str, why: str) -> None:
    found, after = answers(dense(), request_, {"do": "nest"})
    assert found["error"]["type"] == kind
    assert why in found["error"]["message"]
    assert "nest" in after


def test_the_command_reads_stdin_and_writes_stdout(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text("from polyfuse import nn\nmodel, batch = nn.Linear(8, 6), 4\n", encoding="utf-8")
    command = ["serve", str(file), "--stdio", "--machine", "zen5"]
    found = CliRunner().invoke(app, command, input='{"do": "nest"}\n')
    assert found.exit_code == 0
    assert json.loads(found.stdout)["statements"] == ["zero0", "mac0", "bias0"]


def test_explore_writes_the_page_and_its_data(tmp_path: Path) -> None:
    file, page, data = tmp_path / "net.py", tmp_path / "net.html", tmp_path / "net.json"
    file.write_text("from polyfuse import nn\nmodel, batch = nn.Linear(8, 6), 4\n", encoding="utf-8")
    for out, more in ((page, ()), (data, ("--json",))):
        options = ["--out", str(out), "--target", "cpu", "--machine", "zen5"]
        found = CliRunner().invoke(app, ["explore", str(file), *options, *more])
        assert found.exit_code == 0, found.output
        assert f"wrote {out}" in found.output.replace("\n", "")
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert json.loads(data.read_text(encoding="utf-8"))["format"] == "polyfuse explorer"


def greedy_search() -> tuple[dict[str, Any], pf.Nest]:
    """The example's names, and its nest."""
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "greedy_search.py"))
    return example, pf.lower(example["outputs"])


def test_the_greedy_searcher_finds_a_schedule_that_is_predicted_to_be_faster() -> None:
    example, nest = greedy_search()
    plan = pf.compile(nest, target="cpu", machine="zen5").schedule
    steps = json.loads(to_json(plan.given, plan.steps))["steps"]
    server = SimpleNamespace(ask=lambda **request: answer(nest, ZEN5, json.dumps(request)))
    found = example["search"](server, steps, by="predicted")
    predicted = pf.verdict(nest, found, machine=ZEN5).predicted
    assert predicted is not None
    assert predicted < 0.9 * pf.cost(plan, ZEN5).seconds
    x = np.random.default_rng(0).random(nest.inputs[0].shape, np.float32)
    net = pf.compile(
        nest, target="cpu", machine="zen5", schedule=pf.verdict(nest, found, machine=ZEN5).schedule
    )
    assert np.allclose(net(x), pf.interpret(nest, [x])["out"], rtol=1e-5)


def test_the_greedy_searcher_is_short() -> None:
    text = (Path(__file__).parents[2] / "examples" / "greedy_search.py").read_text(encoding="utf-8")
    code = [line for line in text.split('"""', 2)[2].splitlines() if line.strip()]
    assert len(code) <= 50


def test_a_verdict_is_measured_if_asked_for() -> None:
    nest = pf.lower(nn.Linear(8, 6), batch=4)
    found = answer(nest, ZEN5, json.dumps({"steps": [], "measure": True}))
    assert found["measured"] > 0
    assert answer(nest, ZEN5, json.dumps({"steps": []}))["measured"] is None
    wrong = answer(nest, ZEN5, json.dumps({"steps": [], "measure": 1}))["error"]
    assert wrong["message"] == "measure: 1; expected true or false"
    symbolic = answer(pf.lower(nn.Linear(8, 6), batch="N"), ZEN5, json.dumps({"measure": True}))["error"]
    assert "depend on N" in symbolic["message"]
    assert "serve a nest whose sizes are numbers" in symbolic["message"], "there is no --size to give"

"""Schedules as files: what is written is read back and proven again, and a bad file says what is wrong with it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.errors import BadArgument, IllegalSchedule, InvalidSchedule


def dense() -> pf.Nest:
    return pf.lower(nn.Sequential(nn.Linear(24, 40), nn.ReLU(), nn.Linear(40, 8)), batch=12)


@pytest.fixture(scope="module")
def automatic() -> pf.Schedule:
    return pf.compile(dense(), target="cpu", machine="zen5").schedule


def test_a_saved_schedule_is_the_same_schedule(automatic: pf.Schedule, tmp_path: Path) -> None:
    automatic.save(tmp_path / "dense.json")
    loaded = pf.Schedule.load(tmp_path / "dense.json", dense())
    assert str(loaded) == str(automatic)
    assert loaded.trace() == automatic.trace()


def test_values_of_every_kind_come_back(tmp_path: Path) -> None:
    nest = pf.lower(nn.Linear(64, 64, bias=False), batch=64)
    layout = pf.SmemLayout(8, 4, 0, 1, 4)
    s = pf.Schedule(nest).tile("mac0", i=32, j=32).bind("mac0", i=pf.Binding.BLOCK_Y, j="block.x")
    s = s.promote("x", "mac0", at="j", memory="shared", panel=(0, 32), layout=layout)
    s.save(tmp_path / "s.json")
    loaded = pf.Schedule.load(tmp_path / "s.json", nest)
    assert loaded.steps == s.steps
    assert "pf.SmemLayout(" in loaded.trace()


def test_a_file_is_read_in_another_process(automatic: pf.Schedule, tmp_path: Path) -> None:
    path = tmp_path / "dense.json"
    automatic.save(path)
    program = f"""
import polyfuse as pf
from polyfuse import nn
nest = pf.lower(nn.Sequential(nn.Linear(24, 40), nn.ReLU(), nn.Linear(40, 8)), batch=12)
print(pf.Schedule.load({str(path)!r}, nest))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.rstrip() == str(automatic)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "a recipe"}, "expected a file that Schedule.save wrote"),
        ({"version": 7}, "has version 7"),
        ({"steps": [{"verb": "tile", "args": ["mac0"]}]}, "step 0 cannot be read: 'options' is missing"),
        ({"steps": [{"verb": "__init__", "args": [], "options": {}}]}, "there is no verb '__init__'"),
        ({"steps": [{"verb": "tile", "args": ["mac9"], "options": {"i": 2}}]}, "step 0, tile.* does not fit"),
        ({"steps": [{"verb": "split", "args": ["mac0"], "options": {}}]}, "step 0, split.* does not fit"),
        ({"steps": [{"verb": "rewrite", "args": ["eval"], "options": {}}]}, "unknown rewrite 'eval'"),
        (
            {"steps": [{"verb": "tile", "args": [{"is": "Path"}], "options": {}}]},
            "step 0 cannot be read: there is no type 'Path'",
        ),
        ({"statements": ["mac0", "conv7"]}, "has no statement conv7"),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    path, nest = tmp_path / "s.json", dense()
    pf.Schedule(nest).save(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(InvalidSchedule, match=message):
        pf.Schedule.load(path, nest)


def test_no_json_and_no_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text("s = pf.Schedule(nest)")
    with pytest.raises(InvalidSchedule, match="is no schedule"):
        pf.Schedule.load(tmp_path / "s.json", dense())
    with pytest.raises(BadArgument, match="cannot read"):
        pf.Schedule.load(tmp_path / "absent.json", dense())


def test_an_illegal_step_is_refused_as_by_its_verb(tmp_path: Path) -> None:
    path, nest = tmp_path / "s.json", dense()
    pf.Schedule(nest).save(path)
    steps = [{"verb": "fuse", "args": ["mac0", "mac1"], "options": {"at": "j"}}]
    path.write_text(json.dumps({**json.loads(path.read_text()), "steps": steps}))
    with pytest.raises(IllegalSchedule, match=r"step 0, fuse\('mac0', 'mac1', at='j'\), is refused") as found:
        pf.Schedule.load(path, nest)
    assert found.value.violation.kind == "flow"

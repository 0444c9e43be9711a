"""Snapshots of plans and of machine code: the same each time, and no change goes unnoticed."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from llvmlite import binding as llvm

import polyfuse as pf
from benchmarks import compiled_cases, machine_code, plans, snapshots
from benchmarks.snapshots import Record, Snapshot

SMALL = ("pipelines/blurs, 2 threads", "cuda/ReLU", "workloads/mlp-8x64-b1, 1 thread")


def snapshot(**records: Record) -> Snapshot:
    return {"about": {"versions": "1"}, "cases": records}


# -- plans -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recorded() -> dict[str, Record]:
    return snapshots.recorded(SMALL, plans.plan)


def test_a_plan_says_what_runs_how_it_came_about_and_what_is_expected(recorded: dict[str, Record]) -> None:
    on_cpu, on_gpu = recorded["pipelines/blurs, 2 threads"], recorded["cuda/ReLU"]
    for record in recorded.values():
        assert list(record) == ["kernels", "trace", "predicted", "explain", "source"]
        assert len(record["predicted"]) == len(record["kernels"])
        assert all(seconds > 0 for seconds in record["predicted"])
        assert record["trace"][0] == "s = pf.Schedule(nest)"
        assert len(record["source"]) == 64
        assert record["explain"][-1].startswith("validated: cover, copies, ")
    assert on_gpu["kernels"][0]["runs"] == "relu0"
    assert "grid" in on_gpu["kernels"][0]
    assert "grid" not in on_cpu["kernels"][0]
    assert on_cpu["explain"][0].endswith(" on zen5")


def test_plans_are_the_same_in_other_processes(recorded: dict[str, Record], tmp_path: Path) -> None:
    """With other hashes of strings, and through the command line."""
    path = tmp_path / "plans.json"
    options = ["--only", "pipelines,cuda", "--named", "cuda/ReLU"]
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    command = [sys.executable, "-m", "benchmarks.plans", *options, "--out", str(path)]
    subprocess.run(command, check=True, capture_output=True, env=environment)
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found["about"]["machines"] == "zen5 with 1 and 2 cores, h200"
    assert found["cases"] == {"cuda/ReLU": recorded["cuda/ReLU"]}


def test_a_plan_for_another_machine_is_noticed(
    recorded: dict[str, Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "pipelines/blurs, 2 threads"
    monkeypatch.setattr(compiled_cases, "CPU", "xeon")
    other = plans.plan(name)
    parts = {part for _, part, _ in snapshots.differences(snapshot(a=recorded[name]), snapshot(a=other))}
    assert {"predicted", "explain"} <= parts


def test_every_group_has_its_cases() -> None:
    counts = {group: len(compiled_cases.cases(group)) for group in compiled_cases.GROUPS}
    assert counts["workloads"] == 44
    assert counts["networks"] == 336
    assert counts["polybench"] == 60
    assert counts["pipelines"] == 8
    assert counts["cuda"] > 90
    assert counts["golden"] == 6


# -- files and their differences ---------------------------------------------------------------------------------------


def test_a_file_is_read_as_it_was_written(recorded: dict[str, Record]) -> None:
    whole = snapshot(**recorded)
    assert json.loads(snapshots.written(whole)) == json.loads(json.dumps(whole))


def test_worker_processes_record_the_same_in_the_same_order() -> None:
    names = [f'{{"case": {number}}}' for number in range(3)]
    assert list(snapshots.recorded(names, json.loads, jobs=2).items()) == [
        (name, {"case": number}) for number, name in enumerate(names)
    ]


def refused(name: str) -> Record:
    raise pf.TargetUnavailable(f"no {name}")


def test_a_case_that_is_refused_says_why() -> None:
    assert snapshots.recorded(["a"], refused) == {"a": {"refused": ["TargetUnavailable: no a"]}}


def test_each_part_of_a_plan_that_changes_is_a_line(recorded: dict[str, Record]) -> None:
    old = recorded["cuda/ReLU"]
    for part in old:
        new = copy.deepcopy(old)
        new[part] = "0" * 64 if part == "source" else [*old[part][:-1], "other"]
        *lines, total = snapshots.report(snapshot(relu=old), snapshot(relu=new))
        assert len(lines) == 1
        assert lines[0].startswith(f"relu: {part}: ")
        assert total == f"1 of 1 case in both files differ; 1 difference ({part} 1)"


def test_what_a_difference_says() -> None:
    assert snapshots.difference(1.5, 2.5) == "1.5 -> 2.5"
    assert snapshots.difference([1, 2, 3], [1, 4, 5, 6]) == "[1] 2 -> 4, and 2 more"
    assert snapshots.difference(["a"], ["a", "b"]) == "[1] nothing -> b"
    assert len(snapshots.difference("a" * 1000, "b" * 1000)) < 200


def test_cases_that_one_file_has_are_differences_and_other_versions_are_said() -> None:
    one, other = snapshot(a={"source": "x"}, b={"source": "y"}), snapshot(b={"source": "y"})
    other["about"] = {"versions": "2"}
    assert list(snapshots.report(one, other)) == [
        "about: versions: 1 -> 2",
        "a: cases: only in the first file",
        "0 of 1 case in both files differ; 1 difference (cases 1)",
    ]


@pytest.mark.parametrize(("changed", "status"), [(False, 0), (True, 1)])
def test_the_command_ends_with_1_where_files_differ(
    changed: bool,
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    paths = [tmp_path / name for name in ("before.json", "after.json")]
    for path, text in zip(paths, ("x", "y" if changed else "x"), strict=True):
        path.write_text(snapshots.written(snapshot(a={"source": text})), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["plans", "--compare", *map(str, paths)])
    with pytest.raises(SystemExit) as ended:
        plans.main()
    assert ended.value.code == status
    assert ("a: source: x -> y" in capsys.readouterr().out) == changed


def test_a_part_of_two_files_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [tmp_path / name for name in ("before.json", "after.json")]
    for path, text in zip(paths, "xy", strict=True):
        records = {"cuda/ReLU": {"source": "z"}, "cuda/tanh": {"source": text}}
        path.write_text(snapshots.written(snapshot(**records)), encoding="utf-8")
    for part, total in (("ReLU", "0 of 1 case "), ("tanh", "1 of 1 case "), ("", "1 of 2 cases ")):
        monkeypatch.setattr(sys, "argv", ["plans", "--named", part, "--compare", *map(str, paths)])
        with pytest.raises(SystemExit):
            plans.main()
        assert capsys.readouterr().out.splitlines()[-1].startswith(total)


# -- machine code ------------------------------------------------------------------------------------------------------

MODULE = """
declare double @{outside}(double)
define double @{name}(double %x) {{
  %y = call double @{called}(double %x)
  %z = fadd double %y, {constant}
  %w = call double @{outside}(double %z)
  ret double %w
}}
declare double @{called}(double)
"""


def linked(
    name: str = "_ZN1aE", called: str = "_ZN1bE", outside: str = "sin", constant: str = "1.5"
) -> bytes:
    """The object file of a function that calls one of numba's and one of C's."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple().create_target_machine()
    text = MODULE.format(name=name, called=called, outside=outside, constant=constant)
    return bytes(target.emit_object(llvm.parse_assembly(text)))


def both(code: bytes) -> tuple[str, str]:
    return machine_code.digest(code, executable=True), machine_code.digest(code, executable=False)


def test_names_of_modules_are_no_part_of_machine_code() -> None:
    assert both(linked()) == both(linked(name="_ZN8polyfuse7codegen1aE", called="_ZN5other1bE"))


def test_other_instructions_calls_and_constants_are_noticed() -> None:
    text, constants = both(linked())
    assert both(linked(outside="cos"))[0] != text
    assert both(linked(outside="_ZN1cE"))[0] != text
    assert both(linked(constant="2.5")) != (text, constants)


def test_a_cpus_code_is_the_same_each_time() -> None:
    once, again = (machine_code.digests("golden/product_cpu") for _ in range(2))
    assert once == again
    assert once["bytes"] > 1000


def test_a_gpus_code_is_the_same_each_time() -> None:
    pytest.importorskip("numba.cuda")
    pytest.importorskip("cuda.core")
    once, again = (machine_code.digests("cuda/ReLU") for _ in range(2))
    assert once == again
    assert once["kernels"] == ["relu"]
    assert once["bytes"][0] > 100

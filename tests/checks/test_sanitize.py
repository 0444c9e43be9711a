"""`polyfuse gpu-check --sanitize` where there is neither a GPU nor the tool: what it runs, and what it says without."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from polyfuse.checks import sanitize
from polyfuse.checks.gpu_check import Run
from polyfuse.checks.sanitize import FOUND, run_sanitized
from polyfuse.errors import BadArgument, TargetUnavailable
from polyfuse.workbench.terminal import Terminal

TOOL = """#!/bin/sh
# writes down what it is asked, and finds something where it is racecheck
while [ "$1" != "--log-file" ]; do [ "$1" = "--tool" ] && tool=$2; shift; done
echo "========= ERROR SUMMARY: 0 errors $tool" > "$2"
echo "$@" >> "$2"
[ "$tool" = racecheck ] && exit 86
exit 0
"""


@pytest.fixture
def a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanitize, "missing", lambda: None)
    monkeypatch.setattr(sanitize, "PLACES", ())


def test_both_tools_run_the_cases_with_one_seed(
    a_gpu: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tool = tmp_path / "bin" / "compute-sanitizer"
    tool.parent.mkdir()
    tool.write_text(TOOL)
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    assert not run_sanitized(Terminal(), "gpu", tmp_path / "out", "softmax", 5)
    printed = capsys.readouterr().out
    assert "memcheck   ok: ERROR SUMMARY: 0 errors memcheck" in printed
    assert "racecheck  FAILED, the sanitizer found errors" in printed
    (path,) = (tmp_path / "out").glob("gpu-sanitize-*.json")
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found["seed"] == 5
    assert [(one["tool"], one["exit_code"]) for one in found["tools"]] == [
        ("memcheck", 0),
        ("racecheck", FOUND),
    ]
    asked = (tmp_path / "out" / "gpu-memcheck.log").read_text()
    assert "-m polyfuse gpu-check --seed 5" in asked
    assert "--only softmax" in asked
    assert "--jobs 1" in asked


def test_processes_are_watched_and_one_that_found_something_counts(
    a_gpu: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "echo '========= ERROR SUMMARY: 3 errors' > \"$2\"; echo '========= ERROR SUMMARY: 0 errors' >> \"$2\""
    tool = tmp_path / "bin" / "compute-sanitizer"
    tool.parent.mkdir()
    tool.write_text(
        f'#!/bin/sh\nall=$*\nwhile [ "$1" != --log-file ]; do shift; done\n{said}\necho $all >> "$2"\n'
    )
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    assert not run_sanitized(Terminal(), "gpu", tmp_path / "out", None, 5, Run(14, 120, True))
    assert "memcheck   FAILED, the sanitizer found errors: ERROR SUMMARY: 3 errors" in capsys.readouterr().out
    asked = (tmp_path / "out" / "gpu-memcheck.log").read_text()
    assert "--target-processes all" in asked
    assert "--jobs 14 --minutes 2.0 --resume" in asked


def test_without_the_tool_the_error_says_where_it_comes_from(
    a_gpu: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TargetUnavailable, match=r"needs compute-sanitizer.*cuda-sanitizer-13-0"):
        run_sanitized(Terminal(), "gpu", tmp_path, None, None)


def test_a_stand_in_checks_itself(tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match="not on lockstep, which checks bounds, races and barriers itself"):
        run_sanitized(Terminal(), "lockstep", tmp_path, None, None)

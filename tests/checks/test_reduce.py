"""The reducer: what fails stays failing, and gets small; a failure is told from a refusal."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import polyfuse as pf
from polyfuse.checks.reduce import Options, Outcome, edits, outcome_of, smallest, trial
from polyfuse.cli.app import app

PROGRAM = """
import polyfuse as pf

SIZES = 3

@pf.nest
def f(a: "f64[24]", b: "f64[24, 9]", c: "f64[9]"):
    for i in range(24):
        a[i] = 2 * a[i] + 1
    for i in range(24):
        for j in range(9):
            if i > 3:
                b[i, j] = max(b[i, j] * c[j], 0) - a[i]
            else:
                c[j] = 7
"""


def test_what_is_left_is_small_and_still_fails() -> None:
    found = smallest(PROGRAM, lambda text: "max(" in text and "for j" in text)
    assert found == (
        "import polyfuse as pf\nSIZES = 3\n\n@pf.nest\ndef f(b: 'f64[1, 1]'):\n    for j in range(0):\n"
        "        b[0, j] = max(0, 0)\n"
    )


def test_edits_are_programs_and_smaller() -> None:
    for text in edits(PROGRAM):
        compile(text, "edited", "exec")


def test_outcomes(monkeypatch: pytest.MonkeyPatch) -> None:
    options = Options()
    assert outcome_of(PROGRAM, options) == Outcome("agrees")
    out = outcome_of(PROGRAM.replace("a[i] + 1", "a[i + 1] + 1"), options)
    assert (out.kind, out.where, out.fails) == ("refused", "InvalidNest", False)
    assert outcome_of(PROGRAM.replace("f64[24]", "f64[N]"), options).kind == "refused"
    broken = PROGRAM.replace("SIZES = 3", "import polyfuse.compiler")
    with monkeypatch.context() as patched:
        patched.setattr("polyfuse.checks.reduce.compile", lambda nest, **_: lambda **arrays: None)
        found = outcome_of(broken, options)
        assert found.kind == "wrong"
        assert found.text.startswith("a[0] is")
        patched.setattr("polyfuse.checks.reduce.compile", lambda nest, **_: dict[str, int]()["gone"])
        assert outcome_of(broken, options).where.startswith("KeyError in test_reduce.py")


def test_a_process_of_its_own_may_die_or_hang() -> None:
    dies = trial("import os\nos._exit(7)", Options())
    assert (dies.kind, dies.where) == ("died", "7")
    assert trial("while True: pass", Options(limit=0.5)).kind == "time-out"


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def faked(text: str, options: Options) -> Outcome:
        return Outcome("wrong") if "max(" in text else Outcome("agrees")

    monkeypatch.setattr("polyfuse.checks.reduce.trial", faked)
    file, out = tmp_path / "program.py", tmp_path / "small.py"
    file.write_text(PROGRAM)
    done = CliRunner().invoke(app, ["reduce", str(file), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "max(" in out.read_text()
    assert len(out.read_text()) < len(PROGRAM) / 2
    file.write_text(PROGRAM.replace("max(", "min("))
    assert CliRunner().invoke(app, ["reduce", str(file)]).exit_code == 1


def test_a_file_without_a_function_is_refused() -> None:
    with pytest.raises(pf.BadArgument, match=r"no function under @pf\.nest"):
        smallest("x = 1", lambda text: True)

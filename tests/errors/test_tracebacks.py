"""An error that polyfuse raises on purpose shows the user's lines and its message; more on demand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from polyfuse.errors import PolyfuseError
from polyfuse.errors.tracebacks import SWITCH, short

OUT_OF_BOUNDS = """
import polyfuse as pf
def made():
    @pf.nest
    def shifted(a: "f32[8]"):
        for i in range(8):
            a[i + 1] = a[i]
    return shifted
nest = made()
"""

MESSAGE = "statement S0: a[1 + i] is out of bounds of a[8] at S0[7]"
SHOWN = [
    "     7 |             a[i + 1] = a[i]",
    "                     ^",
    "would work: subscripts inside for all sizes; an assert on sizes at the top leaves some out",
]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(OUT_OF_BOUNDS, encoding="utf-8")
    return path


def errors_of(*command: str | Path, **environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert done.returncode == 1
    return done.stderr.splitlines()


def test_a_script_shows_its_own_lines_and_the_message(script: Path) -> None:
    assert errors_of(script) == [
        f'File "{script}", line 9, in <module>: nest = made()',
        f'File "{script}", line 4, in made: @pf.nest',
        f"polyfuse.errors.InvalidNest: {script}:7:13: {MESSAGE}",
        *SHOWN,
    ]


def test_everything_where_that_is_asked_for(script: Path) -> None:
    lines = errors_of(script, **{SWITCH: "full"})
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-4:] == [f"polyfuse.errors.InvalidNest: {script}:7:13: {MESSAGE}", *SHOWN]
    assert any("polyfuse/ir/check.py" in line for line in lines)


@pytest.mark.parametrize(
    ("raised", "last"),
    [
        ("pf.ValidationFailure('a witness')", "polyfuse.errors.ValidationFailure: a witness"),
        ("KeyError('x')", "KeyError: 'x'"),
    ],
)
def test_faults_of_polyfuse_and_errors_of_others_are_shown_in_full(raised: str, last: str) -> None:
    lines = errors_of("-c", f"import polyfuse as pf\npf.PolyfuseError\nraise {raised}")
    assert (lines[0], lines[-1]) == ("Traceback (most recent call last):", last)


def test_another_hook_is_left_alone(script: Path) -> None:
    code = "import sys; sys.excepthook = lambda *args: print('mine', file=sys.stderr); import runpy; "
    assert errors_of("-c", f"{code}runpy.run_path({str(script)!r})") == ["mine"]


def test_lines_of_a_library_that_calls_polyfuse_are_shown_and_those_it_calls_are_not(tmp_path: Path) -> None:
    code = "import contextlib, polyfuse as pf\n"
    code += "with contextlib.ExitStack() as stack:\n    stack.callback(pf.Machine.preset, 'none')\n"
    lines = errors_of("-c", code)
    assert all("contextlib.py" in line for line in lines[1:-1]), lines
    assert lines[-1].startswith("polyfuse.errors.TargetUnavailable: unknown machine 'none'")


@pytest.mark.parametrize("full", [False, True])
def test_a_notebook_shows_the_same(full: bool) -> None:
    pytest.importorskip("IPython")
    code = "import polyfuse as pf\npf.Machine.preset('none')"
    command = [sys.executable, "-m", "IPython", "--colors=NoColor", "--no-banner", "-c", code]
    environment = {**os.environ, SWITCH: "full" if full else ""}
    lines = subprocess.run(command, capture_output=True, text=True, env=environment).stdout.splitlines()
    assert any("raise TargetUnavailable" in line for line in lines) is full
    assert full or len(lines) == 2, lines
    assert "unknown machine 'none'" in lines[-1]


def test_notes_are_part_of_the_message() -> None:
    error = PolyfuseError("message")
    error.add_note("a note")
    assert short(error) == ["polyfuse.errors.PolyfuseError: message", "a note"]


COMMAND = "from polyfuse.cli import main; main()"


def test_a_command_shows_the_line_of_the_file_and_the_message(script: Path) -> None:
    lines = errors_of("-c", COMMAND, "compile", script, "--target", "cpu")
    assert lines[-6:] == [
        f'File "{script}", line 9, in <module>: nest = made()',
        f'File "{script}", line 4, in made: @pf.nest',
        f"error: {script}:7:13: {MESSAGE}",
        *SHOWN,
    ]
    assert len(lines) == 7
    assert len(errors_of("-c", COMMAND, "compile", script, **{SWITCH: "full"})) > 20


def test_what_a_function_of_the_file_raises_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "file.py"
    path.write_text("def model():\n    return 1 / 0\n", encoding="utf-8")
    last = errors_of("-c", COMMAND, "compile", path)[-1]
    assert last == f"error: {path}, line 2 raised ZeroDivisionError: division by zero"


def test_a_fault_of_polyfuse_in_a_command_says_that_it_is_one(tmp_path: Path) -> None:
    broken = "import polyfuse.cli.info as info\ninfo.cache_directory = None\n"
    lines = errors_of("-c", broken + COMMAND, "info")
    assert lines == [
        "error: TypeError: 'NoneType' object is not callable",
        f"a fault of polyfuse; {SWITCH}=full shows where",
    ]
    assert errors_of("-c", broken + COMMAND, "info", **{SWITCH: "full"})[0].startswith("Traceback")

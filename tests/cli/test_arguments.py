"""Arguments of the command line: schedules, measuring commands, and refusals that come before slow imports."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import Result
from rich.console import Console
from typer.testing import CliRunner

import polyfuse as pf
from benchmarks.gpu.parts import PARTS
from polyfuse import show
from polyfuse.cli import early_checks
from polyfuse.cli.app import app
from polyfuse.cli.draw import TEXTS
from polyfuse.cli.load import load_nest, load_schedule, possible_statements
from polyfuse.errors import BadArgument, TargetUnavailable
from polyfuse.machine import PRESETS
from polyfuse.measure import STAGES
from polyfuse.workbench.terminal import Terminal
from tests.show.subjects import dense

MODEL = """
from polyfuse import nn
model = nn.Sequential(nn.Linear(6, 5, seed=1), nn.ReLU())
batch = 4
"""

LOOPS = """
import polyfuse as pf
@pf.nest
def twice(x: "f32[N]", y: "f32[N]"):
    for i in range(N):
        y[i] = 2 * x[i]
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text(MODEL, encoding="utf-8")
    return path


@pytest.fixture
def loops(tmp_path: Path) -> Path:
    path = tmp_path / "loops.py"
    path.write_text(LOOPS, encoding="utf-8")
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)


def test_a_name_that_cannot_be_is_refused_without_the_compiler(model: Path) -> None:
    """Which takes as long to import as all before."""
    code = (
        "import sys\nfrom polyfuse.cli.app import app\n"
        "try:\n    app()\nfinally:\n    print('polyfuse.compiler' in sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, "explain", str(model), "--statement", "mac00"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode != 0
    assert "no statement 'mac00'" in found.stderr
    assert "False" in found.stderr.splitlines()


def test_the_version() -> None:
    assert run("--version").output == f"polyfuse {pf.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("compile", "absent.py"), "there is no file absent.py"),
        (("explain", "absent.py:net"), "there is no file absent.py"),
        (("compile", __file__, "--schedule", "absent.json"), "there is no file absent.json"),
        (("draw", __file__, "-o", "x.svg", "--schedule", "pyproject.toml"), "pyproject.toml is no schedule: expected"),
        (("draw", __file__, "-o", "x.xyz"), "cannot write x.xyz: expected a suffix out of .avif, .dot, "),
        (("profile", __file__, "--size", "N8"), "expected NAME=NUMBER such as N=8, not N8="),
        (("gpu-bench", "gem"), "unknown part gem; expected some of calls, gemm, tiles, tensor, memory"),
        (("compile", __file__, "--machine", "vax"), "unknown machine 'vax'; expected one of a100, h100, h200, rtx4090"),
        (("draw", __file__, "-o", "absent/x.svg"), "cannot write absent/x.svg: there is no folder absent"),
        (("explore", __file__, "-o", "absent/x.html"), "cannot write absent/x.html: there is no folder absent"),
        (("reduce", __file__, "-o", "tests"), "cannot write tests: it is a folder"),
        (("tune", __file__, "--save", "absent/x.json"), "cannot write absent/x.json: there is no folder absent"),
        (("tune", __file__, "--save", "x.txt"), "cannot write x.txt: a schedule is written as JSON, into a file that"),
        (("tune", __file__, "--count", "0"), "Invalid value for '--count'"),
        (("profile", __file__, "--target", "tpu"), "Invalid value for '--target'"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused_before_anything_slow_is_imported(
    arguments: tuple[str, ...], message: str
) -> None:
    code = (
        "import sys\nfrom polyfuse.cli import main\ntry:\n    main()\nfinally:\n"
        "    slow = [m for m in ('islpy', 'sympy', 'numba', 'numpy', 'matplotlib') if m in sys.modules]\n"
        "    print('imported', slow)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=None, check=False
    )
    assert done.returncode != 0
    assert message in done.stderr
    assert done.stdout == "imported []\n"


def test_an_unknown_machine_is_refused_before_the_file_runs(tmp_path: Path) -> None:
    file = tmp_path / "file.py"
    file.write_text("raise RuntimeError", encoding="utf-8")
    with pytest.raises(TargetUnavailable, match="unknown machine 'h300'; expected one of a100, "):
        run("compile", file, "--machine", "h300")


def test_what_the_nest_refuses_is_refused_before_it_is_compiled(
    model: Path, loops: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("compiled")

    monkeypatch.setattr("polyfuse.cli.compiling.compile", never)
    with pytest.raises(BadArgument, match="no statement 'WRONG'; there are zero0, mac0, bias0, relu0"):
        run("explain", model, "--statement", "WRONG")
    with pytest.raises(BadArgument, match="the arrays of twice depend on N: give --size N=64"):
        run("profile", loops)
    with pytest.raises(BadArgument, match="twice has no symbolic size M; there are N"):
        run("profile", loops, "--size", "M=8")
    with pytest.raises(BadArgument, match="sequential has no symbolic size M; all its sizes are numbers"):
        run("draw", model, "-o", tmp_path / "x.svg", "--picture", "domain", "--size", "M=8")
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(BadArgument, match=r"cannot write .*file: File exists"):
        run("compile", model, "--emit", file)
    with pytest.raises(BadArgument, match=r"cannot write .*file: File exists"):
        run("papers", "run", "digits", "--quick", "--out", file)


def test_statements_of_rewrites_can_be_asked_for(model: Path) -> None:
    possible_statements(load_nest(str(model)), ["mac0", "pack_w0", "mac0_again", "stack_w0s_0"])


@pytest.mark.parametrize("name", ["mac00", "mac", "relu", "xmac0", "mac0s"])
def test_near_misses_of_statements_are_refused_before_a_compile(model: Path, name: str) -> None:
    with pytest.raises(BadArgument, match=f"no statement '{name}'; there are zero0, mac0, bias0, relu0"):
        possible_statements(load_nest(str(model)), [name])


def test_shells_can_complete() -> None:
    assert "--install-completion" in run("--help").output
    env = {
        **os.environ,
        "_POLYFUSE_COMPLETE": "complete_bash",
        "COMP_WORDS": "polyfuse papers run dig",
        "COMP_CWORD": "3",
    }
    code = "from polyfuse.cli.app import app; app(prog_name='polyfuse')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)
    assert done.stdout.split() == ["digits"]
    assert {"h200", "zen5"} <= {*early_checks.machine_names()}


def test_what_is_checked_early_is_what_there_is() -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.backend_bases import FigureCanvasBase

    assert {name.removeprefix(".") for name in early_checks.PICTURE_SUFFIXES} == {
        *FigureCanvasBase.get_supported_filetypes()
    }
    assert tuple(PARTS) == early_checks.GPU_PARTS
    assert tuple(sorted(PRESETS)) == early_checks.MACHINES
    assert tuple(TEXTS) == early_checks.TEXT_SUFFIXES


def test_a_terminal_shows_the_stages_of_a_compile() -> None:
    terminal, shown = Terminal(), io.StringIO()
    terminal.err = Console(file=shown, force_terminal=True, width=80)
    with terminal.working("compiling mlp"):
        STAGES.info("validation")
        time.sleep(0.15)  # the display is drawn ten times a second
    assert "compiling mlp: validation …" in shown.getvalue()
    assert "0:00:00" in shown.getvalue()
    assert not STAGES.handlers
    said: list[str] = []
    listener = logging.Handler()
    listener.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    STAGES.addHandler(listener)
    STAGES.setLevel(logging.INFO)
    try:
        pf.compile(dense(), target="cpu")
    finally:
        STAGES.setLevel(logging.NOTSET)
        STAGES.removeHandler(listener)
    assert said == ["schedule", "validation", "source", "machine code"]


def test_a_schedule_from_a_file_is_compiled_and_explained(model: Path, tmp_path: Path) -> None:
    nest = load_nest(str(model))
    schedule = pf.Schedule(nest).fuse("mac0", "zero0", at="j")
    saved, trace = tmp_path / "s.json", tmp_path / "s.py"
    schedule.save(saved)
    trace.write_text(schedule.trace(), encoding="utf-8")
    for path in (saved, trace):
        assert load_schedule(path, nest).steps == schedule.steps
        text = run("explain", model, "--target", "cpu", "--schedule", path).output
        assert "the schedule was given by hand" in text
    assert "3 kernels" in run("compile", model, "--target", "cpu", "--schedule", saved).output
    trace.write_text("s = nest / 2", encoding="utf-8")
    with pytest.raises(BadArgument, match=r"s.py, line 1 raised TypeError"):
        load_schedule(trace, nest)


def test_explanations_of_some_statements_and_as_json(model: Path) -> None:
    only = run("explain", model, "--target", "cpu", "--statement", "bias0", "--statement", "relu0").output
    assert "bias0 and relu0 are fused at j" in only
    assert "zero0 sets the first value" not in only
    data = run("explain", model, "--target", "cpu", "--format", "json").stdout
    assert json.loads(data[data.index("{") :])["remarks"]


def test_profile_prints_each_kernels_time(model: Path, loops: Path) -> None:
    text = run("profile", model, "--target", "cpu", "--turns", "1").output
    assert "profile on cpu" in text
    assert "zero0, mac0, bias0, relu0" in text
    assert "1 turns of" in run("profile", loops, "--target", "cpu", "--turns", "1", "--size", "N=16").output
    with pytest.raises(BadArgument, match="the arrays of twice depend on N: give --size N=64"):
        run("profile", loops, "--target", "cpu")


def test_tune_saves_the_fastest_schedule(model: Path, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    best = tmp_path / "best.json"
    assert "1 trial in " in run("tune", model, "--count", "1", "--save", best).output
    assert load_schedule(best, load_nest(str(model))).steps


def test_messages_of_pictures_fit_the_case(loops: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(BadArgument, match="the domains of twice depend on N; give numbers: --size N=8"):
        run("draw", loops, "-o", tmp_path / "x.svg", "--picture", "domain")
    net = pf.compile(dense(), target="cuda", machine="h200", device="none")
    with pytest.raises(
        BadArgument, match=r"tree_picture takes a schedule or a nest, given Executable: .*its \.nest and"
    ):
        show.tree_picture(net)  # type: ignore[arg-type]

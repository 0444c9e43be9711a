"""The command line, as a user runs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import polyfuse as pf
from polyfuse.cli import demo
from polyfuse.cli.app import app
from polyfuse.cli.load import load_nest
from polyfuse.errors import BadArgument
from polyfuse.workbench.terminal import Terminal

MODEL = """
from polyfuse import nn
model = nn.Sequential(nn.Linear(6, 5, seed=1), nn.ReLU())
batch = 4
"""

LOOPS = """
import polyfuse as pf
@pf.nest
def twice(x: "f32[8]", y: "f32[8]"):
    for i in range(8):
        y[i] = 2 * x[i]
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text(MODEL, encoding="utf-8")
    return path


def polyfuse(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The installed command's entry point, in a process of its own."""
    code = "from polyfuse.cli import main; main()"
    env = {**os.environ, **environment}
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=env)


def output(*arguments: str) -> str:
    """What a command prints; it must succeed."""
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_compile_prints_kernels_source_and_report(model: Path) -> None:
    text = output("compile", str(model), "--machine", "xeon")  # others may pack the weights first
    assert re.search(r"^1 kernel$", text, re.MULTILINE)
    assert "def zero_mac_bias_relu(" in text
    assert "kernels           1 launch of 1 compiled kernel\n" in text


def test_compile_a_temporary_of_symbolic_size(tmp_path: Path) -> None:
    file = tmp_path / "loops.py"
    file.write_text(
        "import numpy as np\nimport polyfuse as pf\n\n\n@pf.nest\n"
        "def turned(a: 'f64[N]', b: 'f64[N]'):\n"
        "    t = np.zeros(N)\n"
        "    for i in range(N):\n        t[i] = a[i] * 2\n"
        "    for i in range(N):\n        b[i] = t[N - 1 - i]\n",
        encoding="utf-8",
    )
    for options in (["--target", "cpu"], ["--machine", "h200", "--device", "none"]):
        text = output("compile", str(file), "--no-fuse", *options)
        assert "symbolic sizes    N = 256\n" in text
        assert "temporaries       2,048 bytes in one arena" in text


def test_compile_for_a_gpu_that_is_not_here(model: Path) -> None:
    text = output("compile", str(model), "--machine", "h200", "--device", "none")
    assert "cuda.blockIdx.x" in text
    assert "target            cuda (h200)" in text


def test_compile_unfused(model: Path) -> None:
    text = output("compile", str(model), "--machine", "xeon", "--no-fuse")
    assert "3 launches of 3 compiled kernels" in text


def test_emitted_files_hold_what_was_printed_and_the_trace_makes_the_schedule(
    model: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    text = output("compile", str(model), "--target", "cpu", "--emit", str(folder))
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "kernels_cpu.py", "nest.txt", "schedule.txt", "schedule.py", "explanation.txt", "report.txt"
    }  # fmt: skip
    assert (folder / "kernels_cpu.py").read_text().strip() in text
    space = {"pf": pf, "nest": load_nest(str(model))}
    exec((folder / "schedule.py").read_text(), space)
    assert str(space["s"]).strip() == (folder / "schedule.txt").read_text().strip()


def test_explain_prints_each_decision(model: Path) -> None:
    text = output("explain", str(model), "--target", "cpu")
    assert "bias0" in text
    assert "relu0" in text
    assert "fused at" in text
    assert "validated: cover" in text


@pytest.mark.parametrize(
    ("text", "name", "tensors"),
    [
        ("from polyfuse import nn\nlayers = [nn.Linear(3, 2), nn.Tanh()]\nbatch = 7", "", {"x": (7, 3)}),
        ("from polyfuse import nn\nlayers = [nn.ReLU()]\nbatch, features = 2, (3, 4)", "", {"x": (2, 3, 4)}),
        ("from polyfuse import nn\noutputs = nn.relu(nn.input('q', (3,)))", "", {"q": (3,)}),
        ("from polyfuse import nn\nq = nn.input('q', (3,))\ntwo = (q + q, nn.exp(q))", ":two", {"q": (3,)}),
        ("import polyfuse as pf\nnest = pf.lower(pf.nn.Linear(3, 2), batch=5)", "", {"x": (5, 3)}),
        (
            "import polyfuse as pf\ndef make():\n    return pf.lower(pf.nn.Linear(3, 2), batch=5)",
            ":make",
            {"x": (5, 3)},
        ),
        (LOOPS, "", {"x": (8,), "y": (8,)}),
    ],
    ids=["layers", "features", "outputs", "two values", "nest", "function", "loops"],
)
def test_what_a_file_may_define(
    text: str, name: str, tensors: dict[str, tuple[int, ...]], tmp_path: Path
) -> None:
    path = tmp_path / "file.py"
    path.write_text(text, encoding="utf-8")
    nest = load_nest(f"{path}{name}")
    assert {t.name: t.shape for t in nest.inputs} == tensors


def test_the_command_lines_batch_wins(model: Path) -> None:
    assert load_nest(str(model)).inputs[0].shape == (4, 6)
    assert load_nest(str(model), batch=9).inputs[0].shape == (9, 6)


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("x = 1", "", "file.py defines none of nest, model, layers, outputs"),
        ("x = 1", ":y", "file.py defines no 'y'"),
        ("nest = 3", "", "nest in .*file.py is of type int; expected a Nest, a model"),
        (
            "from polyfuse import nn\nmodel = nn.Linear(3, 2)",
            "",
            "is a model and needs a batch: give --batch",
        ),
        ("x = 1\ny = x / 0", "", r"file.py, line 2 raised ZeroDivisionError: division by zero"),
        ("x = (", "", r"file.py, line 1 raised SyntaxError"),
        (
            "from polyfuse import nn\nmodel = nn.Sequential(nn.Linear(3, 2), nn.Linear(3, 2))\nbatch = 1",
            "",
            "linear",
        ),
    ],
)
def test_files_that_do_not_do(text: str, name: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "file.py"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadArgument, match=message):
        load_nest(f"{path}{name}")


def test_an_error_is_one_message_on_stderr_and_exit_code_1(tmp_path: Path) -> None:
    done = polyfuse("compile", str(tmp_path / "absent.py"))
    assert done.returncode == 1
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert lines[-1].startswith("error: there is no file ")
    assert "Traceback" not in done.stderr


def test_a_file_that_cannot_be_written_is_a_message(model: Path) -> None:
    for arguments in (
        ("compile", "--emit", str(model)),
        ("draw", "-o", str(model.parent / "absent" / "nest.tex")),
    ):
        done = polyfuse(*arguments, str(model))
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1].startswith(f"error: cannot write {arguments[-1]}: ")
        assert "Traceback" not in done.stderr


def test_a_target_that_is_not_there_is_a_message(model: Path) -> None:
    done = polyfuse("compile", str(model), "--target", "cuda", "--machine", "zen5")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "error: machine zen5 is a cpu machine, but the target is cuda"


def test_info_names_versions_targets_machine_and_cache(tmp_path: Path) -> None:
    done = polyfuse("info", POLYFUSE_CACHE=str(tmp_path))
    assert done.returncode == 0
    assert f"polyfuse {pf.__version__}" in done.stdout
    assert f"numpy {np.__version__}" in done.stdout
    assert re.search(r"^target cuda  \S", done.stdout, re.MULTILINE)
    assert str(pf.Machine.detect()) in done.stdout
    assert re.search(rf"^cache +{re.escape(str(tmp_path))}/polyfuse-cache$", done.stdout, re.MULTILINE)


def test_cache_info_and_clear(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYFUSE_CACHE", str(tmp_path / "cache"))
    assert re.search(r"^compiled     0, 0.0 MiB$", output("cache", "info"), re.MULTILINE)
    output("compile", str(model), "--machine", "xeon")
    text = output("cache", "info")
    assert f"directory    {tmp_path / 'cache' / 'polyfuse-cache'}" in text
    assert re.search(r"^compiled     1, 0.\d MiB$", text, re.MULTILINE)
    assert re.search(r"^sources      1, 0.\d MiB$", text, re.MULTILINE)
    assert re.search(r"^bound        0.\d of 512 MiB$", text, re.MULTILINE)
    assert "cache             loaded from" in output("compile", str(model), "--machine", "xeon")
    assert output("cache", "clear").startswith("removed 2 files, ")
    assert re.search(r"^compiled     0, 0.0 MiB$", output("cache", "info"), re.MULTILINE)


def test_a_folder_that_polyfuse_did_not_make_is_not_cleared(tmp_path: Path) -> None:
    (tmp_path / "polyfuse-cache" / "compiled").mkdir(parents=True)
    for command in ("info", "clear"):
        done = polyfuse("cache", command, POLYFUSE_CACHE=str(tmp_path))
        assert done.returncode == 1
        assert done.stderr.startswith(f"error: the cache {tmp_path / 'polyfuse-cache'} cannot be used: ")
        assert "was not made by polyfuse, and is left alone" in done.stderr


def test_a_cache_that_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYFUSE_CACHE", "off")
    assert output("cache", "info") == output("cache", "clear") == "the cache is disabled by POLYFUSE_CACHE\n"


def test_numpy_chooses_its_own_kernels() -> None:
    code = (
        "import os, sys\nfrom polyfuse import cli\nassert 'numpy' not in sys.modules\nsys.argv = ['polyfuse', 'info']\n"
        "try:\n    cli.main()\nexcept SystemExit:\n    pass\nprint('OPENBLAS_CORETYPE' in os.environ)"
    )
    env = {**os.environ, "OPENBLAS_CORETYPE": "Nehalem"}
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=env)
    assert done.stdout.splitlines()[-1] == "False"


def test_the_demo_shows_every_stage_and_every_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "NETWORKS", (demo.Network(2, 16, 4),))
    monkeypatch.setattr(demo, "available", lambda: False)
    demo.run_demo(Terminal(), turns=3)
    text = capsys.readouterr().out
    parts = ("the nest", "the schedule tree", "the explanation", "the kernels", "the report", "the check")
    positions = [text.index(f"\n{part}\n") for part in parts]
    assert positions == sorted(positions)
    assert "nest sequential over" in text
    assert "def zero_mac_bias_relu" in text
    for candidate in ("polyfuse", "unfused", "NumPy"):
        assert re.search(rf"2 × 16, batch 4 +cpu +{candidate}.*(\d [mµn]s .*){{4}} ×", text)


def test_the_demo_fails_where_a_kernel_is_wrong() -> None:
    network = demo.Network(1, 8, 2)
    nest = network.nest()
    net = pf.compile(nest, target="cpu")
    x = np.ones((2, 8), np.float32)
    right = network.numpy(dict(nest.constants), x)
    demo.verify(Terminal(), "polyfuse", net, x, right)
    with pytest.raises(demo.WrongResult, match="differs from NumPy by"):
        demo.verify(Terminal(), "polyfuse", net, x, right + np.float32(0.001))
    with pytest.raises(demo.WrongResult, match="differs from NumPy by nan"):
        demo.verify(Terminal(), "polyfuse", net, x * np.float32(np.nan), right)


def test_a_lost_row_says_so() -> None:
    assert demo.compared(2.0, 1.0) == "2.00 ×"
    assert demo.compared(0.5, 1.0) == "0.50 × (faster)"


def test_help_names_every_command_and_how_a_file_is_read() -> None:
    assert all(
        name in output("--help") for name in ("demo", "compile", "explain", "gpu-check", "info", "cache")
    )
    text = re.sub(r"[\s│]+", " ", output("compile", "--help"))
    assert "file.py:name" in text
    assert "needs a batch" in text

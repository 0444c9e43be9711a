"""`polyfuse draw`."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import polyfuse as pf
from polyfuse import show
from polyfuse.cli.app import app
from polyfuse.errors import BadArgument
from polyfuse.show.pages import page
from tests.show.subjects import dense, fused, jacobi, wavefronts

pytest.importorskip("matplotlib")
pytest.importorskip("graphviz")

STARTS = {".svg": b"<?xml", ".png": b"\x89PNG", ".pdf": b"%PDF"}


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "time_loops.py"
    path.write_text("from tests.show.subjects import jacobi, dense\n", encoding="utf-8")
    return str(path)


def drawn(out: Path, file: str, *options: str) -> bytes:
    result = CliRunner().invoke(app, ["draw", file, "-o", str(out), *options], catch_exceptions=False)
    assert result.exit_code == 0
    assert result.output.strip() == f"wrote {out}"
    return out.read_bytes()


@pytest.mark.parametrize("suffix", STARTS)
def test_the_suffix_says_the_format(suffix: str, file: str, tmp_path: Path) -> None:
    assert drawn(tmp_path / f"tree{suffix}", f"{file}:dense").startswith(STARTS[suffix])


def test_texts_are_those_of_show(file: str, tmp_path: Path) -> None:
    source = f"{file}:jacobi"
    assert drawn(tmp_path / "nest.tex", source).decode() == show.latex(jacobi()) + "\n"
    assert drawn(tmp_path / "nest.html", source).decode() == page(jacobi())
    assert drawn(tmp_path / "nest.dot", source).decode() == show.dependence_graph(jacobi()).source


def test_every_picture_is_drawn(file: str, tmp_path: Path) -> None:
    sizes = ("--size", "T=4", "--size", "N=7")
    for picture, options in (("domain", sizes), ("dependences", ()), ("tree", ())):
        assert drawn(tmp_path / f"{picture}.svg", f"{file}:jacobi", "--picture", picture, *options)


def test_a_domain_along_named_dimensions(file: str, tmp_path: Path) -> None:
    options = ("--picture", "domain", "--statement", "mac0", "--dim", "j", "--dim", "k", "--at", "i=2")
    assert drawn(tmp_path / "domain.svg", f"{file}:dense", *options)


def test_a_schedule_is_what_its_trace_makes(file: str, tmp_path: Path) -> None:
    trace = tmp_path / "schedule.py"
    for source, schedule in ((f"{file}:dense", fused()), (f"{file}:jacobi", wavefronts())):
        trace.write_text(schedule.trace(), encoding="utf-8")
        found = drawn(tmp_path / "s.html", source, "--schedule", str(trace))
        assert found.decode() == page(schedule)


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("cannot write x.xyz: expected a suffix out of ", ("-o", "x.xyz")),
        ("expected NAME=NUMBER such as N=8, not N=many", ("-o", "x.svg", "--picture", "domain", "--size", "N=many")),
        ("depend on T, N; give numbers: --size T=8 --size N=8", ("-o", "x.svg", "--picture", "domain")),
        ("unknown statement 'R'", ("-o", "x.svg", "--picture", "domain", "--statement", "R")),
        ("there is no file s.py", ("-o", "x.svg", "--schedule", "s.py")),
    ],
)  # fmt: skip
def test_what_means_nothing_is_refused(message: str, options: tuple[str, ...], file: str) -> None:
    with pytest.raises(BadArgument) as refused:
        CliRunner().invoke(app, ["draw", f"{file}:jacobi", *options], catch_exceptions=False)
    assert message in str(refused.value)


def test_a_file_without_a_schedule_is_refused(file: str, tmp_path: Path) -> None:
    trace = tmp_path / "schedule.py"
    trace.write_text("s = 1", encoding="utf-8")
    with pytest.raises(BadArgument, match="does not define a Schedule named s"):
        CliRunner().invoke(
            app, ["draw", f"{file}:jacobi", "-o", "x.svg", "--schedule", str(trace)], catch_exceptions=False
        )


def test_the_trace_of_a_compiled_net_can_be_drawn(file: str, tmp_path: Path) -> None:
    schedule = pf.compile(dense(), target="cpu").schedule
    (tmp_path / "schedule.py").write_text(schedule.trace(), encoding="utf-8")
    assert drawn(tmp_path / "tree.svg", f"{file}:dense", "--schedule", str(tmp_path / "schedule.py"))

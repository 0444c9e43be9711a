"""Every experiment of papers/ runs in its quick form; how the command line finds and refuses them."""

from __future__ import annotations

import csv
import html
import subprocess
import sys
from pathlib import Path
from threading import Semaphore
from typing import Any

import pytest
from typer.testing import CliRunner

import polyfuse as pf
from papers.claims import VERDICTS
from polyfuse.cli import papers
from polyfuse.cli.app import app
from polyfuse.errors import BadArgument
from polyfuse.workbench.terminal import Terminal

PAPERS = papers.papers_in(papers.FOLDER)

COMPILES = {"mxnet_13890_bulking": 10, "nngraph_60_char_rnn": 4, "pytorch_18157_ensemble": 6}
"""How often a quick run of some experiments calls `pf.compile` in its own process, at most."""


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.name)
def test_a_quick_run_prints_claims_and_leaves_rows_a_figure_and_a_report(
    paper: papers.Paper,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled: list[pf.Executable] = []

    def counted(*given: Any, **options: Any) -> pf.Executable:
        compiled.append(compile_(*given, **options))
        return compiled[-1]

    compile_ = pf.compile
    monkeypatch.setattr(pf, "compile", counted)
    papers.run_paper(Terminal(), paper.name, "cpu", True, tmp_path)
    if paper.name in COMPILES:
        assert len(compiled) <= COMPILES[paper.name]
    tables = [path for path in tmp_path.iterdir() if path.suffix == ".csv"]
    assert tables
    for path in tables:
        rows = list(csv.DictReader(path.open(encoding="utf-8")))
        assert rows
        assert {"date", "cpu", "device", "commit", "versions"} <= rows[0].keys()
    assert [path for path in tmp_path.iterdir() if path.suffix in (".svg", ".png")]
    printed, report = capsys.readouterr().out, (tmp_path / "report.html").read_text(encoding="utf-8")
    said = [line for line in printed.splitlines() if line.startswith(tuple(VERDICTS))]
    assert said
    assert report.count("<tr><td>") == len(said)
    assert "data:image/" in report
    assert paper.title in html.unescape(report)


def test_a_quick_grid_measures_its_cell_beside_the_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = Semaphore(0)

    def measured(*_: str, threads: int) -> list[dict[str, Any]]:
        running.release()
        return []

    def count(*_: object) -> list[int]:
        assert running.acquire(timeout=60), "the forward pass"
        raise InterruptedError

    monkeypatch.setattr("papers.ansel_2021_fused_strassen.experiment.fresh", measured)
    monkeypatch.setattr("papers.ansel_2021_fused_strassen.experiment.count", count)
    with pytest.raises(InterruptedError):
        papers.run_paper(Terminal(), "ansel_2021_fused_strassen", "cpu", True, tmp_path)


def test_launches_and_waits_are_counted_on_the_stand_in_for_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba.cuda")
    monkeypatch.setattr("papers.places.available", lambda: False)
    monkeypatch.setattr("papers.mxnet_13890_bulking.devices.available", lambda: False)
    papers.run_paper(Terminal(), "mxnet_13890_bulking", "cuda", True, tmp_path)
    (path,) = tmp_path.glob("*.csv")
    rows = list(csv.DictReader(path.open(encoding="utf-8")))
    counts = {(row["mode"], row["kernels"], row["submissions"], row["waits"]) for row in rows}
    assert counts == {
        ("per kernel", "12", "12", "12"),
        ("bulked", "12", "12", "1"),
        ("one graph", "12", "1", "1"),
    }
    assert {row["outputs"] for row in rows} == {"1", "4"}
    assert "stand-in" in rows[0]["device"]


def test_experiments_do_not_load_the_cases_for_gpus() -> None:
    loaded = "import sys, papers.places; print('polyfuse.checks.cuda_cases' in sys.modules)"
    command = [sys.executable, "-c", loaded]
    done = subprocess.run(command, cwd=papers.ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.name)
def test_a_paper_has_a_title_and_results(paper: papers.Paper) -> None:
    assert paper.title, f"{paper.folder}/README.md begins with '# title'"
    assert list(paper.results.glob("*.csv")), "a run's results are kept"


def test_the_list_and_names_that_are_none(tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["papers", "list"], catch_exceptions=False).output
    assert all(paper.name in shown and paper.title in shown for paper in PAPERS)
    with pytest.raises(BadArgument, match=r"unknown paper 'strasen'; expected one of "):
        papers.run_paper(Terminal(), "strasen", "cpu", True, tmp_path)


def test_an_installed_package_says_where_papers_are(tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match="in polyfuse's repository, not in the installed package"):
        papers.show_papers(Terminal(), tmp_path / "papers")

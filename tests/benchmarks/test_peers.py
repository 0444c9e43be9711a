"""The comparison with peers: ratios, rows, tables, resuming. With ours and NumPy, which are here."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentTypeError
from pathlib import Path
from typing import Any

import pytest

import benchmarks.peers.rows as rows_of
from benchmarks import results
from benchmarks.options import numbers, some_numbers_of, some_of
from benchmarks.peers import comparison, grid, memory, tuning
from benchmarks.peers.rows import LABELS, OURS, Effort, failed, summed_up
from benchmarks.peers.table import best_peer, summary, table
from benchmarks.sides.environments import ENVIRONMENTS
from polyfuse.strategy.tuning_trials import Trial, Tuning
from tests.benchmarks.small import SMALL

ABOUT = {
    "date": "2026-11-21T12:00:00+00:00",
    "cpu": "a CPU",
    "cpus": 2,
    "load": 0.1,
    "commit": "abc",
    "versions": {"polyfuse": "0"},
}
ONCE = Effort(turns=3, seconds=0.0)


def row(workload: str, side: str, threads: int = 1, **more: Any) -> dict[str, Any]:
    return {"workload": workload, "threads": threads, "side": side, **more}


ROWS = [
    row("a", OURS, median_ms=1.0, ratio=1.0, turns=5),
    row("a", "torch eager", median_ms=4.0, ratio=4.0, turns=5),
    row("a", "jax jit", median_ms=9.0, ratio=9.0, turns=1),
    row("b", OURS, median_ms=2.0, ratio=1.0, turns=5),
    row("b", "torch eager", median_ms=0.5, ratio=0.25, turns=5),
    row("b", "jax jit", missing="ValueError: no"),
    row("c", OURS, missing="NotYet: there is no layer"),
    row("c", "torch eager", median_ms=3.0, turns=5),
    row("c", "jax jit", missing="not written"),
]


@pytest.fixture
def with_numpy_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy's side runs in this environment, nothing is installed."""
    monkeypatch.setattr(rows_of, "python_of", lambda label: Path(sys.executable))
    monkeypatch.setattr(rows_of, "TURN", 0.0)
    for module in (comparison, grid, memory):
        monkeypatch.setattr(module, "install", lambda names: {})


def test_every_label_is_a_side_with_an_environment_and_a_form() -> None:
    for label in LABELS:
        side, form = label.split()
        assert side in ENVIRONMENTS
        text = (Path(rows_of.__file__).parent.parent / "sides" / f"by_{side}.py").read_text(encoding="utf-8")
        assert f'"{form}"' in text


def test_ratios_are_medians_of_turns() -> None:
    ours = [1.0, 1.0, 4.0]
    assert summed_up([3.0, 2.0, 4.0], ours) == {"median_ms": 3e3, "best_ms": 2e3, "ratio": 2.0, "turns": 3}
    assert "ratio" not in summed_up([8.0], [])


class Clock:
    """A side whose timings are written down before."""

    def __init__(self, *seconds: float) -> None:
        self.left = list(seconds)

    def seconds(self, calls: int = 1) -> float:
        return self.left.pop(0)


def test_a_peer_far_behind_is_timed_once_and_compared_with_our_first_timings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        rows_of,
        "in_turns",
        lambda sides, turns, *_: {n: [s() for _ in range(turns)] for n, s in sides.items()},
    )
    sides: dict[str, Any] = {
        OURS: Clock(2.0, 1.0, 2.0, 4.0, 4.0, 4.0),
        "torch eager": Clock(3.0, 2.0, 9.0, 2.0, 2.0, 2.0),
        "jax jit": Clock(9.0, 8.0, 8.0),
    }
    found = rows_of.timed(sides, ONCE)
    assert {side: (row["ratio"], row["turns"]) for side, row in found.items()} == {
        OURS: (1.0, 3),
        "torch eager": (0.5, 3),
        "jax jit": (8.0, 1),
    }


def test_the_best_peer_is_the_one_with_the_least_ratio() -> None:
    best = best_peer(ROWS[:3])
    assert best is not None
    assert best["side"] == "torch eager"
    assert best_peer([ROWS[0]]) is None


def test_the_table_marks_what_loses_and_shows_what_is_not_there_yet() -> None:
    text = "\n".join(table(ROWS))
    assert "| a | 1 | 4 | 9* | torch eager | 4.00 |" in text
    assert "| b | 2 | 0.5 | – | torch eager | **0.25** |" in text
    assert "| c | not yet | 3 | – | torch eager |  |" in text
    assert "- not yet: c, 1 thread: NotYet: there is no layer" in text
    assert "- jax jit: ValueError: no (b)" in text
    wrong = row("d", OURS, missing="off by 0.5 of the largest element")
    assert "| d | failed |  |  |" in "\n".join(table([wrong]))
    assert "not written" not in text


def test_the_summary_names_what_loses_and_leaves_out_what_is_not_there() -> None:
    assert list(summary(ROWS)) == [
        "1 thread, 2 workloads: best peer / polyfuse, geometric mean 1.00; below 1: b 0.25."
    ]


def test_peers_that_did_not_install_have_rows_that_say_so() -> None:
    found = failed("a", 1, {"torch": "no space"}, ["torch eager", "jax jit", "torch compiled"])
    assert [(r["side"], r["missing"]) for r in found] == [
        ("torch eager", "did not install: no space"),
        ("torch compiled", "did not install: no space"),
    ]


@pytest.mark.usefixtures("with_numpy_here")
def test_workloads_are_measured_written_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "EVERY", {"one": SMALL["atax"], "two": SMALL["conv"]})
    about = {**ABOUT, "versions": {"polyfuse": "0"}}
    run = results.Run.begin(tmp_path, "peers", about)
    comparison.measure(run, ["one"], ["numpy expressions"], [1], ONCE)
    ours, theirs = run.rows
    assert (ours["side"], theirs["side"]) == (OURS, "numpy expressions")
    assert ours["ratio"] == 1.0
    assert theirs["error"] < 1e-5
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".csv", ".md", ".svg"}


def test_a_run_goes_on_where_the_commit_and_the_machine_are_the_same(tmp_path: Path) -> None:
    run = results.Run.begin(tmp_path, "peers", dict(ABOUT))
    run.add(ROWS[:3])
    assert results.Run.begin(tmp_path, "peers", dict(ABOUT)).rows == []
    later = {**ABOUT, "date": "2026-11-22T01:00:00+00:00"}
    assert results.Run.begin(tmp_path, "peers", later, resume=True).rows == ROWS[:3]
    other = {**ABOUT, "commit": "def"}
    assert results.Run.begin(tmp_path, "peers", other, resume=True).rows == []
    assert results.Run.begin(tmp_path, "peers-grid", dict(ABOUT), resume=True).rows == []
    assert json.loads(run.path("json").read_text())["cpu"] == "a CPU"


def test_a_file_with_more_versions_is_of_the_same_run(tmp_path: Path) -> None:
    run = results.Run.begin(tmp_path, "peers", {**ABOUT, "versions": {"polyfuse": "0", "torch": "2"}})
    run.add(ROWS[:1])
    resumed = results.Run.begin(tmp_path, "peers", dict(ABOUT), resume=True)
    assert resumed.rows == ROWS[:1]


@pytest.mark.usefixtures("with_numpy_here")
def test_grid_cells_are_measured_once_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = results.Run.begin(tmp_path, "peers-grid", dict(ABOUT))
    grid.measure(run, [(1, 2, 16)], ["numpy expressions"], [1], ONCE)
    assert [(r["layers"], r["batch"], r["width"]) for r in run.rows] == [(1, 2, 16)] * 2
    monkeypatch.setattr(grid, "measured", lambda *given: pytest.fail("it was measured before"))
    grid.measure(run, [(1, 2, 16)], ["numpy expressions"], [1], ONCE)
    assert run.path("svg").exists()


def test_the_grid_has_168_cells_with_the_widest() -> None:
    assert len(grid.cells(long=True)) == 168
    assert len(grid.cells(long=False)) == 140
    rows = [
        {"workload": f"mlp-{n}", "side": "torch compiled", "threads": 1, "ratio": ratio}
        for n, ratio in enumerate((4.0, 0.25))
    ]
    assert list(grid.summary(rows)) == [
        "torch compiled / polyfuse, 1 thread, 2 cells: geometric mean 1.00; 1 below 1: mlp-1 0.25."
    ]


def test_memory_is_compared_whole() -> None:
    rows = [
        row("a", OURS, call_bytes=1, kept_bytes=3),
        row("a", "torch eager", call_bytes=4, kept_bytes=4),
        row("a", "jax jit", missing="not written"),
    ]
    found = memory.with_ratios(rows)
    assert [r.get("ratio") for r in found] == [1.0, 2.0, None]
    assert found[1]["whole_bytes"] == 8


def test_a_search_becomes_a_row() -> None:
    trials = tuple(
        Trial({}, {}, predicted, str(n), seconds=ratio, ratio=ratio)
        for n, (predicted, ratio) in enumerate(((1.0, 1.0), (2.0, 0.9), (3.0, 1.2)))
    )
    found = tuning.of(Tuning(trials, 1.0, "as many as asked for"))
    assert found["rank_correlation"] == 0.5
    assert found["best_of_choice"] == 0.9
    assert (found["trials"], found["different"]) == (3, 3)
    far, near = {"workload": "a", **found}, {"workload": "b", **found, "best_of_choice": 0.97}
    assert list(tuning.summary([far, near, {"workload": "c", "missing": "no layer"}])) == [
        "the model's choice is within 5 % of the best found in 1 of 2 workloads"
    ]


def test_lists_with_commas() -> None:
    assert some_of(["a", "b"])("b,a") == ["b", "a"]
    assert numbers("1,2") == [1, 2]
    assert some_numbers_of([2, 4])("4") == [4]
    with pytest.raises(ArgumentTypeError, match="no c; there are a, b"):
        some_of(["a", "b"])("a,c")
    with pytest.raises(ArgumentTypeError, match="no list of numbers"):
        numbers("one")

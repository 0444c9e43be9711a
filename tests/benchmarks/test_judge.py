"""The judge of the cost model: rows of a case, its table, its picture, and what became slower."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import judge
from benchmarks.beside import running
from benchmarks.judge import GROUPS, cases, compiled, judged, picture, slower, table

ABOUT = {
    "date": "2026-11-28",
    "cpu": "a CPU",
    "cpus": 2,
    "load": 0.0,
    "commit": "c",
    "versions": {"numpy": "2"},
}


def row(case: str, predicted: float, measured: float, **more: object) -> judge.Row:
    ratio = measured / predicted
    sides = {"predicted_us": predicted, "measured_us": measured, "ratio": ratio, "bound_us": 0.5}
    return {"threads": 1, "case": case, "kernel": 0, "statements": "relu0", **sides, **more}


def test_a_row_for_each_kernel_of_a_case() -> None:
    compiled("layers/ReLU of 7")
    (found,) = judged("layers/ReLU of 7", turns=2)
    assert found["statements"] == "relu0"
    assert 0 < found["measured_us"] < 1000
    assert found["ratio"] == pytest.approx(found["measured_us"] / (found["predicted_us"] + 0.02), rel=0.02)


def test_a_command_runs_beside_until_its_input_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.beside.SETTLING", 0.0)
    ended = tmp_path / "ended"
    with running(["sh", "-c", f"cat; touch {ended}"]):
        assert not ended.exists()
    assert ended.exists()


def test_all_groups_have_cases_of_different_names() -> None:
    names = [case.name for group in GROUPS for case in cases(group)]
    assert len(names) == len(set(names))
    found = {group: sum(name.startswith(f"{group}/") for name in names) for group in GROUPS}
    assert found["workloads"] == 22
    assert (found["polybench"], found["odd"], found["layers"]) == (30, 60, 40)
    assert len(names) == sum(found.values())


@pytest.mark.parametrize("size", ["mini", "odd"])
def test_kernels_come_with_their_arguments(size: str) -> None:
    nest, arguments = judge.of_kernel("gemm", size)
    assert set(arguments) == {tensor.name for tensor in nest.inputs}
    assert not nest.params


def test_the_worst_is_first_and_a_case_without_rows_before_it() -> None:
    failed = {"threads": 1, "case": "odd/b", "failed": "not done after 3 s"}
    text = table(ABOUT, [row("odd/a", 1.0, 1.2), row("odd/c", 4.0, 1.0), row("odd/d", 1.0, 2.0), failed])
    assert "1 of 3 kernels (33%) are within 1.5 × of their prediction, failed: 1 case." in text
    lines = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| odd/")]
    assert lines == ["| odd/b", "| odd/c", "| odd/d", "| odd/a"]


def test_a_picture_of_a_point_for_each_kernel(tmp_path: Path) -> None:
    picture([row("odd/a", 1.0, 1.2), row("layers/b", 40.0, 90.0)], tmp_path / "judge.svg")
    assert "<svg" in (tmp_path / "judge.svg").read_text(encoding="utf-8")


def test_what_became_slower_is_named_with_its_kernels() -> None:
    before = [row("odd/a", 1.0, 1.0), row("odd/b", 1.0, 1.0), row("odd/c", 1.0, 1.0), row("odd/d", 1.0, 1.0)]
    after = [
        row("odd/a", 1.0, 1.2),
        row("odd/b", 1.0, 1.5),
        *(row("odd/c", 1.0, 0.9, statements=name) for name in ("relu0", "relu1")),
        {"threads": 1, "case": "odd/d", "failed": "not done after 3 s"},
    ]
    assert sorted(slower(before, after)) == [
        "odd/b, 1 thread: 1 µs, now 1.5 µs (1.50 ×; the same kernels)",
        "odd/c, 1 thread: 1 µs, now 1.8 µs (1.80 ×; 1 kernel, now 2)",
        "odd/d, 1 thread: not done after 3 s",
    ]

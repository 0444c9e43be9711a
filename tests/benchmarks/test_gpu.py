"""`polyfuse gpu-bench` without a GPU: the dry run, going on with a part, the clock's turns, the table."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks import results
from benchmarks.gpu import run, table
from benchmarks.gpu.ahead import pieces_of
from benchmarks.gpu.clock import host_seconds, in_turns, ratio
from benchmarks.gpu.clocks import ASKED, under_load
from benchmarks.gpu.parts import CAPTURED, GRID, OURS, PARTS, Chosen, Part, Subject
from benchmarks.gpu.subject import COPY, figures
from polyfuse.cli.gpu_bench import run_bench
from polyfuse.errors import BadArgument, TargetUnavailable
from polyfuse.workbench.terminal import Terminal

pytest.importorskip("cuda.core")
pytest.importorskip("numba.cuda")


def test_a_dry_run_checks_every_part_and_says_that_it_measures_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_bench(Terminal(), (), "lockstep", tmp_path, 8, 2, 1, True)
    printed = capsys.readouterr().out
    for name in PARTS:
        assert f"{name}: a dry run" in printed
        (path,) = tmp_path.glob(f"gpu-{name}-dry-*.json")
        found = json.loads(path.read_text(encoding="utf-8"))
        assert found["measured"] is False
        assert found["device"] == run.NO_FIGURE
        assert {"date", "commit", "seed", "versions"} <= found.keys()
        for row in found["rows"]:
            rounded = {"gemm_tf32": 2e-3, "gemm_bf16": 2e-2, "gemm_halves": 2e-2}.get(
                row["workload"].split("-")[0]
            )
            assert (1e-4 if rounded else 0) <= row["error"] < (rounded or 1e-5)
            assert not {"median_us", "ratio", "host_us"} & row.keys()


def test_a_part_without_time_for_any_of_its_rows_is_not_done(tmp_path: Path) -> None:
    assert not run_bench(Terminal(), ("calls",), "lockstep", tmp_path, 0, 2, 1, True)


def test_there_are_the_cells_that_are_asked_for() -> None:
    assert len(PARTS["grid"].subjects(False)) == 168
    assert set(GRID["width"]) == {128, 256, 512, 1024, 2048, 4096}
    names = [subject.name for part in PARTS.values() for subject in part.subjects(False)]
    assert len(names) == len(set(names)) + 6  # four products are in two parts, and so are two networks


def test_ours_are_compiled_ahead_into_the_cache_and_the_rows_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POLYFUSE_CACHE", str(tmp_path / "cache"))
    assert run_bench(Terminal(), ("memory", "calls"), "lockstep", tmp_path, 8, 2, 1, True, jobs=2)
    assert "compiled ahead: 6 of 6" in capsys.readouterr().out
    memory, calls = (
        json.loads(next(tmp_path.glob(f"gpu-{name}-dry-*.json")).read_text())["rows"]
        for name in ("memory", "calls")
    )
    assert all(row["from_cache"] and row["ahead_s"] > row["build_s"] for row in memory)
    assert not any("ahead_s" in row for row in calls)
    assert [row["from_cache"] for row in calls] == [False, True], (
        "captured calls are of what was compiled just before"
    )
    monkeypatch.setenv("POLYFUSE_CACHE", "off")
    with pytest.raises(
        BadArgument, match="--jobs 2 compiles into the cache first, but POLYFUSE_CACHE disables it"
    ):
        run_bench(Terminal(), ("memory",), "lockstep", tmp_path, 8, 2, 1, True, jobs=2)


def test_a_short_run_measures_what_it_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_bench(
        Terminal(), ("memory", "gemm"), "lockstep", tmp_path, 8, 2, 1, True, only=("softmax", "mlp")
    )
    (memory, gemm) = (
        {
            row["workload"]
            for row in json.loads(next(tmp_path.glob(f"gpu-{name}-dry-*.json")).read_text())["rows"]
        }
        for name in ("memory", "gemm")
    )
    assert memory == {"softmax-5x40"}
    assert gemm
    assert all(name.startswith("mlp") for name in gemm)
    capsys.readouterr()
    chosen = Chosen(only=("gemm-2048",), without=("autotune",))
    assert [piece[1] for piece in pieces_of(("gemm", "calls"), False, chosen)] == [1]
    assert chosen.beside("torch eager, graph")
    assert not chosen.beside("torch max-autotune, graph")


SUBJECTS = PARTS["gemm"].subjects(False)[:3]


def begun(folder: Path, resume: bool = True, **about: Any) -> results.Run:
    facts = {"date": "2026-11-21", "commit": "c", "cpu": "p", "cpus": 1, "versions": {}, "device": "d"}
    return results.Run.begin(folder, "gpu-gemm", {**facts, **about}, resume)


def row(subject: Subject, **more: Any) -> dict[str, Any]:
    facts = {"measured": False, "error": 0.0, "launches": 1, "build_s": 0}
    return {"workload": subject.name, "side": OURS, **facts, **more}


def test_a_part_stops_when_the_next_subject_would_not_fit_and_goes_on(tmp_path: Path) -> None:
    def slow(subject: Subject) -> list[dict[str, Any]]:
        time.sleep(0.02)
        return [row(subject)]

    said: list[str] = []
    assert run.measured(begun(tmp_path), SUBJECTS, slow, 0.03, said.append) == [s.name for s in SUBJECTS[1:]]
    assert run.measured(begun(tmp_path), SUBJECTS, slow, 9, said.append) == []
    assert len(said) == len(begun(tmp_path).rows) == 3
    assert begun(tmp_path, device="another").rows == []
    assert begun(tmp_path, resume=False).rows == []


def test_a_subject_that_breaks_ends_the_part_and_the_next_run_goes_on_behind_it(tmp_path: Path) -> None:
    def broken(subject: Subject) -> list[dict[str, Any]]:
        if subject is SUBJECTS[0]:
            raise RuntimeError("an illegal memory access")
        return [row(subject)]

    left = run.measured(begun(tmp_path), SUBJECTS, broken, 9, lambda line: None)
    assert left == [subject.name for subject in SUBJECTS[1:]]
    assert run.measured(begun(tmp_path), SUBJECTS, broken, 9, lambda line: None) == []
    first, *rest = begun(tmp_path).rows
    assert first["missing"] == "RuntimeError: an illegal memory access"
    assert [found["error"] for found in rest] == [0.0, 0.0]


def test_turns_take_the_sets_one_after_the_other() -> None:
    now, order = [0.0], []

    def call(name: str, seconds: float) -> None:
        order.append(name)
        now[0] += seconds

    def clock(work: Any) -> float:
        start = now[0]
        work()
        return now[0] - start

    sides = {
        "a": [lambda n=n: call(f"a{n}", 0.002) for n in range(3)],
        "b": [lambda: call("b", 0.004)],
    }
    taken = in_turns(sides, 4, clock)
    assert taken["a"] == pytest.approx([0.002] * 4)
    assert ratio(taken["b"], taken["a"]) == pytest.approx(2)
    of_a = [name for name in order if name.startswith("a")]
    assert of_a == [f"a{n % 3}" for n in range(len(of_a))]
    assert 0 < host_seconds(sides["b"], clock) < 1


def test_a_way_of_ours_is_compared_with_the_best_other_and_rates_with_a_copy() -> None:
    subject = Subject(
        SUBJECTS[0].workload, flops=10**9, moved=10**6, ways={OURS: {}, "polyfuse strassen": {}, CAPTURED: {}}
    )
    taken = {
        OURS: [2e-3] * 3,
        "polyfuse strassen": [1e-3] * 3,
        CAPTURED: [1e-3] * 3,
        "peer": [3e-3] * 3,
        COPY: [1e-3] * 3,
    }
    ours, fast, again, copy = (
        figures(subject, name, taken[name], taken) for name in (OURS, "polyfuse strassen", CAPTURED, COPY)
    )
    assert (again["best_other"], again["ratio"]) == ("peer", 3), "it is the same kernels"
    assert (ours["best_other"], ours["ratio"], ours["of_copy"], ours["tflops"]) == ("peer", 1.5, 0.5, 0.5)
    assert (fast["best_other"], fast["ratio"]) == (OURS, 2)
    assert "ratio" not in copy
    assert "tflops" not in copy
    rows = [{"workload": "w", "side": name, "measured": True, **figures(subject, name, taken[name], taken)}
            for name in (OURS, "polyfuse strassen")]  # fmt: skip
    text = "\n".join(table.summary(Part("p", "more", lambda small: []), rows))
    assert "polyfuse: 1 measured, geometric mean 1.50, least 1.50, 0 below 1" in text
    assert len(table.lines([*rows, {"workload": "w", "side": OURS, "missing": "why", "measured": True}])) == 3


def test_narrow_networks_have_a_mean_of_their_own() -> None:
    rows = [
        {
            "workload": subject.name,
            "side": OURS,
            "measured": True,
            "ratio": 3.0 if "x128-" in subject.name else 1.0,
        }
        for subject in PARTS["grid"].subjects(False)
    ]
    text = "\n".join(table.summary(PARTS["grid"], rows))
    assert "polyfuse: 168 measured, geometric mean 1.20, least 1.00, 0 below 1" in text
    assert "polyfuse, widths to 256: 56 measured, geometric mean 1.73, least 1.00" in text


def test_clocks_are_read_while_calls_run() -> None:
    calls: list[float] = []
    call = [lambda: calls.append(time.monotonic())]

    def clock(work: Any) -> float:
        work()
        return 0.0

    answer = ", ".join(f"{n} MHz" for n in range(len(ASKED)))
    asked = [sys.executable, "-c", f"import time; time.sleep(0.2); print({answer!r})"]
    assert under_load(call, clock, asked) == {name: f"{n} MHz" for n, name in enumerate(ASKED)}
    assert calls[-1] - calls[0] > 0.1
    assert under_load(call, clock, ["there is no such program"]) == {}
    assert under_load(call, clock, [sys.executable, "-c", "print('not a table')"]) == {}


def test_what_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(
        BadArgument, match="unknown part gem; expected some of calls, gemm, tiles, tensor, memory"
    ):
        run_bench(Terminal(), ("gem",), "lockstep", tmp_path, 8, 2, None, True)
    monkeypatch.setattr("polyfuse.cli.gpu_bench.missing", lambda: "no driver library is found")
    with pytest.raises(TargetUnavailable, match=r"no driver library is found.*gpu-bench --device lockstep"):
        run_bench(Terminal(), (), "gpu", tmp_path, 8, 2, None, True)

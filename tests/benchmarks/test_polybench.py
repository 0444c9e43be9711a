"""The PolyBench benchmark, at MINI sizes: it checks its sides, counts what was decided, and says who lost."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.polybench_sides import (
    PEERS,
    Side,
    WrongResult,
    checked,
    compiled_as,
    numba_side,
    polyfuse_side,
    row,
    timed,
    with_polly,
)
from benchmarks.polybench_table import summary, table
from papers.polybench import KERNELS

WITH_GCC = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
GEMM = replace(KERNELS["gemm"], large=KERNELS["gemm"].mini)


@WITH_GCC
def test_every_side_of_a_kernel_is_checked_and_timed() -> None:
    found = row("gemm", GEMM, 2, most=2)
    for side in ("polyfuse", "numba", "gcc", "gcc_auto", "numpy"):
        assert found[f"{side}_ms"] > 0
        assert found[f"{side}_error"] < 1e-14
    assert found["best"] in PEERS
    assert ("polly_ms" in found) == (with_polly() is not None)
    assert found["turns"] == 2
    assert "gemm" in "\n".join(table([found]))


@WITH_GCC
def test_a_side_that_computes_something_else_is_refused() -> None:
    first = GEMM.inputs(GEMM.mini, np.random.default_rng(0))
    errors, seconds = checked(GEMM, first, {"numba": numba_side(GEMM)})
    assert errors["numba"] < 1e-14
    assert seconds["numba"] > 0
    with pytest.raises(WrongResult, match="idle differs from the reference by"):
        checked(GEMM, first, {"idle": Side(lambda **arrays: None, 0.0)})
    errors, seconds = checked(GEMM, first, {"polly": Side(lambda **arrays: None, 0.0)})
    assert errors["polly"] > 1e-9
    assert not seconds, "Polly may be wrong: it is not timed then"


def test_ratios_are_medians_of_turns() -> None:
    found = timed(
        {"polyfuse": (1.0, 1.0, 4.0), "numba": (3.0, 2.0, 4.0), "gcc": (5.0, 6.0, 7.0)}, {"gcc_auto": 9.0}
    )
    assert (found["numba_ratio"], found["gcc_ratio"], found["gcc_auto_ratio"]) == (2.0, 5.0, 9.0)
    assert (found["best"], found["best_ratio"], found["turns"]) == ("numba", 2.0, 3)
    assert (found["polyfuse_ms"], found["once"]) == (1000.0, "gcc_auto")


def test_a_row_says_which_loops_are_tiled_and_which_run_on_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polyfuse.machine.model.usable_cores", lambda: 1)
    large = replace(GEMM, large={"NI": 640, "NJ": 640, "NK": 640})
    found = compiled_as(polyfuse_side(large)[0])
    assert "i by" in found["tiled"]
    assert found["parallel"] == ""
    assert found["budget"] == ""


def test_the_table_says_where_polly_computes_something_else() -> None:
    known = {"kernel": "gemver", "threads": 1, "best_ratio": 2.0, "polly_error": 0.3}
    rest = {"once": "", "turns": 2, "kernels": 1, "parallel": "", "tiled": "", "schedule_s": 0.1}
    lines = list(table([{**known, **rest, "polyfuse_ms": 1.0}]))
    assert (
        lines[-1] == "Polly computes something else, and is not timed, in: gemver 0.3 (largest difference)."
    )


def test_the_summary_names_the_kernels_that_lose() -> None:
    rows = [
        {"kernel": "a", "threads": 1, "best_ratio": 4.0},
        {"kernel": "b", "threads": 1, "best_ratio": 0.25},
        {"kernel": "c", "threads": 2, "failed": "gcc is not here"},
    ]
    assert list(summary(rows)) == [
        "1 thread, 2 kernels: the best of numba, gcc and Polly / polyfuse, geometric mean 1.00; below 0.95: b 0.25.",
        "c, 2 threads, failed: gcc is not here",
    ]

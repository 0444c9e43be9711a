"""Pipelines: rows of tiles on cores, each tile behind that of the row before; what is legal, and what it computes."""

# ruff: noqa: F821  (sizes are names in annotations)
from dataclasses import replace

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.analysis.validation import validate
from polyfuse.errors import IllegalSchedule, InvalidSchedule, ValidationFailure
from polyfuse.ir.bindings import Binding


@pf.nest
def swept(A: "f64[N]", T: "i64"):
    for _t in range(T):
        for i in range(1, N - 1):
            A[i] = 0.25 * A[i - 1] + 0.5 * A[i] + 0.25 * A[i + 1]


@pf.nest
def summed(X: "f64[N, M]", s: "f64[M]", all: "f64[1]"):
    for t in range(N):
        for i in range(M):
            s[i] += X[t, i]
    for t in range(N):
        for i in range(M):
            all[0] += X[t, i]


def skewed() -> pf.Schedule:
    return pf.Schedule(swept).skew("S0", "i", by="_t")


@pytest.fixture(scope="module")
def pipelined() -> pf.Executable:
    """Tiles of two steps and three elements: many of them wait for each other."""
    return pf.compile(swept, schedule=skewed().tile("S0", _t=2, i=3).bind("S0", _t="pipeline"), target="cpu")


@pytest.mark.parametrize(("size", "steps"), [(3, 1), (4, 9), (40, 33), (700, 150), (30, 0)])
def test_tiles_in_a_pipeline_compute_what_the_loops_do(pipelined, size, steps) -> None:
    for seed in range(3):
        A = np.random.default_rng(seed).random(size)
        B = A.copy()
        pipelined(A, steps)
        swept.python(B, steps)
        np.testing.assert_allclose(A, B, rtol=1e-14)


def test_each_tile_waits_and_says_that_it_has_ended(pipelined) -> None:
    lines = [line.strip() for line in pipelined.source.splitlines()]
    wait, end = lines.index("await_turn(_t_turns, _t_turn, i)"), lines.index("end_turn(_t_turns, _t_turn, i)")
    assert lines[wait - 1].startswith("for i in range(")
    assert wait < end < lines.index("close_turns(_t_turns, _t_turn)")


def test_a_dependence_that_runs_back_in_the_loop_inside_is_refused() -> None:
    with pytest.raises(IllegalSchedule) as refusal:
        pf.Schedule(swept).bind("S0", _t="pipeline")
    violation = refusal.value.violation
    (first, i), (second, j) = violation.source.point, violation.sink.point
    assert first < second
    assert i > j
    assert "skew i by _t" in str(refusal.value)
    assert skewed().bind("S0", _t="pipeline").loops("S0")[0].bind == "pipeline"


def test_what_comes_later_keeps_the_pipeline_legal() -> None:
    made = skewed().tile("S0", _t=2, i=3).bind("S0", _t="pipeline")
    with pytest.raises(IllegalSchedule):
        made.reverse("S0", "i")
    with pytest.raises(InvalidSchedule, match="exactly one sequential loop"):
        pf.Schedule(swept).bind("S0", i="pipeline")


def test_parts_of_a_sum_do_not_run_at_once() -> None:
    assert pf.Schedule(summed).bind("S0", t="pipeline").loops("S0")[0].bind == "pipeline"
    with pytest.raises(IllegalSchedule, match="reduction"):
        pf.Schedule(summed).bind("S1", t="pipeline")


def test_validation_finds_a_pipeline_that_runs_back() -> None:
    s = pf.Schedule(swept)
    with pytest.raises(ValidationFailure, match="order"):
        validate(s.source, s.nest, replace(s.tree, bind=Binding.PIPELINE))


def test_a_pipeline_is_for_a_cpu() -> None:
    with pytest.raises(InvalidSchedule, match="pipeline"):
        pf.compile(swept, schedule=skewed().bind("S0", _t="pipeline"), target="cuda", device="lockstep")

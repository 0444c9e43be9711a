"""What is found in loops, and what the plans say about it."""

from __future__ import annotations

import pytest

from polyfuse.analysis.bands import among, facts, permutable, skews
from polyfuse.ir import Nest
from polyfuse.ir.tree import loops, parts
from polyfuse.schedule.chains import chain_from
from polyfuse.strategy import plan_for
from tests.support.durations import seconds_in
from tests.support.loop_programs import (
    floyd_warshall,
    gemm,
    jacobi_1d,
    jacobi_2d,
    lu,
    mean,
    seidel_2d,
    trmm,
)
from tests.support.models import CPU, CUDA


def parallel(nest: Nest) -> list[str]:
    return [fact.loop.name for fact in facts(nest, nest.order) if fact.parallel]


def test_parallel_loops() -> None:
    assert parallel(gemm()) == ["i", "j", "j"]
    assert parallel(trmm()) == ["j"]
    assert parallel(seidel_2d()) == []
    assert parallel(jacobi_1d()) == ["i", "i"]


def test_permutable_bands_and_the_skews_that_make_them() -> None:
    nest = trmm()
    assert [x.name for x in permutable(nest.order, among(nest, nest.order))] == ["i", "j"]
    nest = seidel_2d()
    top = next(loops(nest.order))
    pairs = among(nest, nest.order)
    assert [x.name for x in permutable(top, pairs)] == ["t"]
    assert skews(chain_from(top), pairs)["i", "t"] == 1


def test_a_carried_dependence_is_shown_with_two_instances() -> None:
    nest = floyd_warshall()
    first = facts(nest, nest.order)[0]
    assert str(first.carried) == "flow S[0, 0, 0] -> S[1, 0, 0]"


def test_a_large_stencil_gets_time_tiles_in_a_pipeline() -> None:
    plan = plan_for(jacobi_2d(1300, 100), CPU)
    text = "\n".join(plan.notes)
    assert "shifted and skewed: i at 2t + i and 1 + 2t + i" in text
    assert "tiled: t by " in text
    assert "rows of tiles along i run at once, each tile behind that of the row before" in text


def test_a_triangular_product_runs_its_columns_on_the_cores() -> None:
    plan = plan_for(trmm(1000, 1200), CPU)
    assert plan.schedule.loops("M")[0].bind == "cores"
    assert any("M reads what B held at first from a copy" in note for note in plan.notes)


@pytest.mark.parametrize("machine", [CPU, CUDA], ids=lambda m: m.kind)
def test_a_chain_of_scalars_is_one_kernel(machine: object) -> None:
    plan = plan_for(mean(), CPU if machine is CPU else CUDA)
    assert len(parts(plan.schedule.tree)) == 1
    how = "in one kernel" if machine is CPU else "share once"
    assert any(how in decision.sentence for decision in plan.decisions)


def test_on_a_gpu_a_time_loop_stays_on_one_block_and_that_is_said() -> None:
    notes = plan_for(jacobi_2d(), CUDA).notes
    assert any("on one SM: blocks cannot wait for each other" in note for note in notes)


def test_isl_is_not_asked_what_it_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polyfuse.strategy.transforms.isl_scheduler.MOST", 10)
    assert any("not asked" in note for note in plan_for(lu(), CPU).notes)


def test_a_budget_stops_pricing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polyfuse.strategy.transforms.time_loops.PRICE_OPERATIONS", 10_000)
    assert any("pricing stopped" in note for note in plan_for(seidel_2d(), CPU).notes)


def test_never_dearer_than_as_written() -> None:
    for make in (jacobi_2d, lu, seidel_2d):
        expected = next(n for n in reversed(plan_for(make(), CPU).notes) if "expected" in n)
        ours, written = (seconds_in(part)[0] for part in expected.split("expected,"))
        assert ours <= written

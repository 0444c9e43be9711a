"""Where the strategy gives full tiles code of their own, and where not."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

import polyfuse as pf
from papers.polybench import KERNELS
from polyfuse import nn
from polyfuse.ir.tree import Loop, loops
from polyfuse.machine import Machine
from polyfuse.rewrite import expand
from polyfuse.strategy import Plan, plan_for
from polyfuse.strategy.passes import loop_partition as full_tiles

ON_CORES = {"band tiles of S1, S2": "i by 64 on cores", "time loops of S1, S2": False}
"""gemver's sum of columns in tiles of 64 on cores."""

IN_SHORT_ROWS = {**ON_CORES, "backtrack of S1, S2": False}
"""The same of 256 values, as symbolic sizes are priced: one core is cheaper, other orders of its loops, two kernels."""


def plan_of(name: str, force: Mapping[str, object] | None = None, **sizes: int) -> Plan:
    return plan_for(expand(KERNELS[name].nest.with_sizes(sizes)).nest, Machine.preset("zen5"), force=force)


def apart(plan: Plan) -> list[str]:
    return [loop.name for loop in loops(plan.schedule.tree) if loop.apart]


def test_short_rows_that_some_sizes_cut_are_apart_and_said() -> None:
    plan = plan_of("gemver", IN_SHORT_ROWS)
    assert apart(plan) == ["i_in"] * 2
    assert any("full tiles apart from i_in inwards" in note for note in plan.notes)
    assert "separate('S1', 'i_in')" in plan.schedule.trace()


def test_a_row_of_tiles_is_apart_and_no_row_of_such_rows() -> None:
    """Of a core's rows and of a block's columns some are cut wherever a tile is: for i_in: for j_in: tile."""
    nest = pf.einsum("ik,kj->ij", {"i": 800, "j": 900, "k": 1000}, dtype="float32")
    plan = plan_for(nest, Machine.preset("zen5"))
    assert [loop.name for loop in plan.schedule.loops("zero")][-4:] == ["i_in", "j_in", "i_in_in", "j_in_in"]
    assert "j_in" in apart(plan)
    assert "i_in" not in apart(plan)


def test_tiles_that_all_fit_are_left_alone() -> None:
    assert apart(plan_of("gemver", ON_CORES, N=1024)) == []


def test_a_budget_that_runs_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(full_tiles, "OPERATIONS", 1)
    plan = plan_of("gemver", IN_SHORT_ROWS)
    assert apart(plan) == []
    assert any("S1's full tiles from i_in inwards were given up after 1 op" in note for note in plan.notes)


def test_no_copies_for_a_gpu() -> None:
    plan = plan_for(KERNELS["gemm"].nest, Machine.preset("h200"))
    assert apart(plan) == []


def test_the_trace_makes_the_same_schedule() -> None:
    plan = plan_of("symm")
    space = {"pf": pf, "nest": plan.schedule.source}
    exec(plan.schedule.trace(), space)
    assert str(space["s"]) == str(plan.schedule)


def test_equal_kernels_are_asked_once_and_each_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()
    real = full_tiles._separated

    def separated(schedule: pf.Schedule, name: str, top: Loop) -> object:
        asked.append(name)
        return real(schedule, name, top)

    monkeypatch.setattr(full_tiles, "_separated", separated)
    net = nn.Sequential(*(layer for k in range(3) for layer in (nn.Linear(100, 100, seed=k), nn.ReLU())))
    plan = plan_for(pf.lower(net, batch=50), Machine.preset("zen5"))
    assert sum("full tiles apart" in note for note in plan.notes) == 3
    assert len(asked) == 1
    space = {"pf": pf, "nest": plan.schedule.source}
    exec(plan.schedule.trace(), space)
    assert str(space["s"]) == str(plan.schedule)

"""What the model assumes beside the facts of a machine, by name; the machine itself stays what it is."""

from __future__ import annotations

from dataclasses import replace

from polyfuse.machine import Machine
from polyfuse.strategy.cost.roofline import WAIT_SECONDS
from polyfuse.strategy.options import CODE_SECONDS, PlannerOptions

ZEN5, H200 = Machine.preset("zen5"), Machine.preset("h200")


def test_each_option_changes_what_it_names() -> None:
    assert PlannerOptions().on(ZEN5) == ZEN5
    assert PlannerOptions(joined_regions=True).on(ZEN5) == replace(ZEN5, region_seconds=WAIT_SECONDS)
    assert PlannerOptions(runs_once=True).on(ZEN5) == replace(ZEN5, region_seconds=CODE_SECONDS)
    assert PlannerOptions(one_core=True).on(ZEN5) == replace(ZEN5, units=1)
    assert PlannerOptions(rows_ahead=True).on(ZEN5) == replace(ZEN5, levels=ZEN5.levels[1:])


def test_blocks_without_copying_warps_gain_nothing_by_them() -> None:
    gpu = PlannerOptions(copying_warps=False).on(H200).gpu
    assert gpu is not None
    assert H200.gpu is not None
    assert gpu == replace(H200.gpu, meeting_cycles=0, cluster=1)
    assert PlannerOptions(copying_warps=False).on(ZEN5) == ZEN5, "a CPU has none"


def test_a_region_that_costs_less_than_a_wait_is_not_made_dearer() -> None:
    cheap = replace(ZEN5, region_seconds=WAIT_SECONDS / 2)
    assert PlannerOptions(joined_regions=True).on(cheap) == cheap

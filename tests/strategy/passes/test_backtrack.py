"""Groups that no shape of their loops made good: taken apart where that is cheaper, and said with both numbers."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import chain

import pytest

import polyfuse as pf
from papers.pipelines import PIPELINES
from papers.polybench import KERNELS
from polyfuse.ir.tree import parts, statements
from polyfuse.machine import Machine
from polyfuse.rewrite import expand
from polyfuse.strategy import Plan
from polyfuse.strategy.candidates import Choose, Picked, cheapest
from polyfuse.strategy.driver import Start
from polyfuse.strategy.fusion.group_search import KeptApart
from polyfuse.strategy.passes.backtrack import Doubt, Doubted, holds_product, reconsidered
from polyfuse.strategy.passes.kernels import Kernels, backtracked
from polyfuse.strategy.pipeline import plan_for
from tests.support.durations import seconds_in

ZEN5 = Machine.preset("zen5")
L1, L2, L3, DRAM = ZEN5.levels
ONE_CORE = replace(ZEN5, units=1, levels=(L1, L2, replace(L3, size=480 * 2**20), DRAM))
"""One core beside a server's L3, in which the images lie: tiles of them that overlap do not pay."""

APART = 1.5
"""What the parts may cost, as a part of what the group does."""


def nest_of(name: str) -> pf.Nest:
    pipeline = PIPELINES[name]
    return expand(pipeline.nest).nest.with_sizes(pipeline.large)


def planned_apart(choose: Choose = cheapest) -> Plan:
    """The pyramid's plan where parts are taken even if they cost more: they do, since fused loops come apart."""
    return plan_for(nest_of("pyramid"), ONE_CORE, choose=choose, force={"backtrack": True})


@pytest.fixture(scope="module")
def pyramid() -> Plan:
    return planned_apart()


def compared(plan: Plan) -> tuple[str, float, float]:
    """What became of the first doubtful group, and the seconds together and apart that were said."""
    pattern = r"(run apart|stay in one kernel): in their best shape (.*) together and (.*) apart expected"
    found = next(match for match in (re.search(pattern, note) for note in plan.notes) if match)
    together, apart = seconds_in(found[0])
    return found[1], together, apart


def test_a_group_that_is_dear_in_any_shape_is_taken_apart(pyramid: Plan) -> None:
    what, together, apart = compared(pyramid)
    assert what == "run apart"
    assert apart < APART * together
    assert len(parts(pyramid.schedule.tree)) > 1
    refused = [d for d in pyramid.decisions if "does not pay in any shape of their loops" in d.sentence]
    assert refused
    for decision in refused:
        assert not any(
            {decision.producer, decision.consumer} <= set(statements(p)) for p in parts(pyramid.schedule.tree)
        )


def test_a_group_that_is_dearer_in_parts_stays() -> None:
    """A doubt is no decision: both forms are priced."""
    found = Kernels.of(Start(nest_of("blurs"), ONE_CORE))
    group = max(found.plan.groups, key=lambda group: len(group.statements))
    doubted = replace(found, doubts=(Doubt(group.statements, 0.0, group.cost.total),))
    plan = backtracked(doubted).plan
    what, together, apart = compared(plan)
    assert what == "stay in one kernel"
    assert 0.8 * together <= apart


def test_choices_are_made_for_the_kernels_that_stay(pyramid: Plan) -> None:
    other = planned_apart(Choose(Picked({"tiles of nothing": 1})))
    assert str(other.schedule) == str(pyramid.schedule)
    assert other.notes == pyramid.notes


def test_without_doubts_nothing_is_compared() -> None:
    nest = pf.lower(pf.nn.Sequential(pf.nn.Linear(32, 32), pf.nn.ReLU()), batch=4)
    assert not any("in their best shape" in note for note in plan_for(nest, ONE_CORE).notes)


def layers() -> pf.Nest:
    """Three layers, of which the last one's activation is another."""
    linears = [pf.nn.Linear(32, 32, seed=n) for n in range(3)]
    activations = pf.nn.ReLU(), pf.nn.ReLU(), pf.nn.Tanh()
    return pf.lower(pf.nn.Sequential(*chain.from_iterable(zip(linears, activations, strict=True))), batch=8)


@pytest.mark.parametrize(
    ("expected", "tried"),
    [((1e-6, 1e-6, 1e-6), [{0, 1}, {2}]), ((1e-6, 3e-6, 2e-6), [{0}, {2}, {1}])],
    ids=["equal", "with other seconds"],
)
def test_equal_groups_are_taken_apart_together(
    expected: tuple[float, float, float], tried: list[set[int]]
) -> None:
    plan = plan_for(layers(), ZEN5)
    names = ("mac0", "relu0"), ("mac1", "relu1"), ("mac2", "tanh0")
    asked = []

    def without(apart: KeptApart) -> Doubted:
        asked.append({n for n, each in enumerate(names) if frozenset(each) in apart})
        return plan, ()

    doubts = tuple(Doubt(each, seconds, 1e-3) for each, seconds in zip(names, expected, strict=True))
    found = reconsidered((plan, doubts), without)
    assert asked == tried
    assert not found.refused
    assert ("and 1 group equal to it," in found.remarks[0].text) is (tried[0] == {0, 1})


def test_a_sum_of_everything_keeps_no_product_from_its_blocks() -> None:
    """It would join any of the three products, none of which has a parallel loop with it."""
    sizes = {"NI": 40, "NJ": 48, "NK": 56}
    nest = expand(pf.vjp(KERNELS["gemm"].nest, values=True)).nest.with_sizes(sizes)
    plan = plan_for(nest, ZEN5)
    tiled = [part.names for part in parts(plan.schedule.tree) if holds_product(part)]
    products = [name for names in tiled for name in names if name in ("S1", "S1_sum", "S1_to_B")]
    assert sorted(products) == ["S1", "S1_sum", "S1_to_B"]
    assert not any("S1_to_alpha" in names for names in tiled)

"""Groups that no shape of their loops made good: taken apart where that is cheaper, and said with both numbers."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest

import polyfuse as pf
from papers.pipelines import PIPELINES
from papers.polybench import KERNELS
from polyfuse.ir.tree import parts, statements
from polyfuse.machine import Machine
from polyfuse.nn.lower import lower_values
from polyfuse.rewrite import expand
from polyfuse.strategy import Plan
from polyfuse.strategy.candidates import Choose, Picked, cheapest
from polyfuse.strategy.cpu.gemm.schedule import BLOCKS
from polyfuse.strategy.driver import Start
from polyfuse.strategy.fusion.group_search import KeptApart
from polyfuse.strategy.passes.backtrack import Doubt, Doubted, doubts_of, holds_product, reconsidered
from polyfuse.strategy.passes.kernels import Kernels, backtracked
from polyfuse.strategy.pipeline import plan_for
from polyfuse.strategy.remarks import Reason, refused
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


def a_layer(rows: int, steps: int, columns: int, heads: int = 0) -> pf.Nest:
    """A linear layer of two sentences and a layer norm of what it gives; behind attention of so many heads, if any."""
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> pf.nn.Value:
        return pf.nn.constant(rng.standard_normal(shape, dtype="float32"))

    inputs = [pf.nn.input(name, (2, rows, steps)) for name in ("qkv" if heads else "x")]
    x = inputs[0]
    if heads:
        q, k, v = (
            pf.nn.permute(pf.nn.reshape(one, (2, rows, heads, steps // heads)), (0, 2, 1, 3))
            for one in inputs
        )
        taken = pf.nn.matmul(pf.nn.softmax(pf.nn.matmul(q, pf.nn.transpose(k)), -1), v)
        x = pf.nn.reshape(pf.nn.permute(taken, (0, 2, 1, 3)), (2, rows, steps))
    y = pf.nn.linear(x, pf.nn.transpose(weights(columns, steps)), weights(columns))
    return lower_values(
        [pf.nn.layer_norm(y, columns, weights(columns), weights(columns), 1e-5)], "layer", inputs
    )


def planned_layer(nest: pf.Nest) -> Plan:
    """The plan for one core whose weights come from memory."""
    return plan_for(nest, replace(ZEN5, units=1, levels=(L1, L2, replace(L3, size=4 * 2**20), DRAM)))


def test_a_norm_leaves_a_product_whose_narrow_blocks_it_forbids() -> None:
    """A norm of whole rows needs all columns in a block: 9 MiB of weights would come by once for each few rows."""
    groups = planned_layer(a_layer(16, 3072, 768)).groups
    product = next(group.statements for group in groups if "mac0" in group.statements)
    assert "bias0" in product
    assert not any(name.startswith(("meansum", "norm")) for name in product)


def test_a_large_product_without_blocks_is_doubted_with_the_one_before_it() -> None:
    """Blocks are around one product: attention's two keep the layer's behind them from its own."""
    nest, products = a_layer(16, 768, 768, heads=12), ("mac0", "mac1", "mac2")
    plan = planned_layer(nest)
    fused = replace(plan.decisions[0], producer="mac0", consumer="mac1", taken=True, cost_together=1e-5)
    line = refused(BLOCKS, products, Reason.OTHER_FORM, "several products")
    found = [replace(plan.groups[0], remarks=(line,))]
    (doubt,) = doubts_of(nest, plan.schedule.nest, [fused], products, 1.0, found)
    assert doubt.names == ("mac1", "mac2")
    assert not doubts_of(nest, plan.schedule.nest, [fused], products[:2], 1.0, found)


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

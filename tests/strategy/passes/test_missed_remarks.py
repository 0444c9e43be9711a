"""No sum of products runs without tiles on a GPU and without a word."""

from __future__ import annotations

import pytest

from polyfuse import nn
from polyfuse.ir import Nest
from polyfuse.machine import Machine
from polyfuse.strategy import plan_for
from polyfuse.strategy.cuda.gemm.schedule import in_tiles
from polyfuse.strategy.passes.missed_remarks import is_sum_of_products

H200 = Machine.preset("h200")


def convolution(channels: int, groups: int) -> Nest:
    x, w = nn.input("x", (2, channels, 8, 8)), nn.input("w", (channels, channels // groups, 3, 3))
    return nn.lower(nn.relu(nn.conv2d(x, w, padding=1, groups=groups)))


@pytest.mark.parametrize(
    ("nest", "why"),
    [
        (
            convolution(4, 4),
            "not in register tiles: 160 ns of instructions expected",
        ),
        (convolution(4, 2), "not in register tiles: no tile of results fits the product's sizes"),
        (nn.lower(nn.input("a", (64, 64)) @ nn.input("x", (64, 1))), "not in register tiles: "),
        (
            nn.lower((nn.input("q", (8, 8)) @ nn.input("k", (8, 8))) @ nn.input("v", (8, 8))),
            "mac0, mac1 are sums of products without register tiles: the kernel holds 2 of them",
        ),
    ],
    ids=["depthwise", "small groups", "one column", "two products in one kernel"],
)
def test_why_a_sum_of_products_has_no_tiles(nest: Nest, why: str) -> None:
    plan = plan_for(nest, H200)
    sums = [s.name for s in plan.schedule.nest.statements if is_sum_of_products(s)]
    assert sums
    assert not any(in_tiles(plan.schedule, name) for name in sums)
    assert why in str(plan)

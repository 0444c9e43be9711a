"""The cost of rows besides their operations: loads and stores beside register tiles, entries, ends, sums of lanes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.ir.tree import loops, parts, statements
from polyfuse.machine import CpuMachine
from polyfuse.strategy.cost.composite import finished_cost
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.cpu_rows import SHUFFLING, beside_seconds, row_seconds
from polyfuse.strategy.cost.kernel_model import Kernel, Share, kernel_of
from polyfuse.strategy.cost.register_tiles import tile_seconds
from polyfuse.strategy.pipeline import plan_for

XEON = replace(CpuMachine.preset("xeon"), units=1)


def share_of(instances: int, long_row: int, **others: bool) -> float:
    """Cycles of the rows of one statement."""
    share = Share("S", instances, 1, instances=instances, row=long_row, long_row=long_row, **others)
    return row_seconds(Kernel(("S",), (), (), (), (share,), None), XEON) / XEON.cycle


def test_a_row_is_entered_and_ends_in_single_numbers() -> None:
    assert share_of(10 * 64, 64) == pytest.approx(10 * XEON.row.entering)
    assert share_of(10 * 37, 37) == pytest.approx(10 * (XEON.row.entering + 5 * XEON.row.last))


def test_rows_of_a_product_go_by_several_at_once() -> None:
    """Not those of a matrix and a vector, whose elements are read once."""
    matrix, right, vector = (
        nn.input(name, shape) for name, shape in (("a", (40, 48)), ("b", (48, 56)), ("v", (48, 1)))
    )
    for value, expected in ((matrix @ right, True), (matrix @ vector, False)):
        counts = Counts(pf.lower(value))
        (share,) = (share for share in kernel_of(counts, counts.nest.order, ()).shares if share.adds)
        assert share.is_product is expected
    assert share_of(10 * 64, 64, adds=True, is_product=True) == 0


def test_lanes_of_a_sum_are_added_up() -> None:
    assert share_of(10 * 64, 64, one_sum=True) == pytest.approx(10 * (XEON.row.entering + XEON.row.lanes))
    assert share_of(10 * 16, 16, one_sum=True) == pytest.approx(10 * SHUFFLING), "one vector is written out"
    assert share_of(10 * 16, 16) == 0


def test_a_sum_is_waited_for_where_a_core_does_not_look_ahead_to_the_next_row() -> None:
    waits = replace(XEON, row=replace(XEON.row, waits=28.0, window=32.0))
    lanes = XEON.vector_bytes // 4
    for vectors, part in ((8, 0.25), (32, 1.0), (64, 1.0)):
        share = Share("S", 1, 1, instances=10 * vectors * lanes, long_row=vectors * lanes, one_sum=True)
        kernel = Kernel(("S",), (), (), (), (share,), None)
        more = row_seconds(kernel, waits) - row_seconds(kernel, XEON)
        assert more / XEON.cycle == pytest.approx(10 * 28 * part)


def test_cumulative_sums_turn_their_rows() -> None:
    counts = Counts(pf.lower(nn.cumsum(nn.input("x", (64, 100)), 1)))
    shares = {share.statement: share for share in kernel_of(counts, counts.nest.order).shares}
    cumulating = [share for share in shares.values() if share.cumulates]
    assert [share.instances for share in cumulating] == [64 * 99]
    assert share_of(6400, 100, cumulates=True) - share_of(6400, 100) == pytest.approx(
        XEON.row.cumulated * 6400
    )


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (nn.relu(nn.input("x", (4, 8, 16))), (512, False)),  # x[i, j, k]: all of it
        (nn.relu(nn.transpose(nn.input("x", (4, 8, 16)), 0, 1)), (16, False)),
        (nn.relu(nn.narrow(nn.input("x", (4, 16)), 1, 0, 8)), (8, False)),  # half of a row, and then another
    ],
)
def test_rows_that_follow_each_other_in_memory_are_one(value: nn.Value, found: tuple[int, bool]) -> None:
    counts = Counts(pf.lower(value))
    assert counts.long_row(counts.nest.statements[0].name) == found


def test_a_row_that_is_added_up_is_one_sum() -> None:
    counts = Counts(pf.lower(nn.sum(nn.input("x", (4, 8, 16)), (1, 2))))
    (name,) = (s.name for s in counts.nest.statements if s.is_reduction)
    assert counts.long_row(name) == (128, True)
    assert Counts(pf.lower(nn.sum(nn.input("x", (8, 16)), 0))).long_row(name) == (16, False)


def dense(steps: int) -> nn.Value:
    """64 rows of 32 sums of so many products, with a bias."""
    x, w = nn.input("x", (64, steps)), np.ones((steps, 32), np.float32)
    return nn.relu(x @ w + np.ones(32, np.float32))


def test_statements_beside_register_tiles_load_and_store() -> None:
    """Zeros are stored; biases load two and add; the maximum of what is in a variable is stored: 4 a vector."""
    plan = plan_for(pf.lower(dense(8)), XEON)
    part = next(p for p in parts(plan.schedule.tree) if any(x.bind == "microkernel" for x in loops(p)))
    counts = Counts(plan.schedule.nest)
    assert {"zero0", "mac0"} <= set(statements(part))
    vectors = 64 * 32 / 16
    assert beside_seconds(counts, part, XEON) / XEON.cycle == pytest.approx(4 * vectors)
    cost = finished_cost(counts, part, XEON)
    assert cost.compute >= tile_seconds(counts, part, XEON) + beside_seconds(counts, part, XEON)


def test_results_that_lie_apart_are_stored_one_by_one() -> None:
    """A convolution's channels are neighbours in its tiles, and its images in memory."""
    x = nn.input("x", (1, 8, 16, 16))
    schedule = plan_for(
        pf.lower(nn.relu(nn.conv2d(x, np.ones((32, 8, 3, 3), np.float32), padding=1))), XEON
    ).schedule
    counts, part = Counts(schedule.nest), parts(schedule.tree)[-1]
    assert beside_seconds(counts, part, XEON) / XEON.cycle >= 32 * 16 * 16


def test_a_loop_over_two_dimensions_goes_along_the_last_of_them() -> None:
    """The pixels of an image in one loop: what follows a product stores 64 of them side by side, in rows of 32."""
    image = nn.input("x", (1, 8, 32, 32))
    nest = pf.lower(nn.conv2d(image, np.ones((2, 8, 1, 1), np.float32), bias=np.ones(2, np.float32)))
    schedule = plan_for(nest, XEON).schedule
    counts = Counts(schedule.nest)
    part = next(part for part in parts(schedule.tree) if "bias0" in statements(part))
    cycles = beside_seconds(counts, part, XEON) / XEON.cycle
    assert cycles < 2 * 1024, "by numbers one by one these are the stores' alone"

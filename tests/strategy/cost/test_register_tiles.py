"""Register tiles are priced by the vectors that they issue: narrow ones, rows of windows, tiles that are cut short."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.ir import Tensor, statement
from polyfuse.ir.tree import loops, parts
from polyfuse.machine import CpuMachine
from polyfuse.strategy.cost.composite import schedule_costs
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.register_tiles import ENTRY, Step, _tile_cycles, tile_seconds

ZEN5 = replace(CpuMachine.preset("zen5"), units=1)


def cycles(value: nn.Value) -> float:
    """The cycles that the last kernel's tiles take on one core of a Zen 5."""
    schedule = pf.compile(pf.lower(value), target="cpu", machine=ZEN5).schedule
    return tile_seconds(Counts(schedule.nest), parts(schedule.tree)[-1], ZEN5) / ZEN5.cycle


def convolved(filters: int, window: int, groups: int = 1, side: int = 16) -> nn.Value:
    """A convolution of eight channels that keeps the image's size."""
    weight = np.ones((filters, 8 // groups, window, window), np.float32)
    return nn.conv2d(nn.input("x", (1, 8, side, side)), weight, padding=window // 2, groups=groups)


def test_few_filters_take_as_long_as_those_that_fill_a_vector() -> None:
    assert cycles(convolved(3, 3)) == pytest.approx(cycles(convolved(16, 3)), rel=0.2)


def test_few_filters_are_few_rows_where_pixels_are_columns() -> None:
    assert cycles(convolved(3, 1)) < 0.7 * cycles(convolved(16, 1))


def test_a_row_of_one_vector_waits_for_each_of_its_sums() -> None:
    rows, steps = 8 * 16, 9
    there = (23 / 24) ** 2  # at the image's borders windows lack rows, and columns
    assert cycles(convolved(8, 3, groups=8)) == pytest.approx(there * rows * (4 * steps + ENTRY))


def test_a_core_that_looks_ahead_begins_the_next_short_tiles_meanwhile() -> None:
    """A tile of nine steps of three instructions each, of which a sum needs four cycles: 27 + 20 instructions."""
    one, alone = Step(begun=1.0, done=4.0, instructions=3), 4 * 9 + ENTRY
    assert _tile_cycles(one, 9, ZEN5) == alone
    assert _tile_cycles(one, 9, replace(ZEN5, ahead=94)) == pytest.approx(alone / 2)
    assert _tile_cycles(one, 9, replace(ZEN5, ahead=400)) == 9, "no sooner than its instructions begin"
    assert _tile_cycles(one, 1000, replace(ZEN5, ahead=400)) == 4 * 1000 + ENTRY


def test_steps_whose_lines_follow_each_other_wait_for_none() -> None:
    """Panels of 64 filters of 512 channels are 1.1 MiB, more than L2; of 3 filters, as they lie, lines are apart."""
    panel, once = cycles(windows(512, 512)), 512 * 4 * 4 * (512 * 9) * (10 / 12) ** 2 / 32
    assert panel == pytest.approx(once, rel=0.05)


def windows(channels: int, filters: int) -> nn.Value:
    """A convolution of 4 x 4 pixels by 3 x 3 windows."""
    weight = np.ones((filters, channels, 3, 3), np.float32)
    return nn.conv2d(nn.input("x", (1, channels, 4, 4)), weight, padding=1)


def test_a_kernel_without_tiles_has_no_price_for_them() -> None:
    assert cycles(nn.relu(nn.input("x", (16, 16)))) == 0


def test_a_kernel_costs_at_least_its_tiles() -> None:
    schedule = pf.compile(pf.lower(convolved(3, 1)), target="cpu", machine=ZEN5).schedule
    kernel, cost = parts(schedule.tree)[-1], schedule_costs(schedule, ZEN5)[-1]
    assert any(loop.bind == "microkernel" for loop in loops(kernel))
    assert cost.compute >= tile_seconds(Counts(schedule.nest), kernel, ZEN5) > 0


def test_a_load_has_the_price_of_a_part_of_a_multiply_add() -> None:
    """A core that begins one multiply-add a cycle, not two, takes twice as long for the same loads."""
    schedule = pf.compile(pf.lower(convolved(64, 1)), target="cpu", machine=ZEN5).schedule
    counts, kernel = Counts(schedule.nest), parts(schedule.tree)[-1]
    one = replace(ZEN5, multiply_adds=1, flops32=ZEN5.flops32 / 2)
    loads = []
    for machine in (ZEN5, one):
        free, dear = (replace(machine, loading=loading) for loading in (0.0, 0.5))
        loads.append(tile_seconds(counts, kernel, dear) - tile_seconds(counts, kernel, free))
    assert one.cycle == ZEN5.cycle
    assert loads[1] == pytest.approx(2 * loads[0])


def test_a_step_takes_as_many_cycles_as_it_has_broadcasts_at_least() -> None:
    schedule = pf.compile(pf.lower(convolved(32, 1)), target="cpu", machine=ZEN5).schedule
    counts, kernel = Counts(schedule.nest), parts(schedule.tree)[-1]
    free, one, four = (
        tile_seconds(counts, kernel, replace(ZEN5, broadcast=each)) for each in (0.0, 1.0, 4.0)
    )
    assert free <= one < four


@pf.nest
def product(a: f32[48, 64], b: f32[64, 128], y: f32[48, 128]):  # type: ignore[no-untyped-def]  # noqa: F821
    for i in range(48):
        for j in range(128):
            for k in range(64):
                y[i, j] += a[i, k] * b[k, j]


def test_blocks_of_tiles_that_do_not_divide_the_columns_have_no_more_tiles() -> None:
    """Two blocks of seven tiles hold the eight tiles of 128 columns: the second has one."""
    alone = pf.Schedule(product).tile("S0", i=8, j=16).reorder("S0", "i", "j", "k", "i_in", "j_in")
    blocks = pf.Schedule(product).tile("S0", i=8, j=112).tile("S0", j_in=16)
    blocks = blocks.reorder("S0", "i", "j", "j_in", "k", "i_in", "j_in_in")
    seconds = []
    for schedule in (alone, blocks):
        (kernel,) = parts(schedule.microkernel("S0", "k").tree)
        seconds.append(tile_seconds(Counts(schedule.nest), kernel, ZEN5))
    assert seconds[1] == pytest.approx(seconds[0], rel=0.01)


def products_down_columns(steps: int) -> pf.Nest:
    """y[i, j] += a[k, i] * b[k, j], rows of 8 KiB."""
    tensors = [Tensor(name, (steps, 2048), "float32", "input") for name in "ab"]
    tensors.append(Tensor("y", (2048, 2048), "float32", "inout"))
    box = f"0 <= i < 2048 and 0 <= j < 2048 and 0 <= k < {steps}"
    return pf.Nest.of(tensors, [statement(f"{{ mac[i, j, k] : {box} }}", "y[i, j] += a[k, i] * b[k, j]")])


def test_a_tile_waits_for_lines_that_crowd_into_few_sets() -> None:
    """L2 holds 128 lines 8 KiB apart: a step of 40 costs as much as its vectors, a step of 2500 more."""
    seconds = []
    for steps in (40, 2500):
        s = pf.Schedule(products_down_columns(steps)).tile("mac", i=8, j=16)
        s = s.reorder("mac", "i", "j", "k", "i_in", "j_in").microkernel("mac", "k")
        (kernel,) = parts(s.tree)
        seconds.append(tile_seconds(Counts(s.nest), kernel, ZEN5) / steps)
    assert seconds[1] > 2 * seconds[0]

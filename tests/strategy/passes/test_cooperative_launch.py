"""Deep networks on a GPU: kernels that follow each other in one launch, whose blocks wait for each other."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.checks import cuda_cases as cases
from polyfuse.ir.tree import parts
from polyfuse.machine import Machine
from polyfuse.runtime.cuda.runner import build_kernels
from polyfuse.strategy import plan_for
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cuda.persistent.launch_needs import Needs, needs_of
from polyfuse.strategy.passes.cooperative_launch import FEWEST, MOST

pytest.importorskip("numba.cuda")


@cache
def deep(*sizes: int, batch: int) -> pf.Executable:
    return pf.compile(cases.dense(*sizes, batch=batch), target="cuda", machine="h200", device="lockstep")


def right(net: pf.Executable) -> bool:
    inputs, outputs = cases.draw(net.nest, np.random.default_rng(1)), cases.poisoned(net.nest)
    net(**inputs, out=outputs)
    return cases.error(net.nest, inputs, {"out": outputs[0]}) <= cases.TOLERANCE


def test_eight_layers_of_384_are_one_launch_with_seven_grid_barriers() -> None:
    net = deep(*[384] * 9, batch=64)
    report = net.report()
    assert (report.launches, report.grid_barriers) == (1, 7)
    (code,) = net.program.codes
    assert code.grid_barriers == 7 == code.source.count("grid_barrier(arrivals)")
    assert right(net)
    said = str(net.compiled.explanation)
    assert (
        "zero0 to relu7: 8 kernels are one launch of 48 blocks that wait for each other (h200 holds 132 at once): 7 "
        "launches of 3 µs less, 7 grid barriers of 1.2 µs more; 52.6 µs so, 65.2 µs apart." in said
    )


def test_it_compiles_for_sm_90_without_spills_or_loads_that_miss_what_others_wrote() -> None:
    pytest.importorskip("cuda.core")
    (cubin,) = build_kernels(deep(*[384] * 9, batch=64).program, (9, 0)).values()
    assert (cubin.spill_stores, cubin.spill_loads) == (0, 0)
    assert "ld.global.nc" not in cubin.ptx
    assert cubin.dynamic_bytes == 8 * 17408


def test_layers_of_many_widths_are_one_launch_of_the_longest_grid() -> None:
    net = deep(300, 320, 384, 260, 352, 10, batch=200)
    assert net.report().launches < 5
    assert net.report().grid_barriers > 0
    assert right(net)


def test_a_deeper_network_is_several_launches_of_one_code() -> None:
    net = deep(*[384] * (2 * MOST + 1), batch=16)
    launches = net.program.launches
    assert [launch.code.grid_barriers for launch in launches] == [MOST - 1] * 2
    assert len(net.program.codes) == 1
    assert right(net)


def test_few_kernels_and_many_blocks_stay_launches_of_their_own() -> None:
    h200 = Machine.preset("h200")
    few = plan_for(cases.dense(*[384] * FEWEST, batch=64), h200)
    large = plan_for(cases.dense(*[1024] * 5, batch=8192), h200)
    unfused = plan_for(cases.dense(*[64] * 9, batch=40), h200, fuse=False)
    for plan, kernels in ((few, FEWEST - 1), (large, 4), (unfused, 24)):
        assert len(plan.groups) == kernels
        assert "wait for each other" not in str(plan)


def test_the_model_weighs_launches_against_grid_barriers() -> None:
    h200 = Machine.preset("h200")
    slow = replace(h200, gpu=replace(h200.gpu, grid_barrier_seconds=h200.launch_seconds))
    nest = cases.dense(*[384] * 5, batch=64)
    assert len(plan_for(nest, slow).groups) == 4
    together = plan_for(nest, h200)
    apart = plan_for(nest, slow)
    saved = 3 * (h200.launch_seconds - h200.gpu.meeting_seconds(1))
    assert together.seconds == pytest.approx(apart.seconds - saved)


def test_what_a_launch_needs_of_its_parts() -> None:
    one = Needs((4, 2, 1), (32, 4, 1), 1000, False)
    other = Needs((1, 3, 1), (8, 8, 1), 24, False)
    assert one.beside(other) == Needs((4, 3, 1), (32, 8, 1), 1024, False)
    lanes = Needs((1, 1, 1), (64, 1, 1), 0, True)
    assert one.beside(lanes) is None, "lanes are numbered through the whole block"
    assert lanes.beside(lanes) == Needs((1, 1, 1), (64, 1, 1), 0, True)


def test_needs_are_those_of_the_code() -> None:
    net = deep(300, 320, 384, 260, 352, 10, batch=200)
    nest = net.schedule.nest
    for launch, kernel in zip(net.program.launches, parts(net.schedule.tree), strict=True):
        needs = needs_of(Counts(nest), kernel)
        assert (needs.blocks, needs.threads) == launch.extents({})
        assert needs.shared == launch.code.shared_bytes


def test_a_recurrence_keeps_what_is_right() -> None:
    nest = cases.recurrent(nn.GRU(5, 9))
    net = pf.compile(nest, target="cuda", machine="h200", device="lockstep")
    assert right(net)

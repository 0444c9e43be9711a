"""Small networks on several cores: kernels in one parallel region, whose cores wait in between."""

# ruff: noqa: F821, UP037  (sizes are names in annotations)

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.checks import cuda_cases as cases
from polyfuse.ir.tree import parts
from polyfuse.machine import Machine
from polyfuse.strategy import Plan, plan_for, schedule_costs
from polyfuse.strategy.candidates import Choose
from polyfuse.strategy.cost.parallel_regions import is_on_cores, joined_kernels
from polyfuse.strategy.passes.parallel_region import LEAST, at_best

TWO = replace(Machine.preset("zen5"), units=2)


def compiled(nest: pf.Nest, machine: Machine = TWO) -> pf.Executable:
    """The executable, whose result is what NumPy says."""
    net = pf.compile(nest, target="cpu", machine=machine)
    inputs, outputs = cases.draw(net.nest, np.random.default_rng(1)), cases.poisoned(net.nest)
    net(**inputs, out=outputs)
    assert cases.error(net.nest, inputs, {"out": outputs[0]}) <= cases.TOLERANCE
    return net


def regions_said(plan: Plan) -> list[str]:
    return [line for line in plan.notes if "are one parallel region" in line]


def test_four_layers_of_512_are_one_region_behind_the_packs() -> None:
    net = compiled(cases.dense(*[512] * 5, batch=2))
    plan = net.compiled.plan
    assert plan is not None
    assert plan.once == (True, True, True, True, False)
    (source,) = {launch.code.source for launch in net.program.launches if not launch.once}
    assert source.count("on_cores(") == 1
    assert source.count("first_share") == 1  # in the function of parts alike
    assert source.count("run(zero_mac_bias_relu_phase, ") == 4
    assert source.count("def zero_mac_bias_relu_part") == 1  # four layers alike
    (said,) = regions_said(plan)
    assert said.startswith(
        "zero0 to relu3: 4 kernels are one parallel region, in which the cores wait for each other: 3 regions of "
        "2.5 µs less, 3 waits of 500 ns more; "
    )
    assert said.endswith(" µs with a region for each kernel.")


def test_layers_that_share_rows_for_the_sake_of_their_region_come_apart() -> None:
    nest = cases.dense(*[256] * 9, batch=4)
    dear = replace(TWO, launch_seconds=5e-7)  # otherwise each layer is a kernel without a region, too
    apart = plan_for(nest, dear, force={"parallel region": False})
    (kernel,) = (
        part for part, early in zip(parts(apart.schedule.tree), apart.once, strict=True) if not early
    )
    assert len(kernel.names) == 4 * 8
    net = compiled(nest, dear)
    assert net.compiled.plan is not None
    assert [line.split(" are ")[0] for line in regions_said(net.compiled.plan)] == [
        "zero0 to relu7: 8 kernels"
    ]


def test_the_plan_expects_what_its_schedule_costs() -> None:
    plan = plan_for(cases.dense(512, 512, 512, 512, 300, batch=2), TWO)
    assert regions_said(plan)
    costs = schedule_costs(plan.schedule, TWO)
    for cost, group in zip(costs, plan.groups, strict=True):
        assert cost.total == pytest.approx(group.cost.total)
    assert costs[-1].meetings == 3
    assert "where all meet, 3 times" in str(costs[-1])


def test_one_core_large_layers_and_unfused_plans_stay_as_they_are() -> None:
    deep = cases.dense(*[512] * 5, batch=2)
    assert not regions_said(plan_for(deep, replace(TWO, units=1)))
    assert not regions_said(plan_for(deep, TWO, fuse=False))
    large = plan_for(cases.dense(*[1024] * 3, batch=64), TWO)
    assert at_best(large) > (1 - LEAST) * large.seconds
    assert not regions_said(large)


def test_a_small_network_stays_on_one_core() -> None:
    plan = plan_for(cases.dense(*[64] * 5, batch=1), TWO)
    assert at_best(plan) > plan.seconds
    assert not any(map(is_on_cores, parts(plan.schedule.tree)))


def test_a_search_may_leave_each_its_region() -> None:
    asked: list[str] = []

    def apart(kernel: tuple[str, ...], what: str, seconds: object) -> int:
        asked.append(what)
        return int(what == "regions")

    plan = plan_for(cases.dense(*[512] * 5, batch=2), TWO, choose=Choose(apart))
    assert asked.count("regions") == 1
    assert not regions_said(plan)


@pf.nest
def two_triangles(a: f64[N, N], b: f64[N], c: f64[N], y: f64[N]):
    for i in range(N):
        for j in range(i + 1):
            b[i] += a[i, j]
    for i in range(N):
        for j in range(i + 1):
            y[i] += a[i, j] * b[N - 1 - j]


def test_values_that_are_handed_out_keep_a_region_of_their_own() -> None:
    nest = two_triangles.with_sizes({"N": 400})
    schedule = pf.Schedule(nest).bind("S0", i="dynamic").bind("S1", i="cores")
    (first, second) = parts(schedule.tree)
    assert is_on_cores(first)
    assert is_on_cores(second)
    joined = schedule.join("S0", "S1", loop="both")
    assert joined_kernels(nest, parts(joined.tree)[0]) == (first, second)
    assert not regions_said(plan_for(nest, TWO))


def test_only_a_loop_of_one_value_around_several_on_cores_is_joined() -> None:
    nest = two_triangles.with_sizes({"N": 8})
    schedule = pf.Schedule(nest)
    assert all(joined_kernels(nest, part) == () for part in parts(schedule.tree))
    one = schedule.bind("S0", i="cores").join("S0", "S1", loop="both")
    assert joined_kernels(nest, one.tree) == ()


def test_what_runs_once_comes_first_from_behind_kernels_that_stay_in_order() -> None:
    @pf.nest
    def program(  # type: ignore[no-untyped-def]
        y: "i32[64, 32]", a: "i32[129, 32, 64]", b: "i32[129, 32]", s: "i32[32]", z: "i32[64, 129]", t: "i32[129]",
        c: "i32[48, 64]", d: "i32[129, 48]",
    ):  # fmt: skip
        steps = np.zeros((32,), np.int32)
        product = np.zeros((64, 129), np.int32)
        for i in range(64):
            for j in range(32):
                y[i, j] = 0
                for k in range(i + 1):
                    y[i, j] += a[k, j, i] * b[k, j]
        for i in range(64):
            for j in range(32):
                y[i, j] = max(min(y[i, j], 9), -9)
        for j in range(1, 32):
            steps[j] = max(min(steps[j - 1] - s[j], 9), -9)
        for i in range(1, 63):
            for k in range(1, 128):
                z[i, k] = max(min(t[k - 1], 9), -9)
        for i in range(64):
            for k in range(129):
                product[i, k] = 0
        for k in range(129):
            for r in range(48):
                for i in range(64):
                    product[i, k] += c[r, i] * d[k, r]

    net = pf.compile(program, target="cpu", machine=replace(Machine.preset("xeon"), units=4))
    plan = net.compiled.plan
    assert plan is not None
    assert plan.once[0]
    assert not any(plan.once[1:])
    assert regions_said(plan)

"""Prices of schedules come from their loops: orders, lanes, tiles and cores of one statement."""

from __future__ import annotations

from dataclasses import replace

import islpy as isl
import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.errors import BadArgument, InvalidSchedule
from polyfuse.machine import Machine
from polyfuse.measure import duration
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.cpu_loops import Estimator
from polyfuse.strategy.fusion.group_search import part_with


@pytest.fixture(scope="module")
def s() -> pf.Schedule:
    return pf.Schedule(pf.lower(nn.Linear(256, 256, bias=False), batch=128))


def price(schedule: pf.Schedule) -> float:
    return pf.cost(schedule, "zen5").seconds


def in_tiles(s: pf.Schedule, rows: int, columns: int) -> pf.Schedule:
    return s.tile("mac0", i=rows, j=columns).reorder("mac0", "i", "j", "k", "i_in", "j_in")


def test_what_the_loops_are_decides(s: pf.Schedule) -> None:
    along = s.interchange("mac0", "j", "k")
    tiles = in_tiles(s, 4, 32).microkernel("mac0", "k")
    assert price(tiles) < price(along) / 2 < price(s) / 10  # a sum in one place waits for each of its terms
    assert price(tiles.bind("mac0", i="cores")) < price(tiles)
    assert price(in_tiles(s, 4, 32)) > 10 * price(tiles)  # loops of 4 × 32 that nobody put on vector lanes
    one, many = (in_tiles(s, *tile).microkernel("mac0", "k") for tile in ((1, 16), (8, 32)))
    assert price(one) > 2 * price(tiles)  # nothing runs beside the latency of a sum
    few = replace(Machine.preset("zen5"), vector_registers=12)
    assert pf.cost(many, few).seconds > 1.1 * price(many)  # more sums than registers


def test_what_all_instances_touch_is_found_once_for_all_orders(
    s: pf.Schedule, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[isl.Set] = []
    found = Estimator._touched

    def noted(self: Estimator, name: str, domain: isl.Set) -> dict[str, int]:
        if name == "mac0":
            asked.append(domain)
        return found(self, name, domain)

    monkeypatch.setattr(Estimator, "_touched", noted)
    estimator = Estimator(Counts(s.nest), Machine.preset("zen5"))
    for schedule in (s, s.interchange("mac0", "j", "k"), in_tiles(s, 4, 32)):
        estimator.of(part_with(schedule, "mac0"))
    whole = s.nest.domains["mac0"]
    assert sum(domain.is_equal(whole) for domain in asked) == 1


def test_a_price_has_parts(s: pf.Schedule) -> None:
    found = pf.cost(s.tile("mac0", i=32, j=32), "zen5")
    assert [kernel.statements for kernel in found.kernels] == [("zero0",), ("mac0",)]
    assert found.seconds == pytest.approx(sum(kernel.seconds for kernel in found.kernels))
    assert found.flops == 2 * 128 * 256 * 256
    assert 0 < found.bound < found.seconds
    assert max(found.compute, found.memory) < found.seconds
    assert found.overhead == pytest.approx(2 * found.machine.launch_seconds)
    assert str(found).startswith(f"{duration(found.seconds)} on zen5, at least ")


def test_a_kernel_of_constants_is_not_part_of_a_call() -> None:
    net = pf.compile(pf.lower(nn.Linear(256, 256), batch=128), target="cpu", machine="zen5")
    found = pf.cost(net.schedule, "zen5")
    assert [kernel.once for kernel in found.kernels] == [launch.once for launch in net.kernels]
    assert any(kernel.once for kernel in found.kernels)
    calls = [kernel.seconds for kernel in found.kernels if not kernel.once]
    assert found.seconds == pytest.approx(sum(calls))
    assert found.seconds == pytest.approx(net.report().predicted_seconds, rel=0.5)


def test_a_schedule_by_hand_has_this_prediction(s: pf.Schedule) -> None:
    net = pf.compile(s.source, target="cpu", machine="zen5", schedule=s)
    assert net.report().predicted_seconds == pytest.approx(price(s))


def test_symbolic_sizes_are_named() -> None:
    x = np.zeros(4, np.float32)

    def twice(x, y):  # type: ignore[no-untyped-def]
        for i in range(x.shape[0]):
            y[i] = 2 * x[i]

    nest = pf.nest(twice, example=(x, x))
    found = pf.cost(pf.Schedule(nest), "zen5")
    assert dict(found.sizes) == dict.fromkeys(nest.params, 256)


def test_what_cannot_be_priced_is_refused(s: pf.Schedule) -> None:
    with pytest.raises(InvalidSchedule, match=r"zero0 has no loop on blocks.*bind a loop to block.x"):
        pf.cost(s, "h200")
    on_gpu = s.bind("mac0", i="block.x", j="thread.x").bind("zero0", i="block.x")
    assert pf.cost(on_gpu, "h200").seconds > 0
    with pytest.raises(InvalidSchedule, match=r"has loops on block.x.*name a GPU, as in machine='h200'"):
        pf.cost(on_gpu)
    with pytest.raises(InvalidSchedule, match="on a CPU's cores, and h200 is a GPU"):
        pf.cost(s.bind("zero0", i="cores"), "h200")
    with pytest.raises(BadArgument, match=r"cost takes a pf.Schedule, given Nest"):
        pf.cost(s.source)  # type: ignore[arg-type]


def test_a_symmetric_product_has_the_operations_of_one_half() -> None:
    def product(x: f64[300, 200]):  # type: ignore[no-untyped-def]  # noqa: F821
        return x.T @ x

    half = pf.cost(pf.compile(pf.nest(product), target="cpu", machine="zen4").schedule, machine="zen4")
    points = 300 * 200 * 201 // 2
    assert half.flops == pytest.approx(2 * points, rel=0.01)
    assert half.bound < half.seconds

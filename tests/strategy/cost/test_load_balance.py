"""Loops of unequal values: their profiles against counted instances, and what the model has cores take of them."""

# ruff: noqa: F821  (sizes are names in annotations)

from dataclasses import replace
from itertools import product

import pytest

import polyfuse as pf
from polyfuse.ir.tree import SHARED
from polyfuse.machine import Machine
from polyfuse.strategy.cost.composite import schedule_costs
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.load_balance import busiest, cores_at_work, place_one_by_one
from polyfuse.strategy.pipeline import plan_for
from tests.support.durations import seconds_in

N = 40
ZEN5 = Machine.preset("zen5")


@pf.nest
def uneven(x: "f64[40]", y: "f64[40, 40]", z: "f64[40, 40, 40]"):
    for i in range(40):
        for j in range(i + 1):
            y[i, j] = x[i] * x[j]
    for i in range(40):
        for j in range(i, 40):
            for k in range(i + 1):
                z[i, j, k] = x[i] + x[k]


@pf.nest
def grams(x: "f64[600, 600]", y: "f64[600, 600]"):
    for i in range(600):
        for j in range(i + 1):
            for k in range(600):
                y[i, j] += x[k, i] * x[k, j]


@pf.nest
def products(a: "f32[6, 96, 96]", b: "f32[6, 96, 96]", c: "f32[6, 96, 96]"):
    for n in range(6):
        for i in range(96):
            for j in range(96):
                for k in range(96):
                    c[n, i, j] += a[n, i, k] * b[n, k, j]


def instances(name: str) -> list[tuple[int, ...]]:
    if name == "S0":
        return [(i, j) for i, j in product(range(N), repeat=2) if j <= i]
    return [(i, j, k) for i, j, k in product(range(N), repeat=3) if k <= i <= j]


@pytest.mark.parametrize(("name", "dim"), [("S0", 0), ("S0", 1), ("S1", 0)])
@pytest.mark.parametrize(("units", "size"), [(2, 20), (2, 5), (3, 4)])
def test_the_busiest_core_has_what_counting_says(name: str, dim: int, units: int, size: int) -> None:
    loop = pf.Schedule(uneven).loops(name)[dim]
    profile = Counts(uneven).profile(name, loop.date(name))
    work = [0] * (N // size)
    for point in instances(name):
        work[point[dim] // size] += 1
    ends = [round(core * len(work) / units) for core in range(units + 1)]
    halves = max(sum(work[ends[core] : ends[core + 1]]) for core in range(units))
    free = [0] * units
    for piece in work if work[0] > work[-1] else reversed(work):
        free[free.index(min(free))] += piece
    box = N ** (1 if name == "S0" else 2)
    for place, expected in (("cores", halves), ("dynamic", max(free))):
        assert busiest(profile, N, size, units, place) * box == pytest.approx(expected, rel=0.04)


def test_cores_that_wait_are_not_counted() -> None:
    counts, (rows, _) = Counts(uneven), pf.Schedule(uneven).loops("S0")
    halves, free = (cores_at_work(counts, replace(rows, bind=place), 2) for place in SHARED)
    assert halves == pytest.approx(4 / 3, rel=0.03)
    assert free > 1.9


@pytest.mark.parametrize(
    ("profile", "place"),
    [
        ((0.0, 1.0), "dynamic"),
        ((1.0, 0.0), "dynamic"),
        ((0.67, 1.0, 1.0, 1.0, 0.67), "cores"),
        ((0.9, 1.0), "cores"),
    ],
    ids=["a triangle", "a triangle upside down", "a window at the borders of an image", "nearly even"],
)
def test_values_are_handed_out_where_that_evens_out_enough(profile: tuple[float, ...], place: str) -> None:
    assert place_one_by_one(profile, 56, 2) == place


def test_a_product_over_a_triangle_is_shared_out_in_unequal_pieces() -> None:
    net = pf.compile(grams, target="cpu", machine=replace(ZEN5, units=2))
    assert "each for whichever core is free: the busiest of 2 does 5" in net.explain()
    assert any(
        step.verb == "bind" and "dynamic" in dict(step.options).values() for step in net.schedule.steps
    )
    (cost,) = schedule_costs(net.schedule, replace(ZEN5, units=2))
    assert cost.utilisation > 0.95


def test_what_is_expected_of_a_core_are_all_products_that_it_does() -> None:
    """Six products: all of them on one core, three each on two, and of four cores two have two."""

    def expected(units: int) -> float:
        said = "\n".join(plan_for(products, replace(ZEN5, units=units)).groups[0].notes)
        (found,) = (line for line in said.split("\n") if "expected on one core" in line)
        return seconds_in(found)[0]

    assert expected(2) == pytest.approx(expected(1) / 2, rel=0.02)
    assert expected(4) == pytest.approx(expected(1) / 3, rel=0.02)

"""Sums into places that data name: an array for each core where that is expected to take less time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.strategy import plan_for
from polyfuse.strategy.rewrites.private_places import PASS
from tests.frontend.python.running import by_python, defined
from tests.support.execution import memory, run_plain
from tests.support.models import CPU, CUDA

MACHINE = replace(CPU, units=4, region_seconds=0.0, launch_seconds=1e-12)


def updates(n: int, m: int, body: str) -> pf.Nest:
    return defined(
        "@pf.nest\n"
        f"def f(h: 'i64[{m}]', d: 'i64[{m}, 3]', a: 'i64[{n}]', w: 'i64[{n}]', g: 'i64[{n}, 3]'):\n"
        f"    for i in range({n}):\n        {body}\n"
    )


@pytest.mark.parametrize(
    ("n", "m", "body", "taken"),
    [
        (70, 3, "h[a[i]] += w[i]", True),
        (70, 3, "h[a[i]] -= w[i] if w[i] > 0 else 1", True),
        (70, 3, "for j in range(3):\n            d[a[i], j] += g[i, j]", True),
        (70, 40, "h[a[i]] += w[i]", False),
    ],
)
def test_small_arrays_are_private_to_cores(n: int, m: int, body: str, taken: bool) -> None:
    nest = updates(n, m, body)
    rng = np.random.default_rng(0)
    arrays = {
        "h": rng.integers(-3, 4, m),
        "d": rng.integers(-3, 4, (m, 3)),
        "a": rng.integers(0, m, n),
        "w": rng.integers(-3, 4, n),
        "g": rng.integers(-3, 4, (n, 3)),
    }
    plan = plan_for(nest, MACHINE)
    (remark,) = (remark for remark in plan.log if remark.pass_ == PASS)
    assert remark.taken is taken
    assert (remark.seconds[0] < remark.seconds[1]) is taken
    schedule, inputs = plan.schedule, {t.name: arrays[t.name] for t in nest.inputs}
    found = memory(nest, schedule.nest, schedule.tree, inputs, {})
    run_plain(schedule.nest, schedule.tree, found, {}, 0)
    for name, array in by_python(nest, arrays).items():
        np.testing.assert_array_equal(found[name], array)
    bound = [loop.bind for loop in schedule.loops("part_S0")] if taken else []
    assert bound[:1] == ["cores"] * taken


def test_sums_that_are_left_as_they_are() -> None:
    several = updates(70, 3, "h[a[i]] += w[i]\n        d[a[i], 1] = 0")
    symbolic = defined(
        "@pf.nest\ndef f(h: 'i64[M]', a: 'i64[N]'):\n    for i in range(N):\n        h[a[i]] += 1\n"
    )
    one = updates(70, 3, "h[a[i]] += w[i]")
    for nest, machine in (
        (several, MACHINE),
        (symbolic, MACHINE),
        (one, CUDA),
        (one, replace(MACHINE, units=1)),
    ):
        assert not [remark for remark in plan_for(nest, machine).log if remark.pass_ == PASS]

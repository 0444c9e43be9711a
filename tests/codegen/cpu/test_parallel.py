"""Kernels whose cores share out several loops in one parallel region, and wait for each other in between."""

# ruff: noqa: F821  (sizes are names in annotations)
from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from platform import machine

import numba
import numpy as np
import pytest

import polyfuse as pf
from polyfuse.checks import cuda_cases as cases
from polyfuse.codegen.cpu.intrinsics.worksharing import first_share, next_share, share_from, team_of
from polyfuse.codegen.generate import _renamed
from polyfuse.codegen.program import Code
from polyfuse.ir.tree import parts, statements
from polyfuse.machine import Machine
from polyfuse.runtime.cpu import native
from polyfuse.strategy import plan_for


@pf.nest
def smoothed(A: f64[N], B: f64[N], T: i64):
    for _t in range(T):
        for i in range(1, N - 1):
            B[i] = 0.25 * A[i - 1] + 0.5 * A[i] + 0.25 * A[i + 1]
        for i in range(1, N - 1):
            A[i] = B[i]


def layers(*sizes: int, batch: int) -> pf.Schedule:
    """Kernels of a network, each on cores, with what packs weights before all of them."""
    plan = plan_for(cases.dense(*sizes, batch=batch), with_free_regions(Machine.preset("zen5")))
    s = plan.schedule
    kernels = [statements(kernel) for kernel in parts(s.tree)]
    packs = [names[0] for names in kernels if names[0].startswith("pack")]
    for before, name in pairwise(packs):
        s = s.move(name, behind=before)
    run = [names for names in kernels if not names[0].startswith("pack")]
    return s.join(run[0][0], run[-1][-1], loop="run")


def with_free_regions(machine: Machine) -> Machine:
    """The machine with two cores and regions that cost nothing."""
    return replace(machine, units=2, region_seconds=0.0)


@pytest.fixture(scope="module")
def joined() -> pf.Executable:
    schedule = layers(*[512] * 5, batch=2)
    return pf.compile(schedule.source, schedule=schedule, target="cpu")


def test_joined_layers_are_one_region_and_equal_ones_one_function(joined) -> None:
    (run,) = (code for code in joined.program.codes if "mac" in code.name)
    assert run.source.count("on_cores(") == 1
    assert run.source.count("def zero_mac_bias_relu_part") == 1
    assert run.source.count("first_share(") == 1, "of the function of equal parts"
    assert run.source.count("run(zero_mac_bias_relu_phase, ") == 4
    assert [launch.once for launch in joined.program.launches] == [True] * 4 + [False]


@pytest.mark.parametrize("threads", [1, 2])
def test_joined_layers_compute_what_they_do_apart(joined, threads) -> None:
    threads = min(threads, numba.config.NUMBA_NUM_THREADS)
    inputs = cases.draw(joined.nest, np.random.default_rng(1))
    before = numba.get_num_threads()
    try:
        numba.set_num_threads(threads)
        for _ in range(20):
            (out,) = cases.poisoned(joined.nest)
            joined(**inputs, out=(out,))
            assert cases.error(joined.nest, inputs, {"out": out}) <= cases.TOLERANCE
    finally:
        numba.set_num_threads(before)


@pytest.mark.parametrize(("size", "steps"), [(3, 1), (5, 7), (1000, 300), (2, 4), (40, 0)])
def test_steps_in_time_are_one_region(size, steps) -> None:
    schedule = pf.Schedule(smoothed).bind("S0", i="cores").bind("S1", i="cores")
    net = pf.compile(smoothed, schedule=schedule, target="cpu")
    assert net.source.count("on_cores(") == 1
    A, B = np.random.default_rng(1).random((2, size))
    expected, other = A.copy(), B.copy()
    net(A, B, steps)
    smoothed.python(expected, other, steps)
    np.testing.assert_allclose(A, expected, rtol=1e-14)


def test_loops_that_are_taken_value_by_value_keep_regions_of_their_own() -> None:
    schedule = pf.Schedule(smoothed).bind("S0", i="dynamic").bind("S1", i="cores")
    net = pf.compile(smoothed, schedule=schedule, target="cpu")
    assert net.source.count("on_cores(") == 2
    assert "first_share" not in net.source


@numba.njit
def by_one_core(members, phases):
    """Which shares the first core runs that no other one ever comes to, and what the second finds then."""
    team = team_of(members)
    ran = np.zeros((phases, members), np.int64)
    for member in (0, 1):
        for phase in range(phases):
            share = first_share(team, phase, member)
            while share >= 0:
                ran[phase, share] += 1 + 10 * member
                share = next_share(team, phase, share)
    return ran


def test_a_core_runs_the_shares_of_those_that_do_not_come() -> None:
    np.testing.assert_array_equal(by_one_core(3, 4), np.ones((4, 3)))


@pytest.mark.parametrize(("low", "high"), [(0, 7), (3, 4), (5, 5), (6, 2), (-2, 9)])
@pytest.mark.parametrize("members", [1, 2, 3, 8])
def test_shares_are_all_values_once(low, high, members) -> None:
    ends = [share_from(low, high, members, share) for share in range(members + 1)]
    assert [i for a, b in pairwise(ends) for i in range(a, b)] == list(range(low, high))
    assert max(np.diff(ends)) - min(np.diff(ends)) <= 1


def test_a_second_kernel_of_a_name_renames_its_parts_and_nothing_else() -> None:
    source = (
        "@Part\ndef exp_part(x):\n    x[0] = math.exp(x[0])\n\n\n"
        "def exp(x):\n    run(exp_part, (x,))\n    on_cores(exp_cores_2, 3, (x,))\n"
    )
    assert _renamed(Code("exp", source, "void()"), "exp_2").source == (
        "@Part\ndef exp_2_part(x):\n    x[0] = math.exp(x[0])\n\n\n"
        "def exp_2(x):\n    run(exp_2_part, (x,))\n    on_cores(exp_2_cores_2, 3, (x,))\n"
    )


@pf.nest
def ratios(x: f64[N], y: f64[N]):
    for i in range(N):
        y[i] = np.floor(2.0 * x[N - 1 - i]) / (x[i] + 1.0)


@pf.nest
def ratios_of_many(x: f64[4000], y: f64[4000]):
    for i in range(4000):
        y[i] = np.floor(2.0 * x[3999 - i]) / (x[i] + 1.0)


@pf.nest
def doubled(x: f64[40, 8], y: f64[40, 8]):
    for i in range(40):
        for j in range(8):
            y[i, j] = 2.0 * x[i, j]


def over_cores(nest: pf.Nest) -> pf.Executable:
    return pf.compile(nest, schedule=pf.Schedule(nest).bind("S0", i="cores"), target="cpu")


@pytest.fixture
def zen4(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Machine code for a Zen 4, whatever this computer has; it is not run."""
    monkeypatch.setattr(numba.config, "CPU_NAME", "znver4")
    monkeypatch.setattr(numba.config, "CPU_FEATURES", "")
    native._codegen.cache_clear()
    yield
    native._codegen.cache_clear()


@pytest.mark.skipif(machine() not in ("x86_64", "AMD64"), reason="code for a Zen 4")
@pytest.mark.parametrize("nest", [ratios, ratios_of_many])
def test_a_loop_over_cores_without_loops_inside_loads_and_stores_whole_vectors(zen4, nest) -> None:
    (code,) = over_cores(nest).program.codes
    text, _ = native.assembly_text(code, with_lines=False)
    assert re.search(r"vdivpd.*[xyz]mm", text)
    assert not re.search(r"gather|scatter", text)


def test_the_range_of_a_share_is_stated_for_the_innermost_loop_and_forced_for_others() -> None:
    assert "i = within(i_core, 0, N)" in over_cores(ratios).source
    assert "i = within(i_core, 0, 4000)" in over_cores(ratios_of_many).source
    assert "i = min(max(i_core, 0), 39)" in over_cores(doubled).source


@pf.nest
def pairs(z: f64[40, 50, 2], y: f64[40, 50]):
    for i in range(40):
        for j in range(50):
            y[i, j] = np.sqrt(z[i, j, 0] * z[i, j, 0] + z[i, j, 1] * z[i, j, 1])


@pf.nest
def pairs_of_any_number(z: f64[N, M, 2], y: f64[N, M]):
    for i in range(N):
        for j in range(M):
            y[i, j] = np.sqrt(z[i, j, 0] * z[i, j, 0] + z[i, j, 1] * z[i, j, 1])


def test_a_part_knows_the_shapes_of_its_arrays(zen4) -> None:
    net = over_cores(pairs)
    assert "def S_cores(y: (40, 50), z: (40, 50, 2), member, members):" in net.source
    text, _ = native.assembly_text(net.program.codes[0], with_lines=False)
    assert re.search(r"vsqrtpd.*[xyz]mm", text)
    assert not re.search(r"imulq\s+[^$]", text), "no distance that is a variable"
    assert (
        "def S_cores(N, M, y, z: (None, None, 2), member, members):" in over_cores(pairs_of_any_number).source
    )


def test_a_part_with_shapes_computes_what_the_function_does() -> None:
    z = np.random.default_rng(0).random((40, 50, 2))
    for nest in (pairs, pairs_of_any_number):
        y = np.full((40, 50), np.nan)
        over_cores(nest)(z, y)
        np.testing.assert_allclose(y, np.hypot(z[..., 0], z[..., 1]), rtol=1e-14)

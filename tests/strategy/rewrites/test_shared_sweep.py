"""Matrices read once for sums along their rows and across them: what is found, its shape, and what it computes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from papers.polybench import KERNELS
from polyfuse.ir.tree import loops, parts, statements
from polyfuse.machine import Machine
from polyfuse.strategy import plan_for
from polyfuse.strategy.cpu.row_sweep import row_by_row
from polyfuse.strategy.rewrites.shared_sweep import pairs_of, read_once
from tests.frontend.python.running import assert_close, by_python, called, defined

PAIRS = {"atax": 1, "bicg": 1, "mvt": 1, "gesummv": 0, "gemm": 0, "trmm": 0}
"""Sums along rows and across rows of one matrix, by PolyBench's kernel."""


def small(cores: int) -> Machine:
    """A Zen 5 whose L1 and L2 hold no matrix of this file."""
    zen = Machine.preset("zen5")
    first, second, *far = zen.levels
    return replace(zen, units=cores, levels=(replace(first, size=1024), replace(second, size=4096), *far))


def sizes_of(name: str, rows: int, columns: int) -> dict[str, int]:
    return {"N": rows} if name == "mvt" else {"M": rows, "N": columns}


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_are_found(name: str) -> None:
    assert len(list(pairs_of(KERNELS[name].nest))) == PAIRS[name]


@pytest.mark.parametrize("cores", [1, 2, 3])
@pytest.mark.parametrize("name", ["atax", "bicg", "mvt"])
def test_odd_sizes_agree_with_python(name: str, cores: int) -> None:
    kernel, sizes = KERNELS[name], sizes_of(name, 97, 83)
    found = read_once(kernel.nest.with_sizes(sizes), small(cores))
    (one,) = found.passes
    schedule = row_by_row(pf.Schedule(found.nest), one)
    net = pf.compile(found.nest, target="cpu", machine=small(cores), schedule=schedule)
    arrays: dict[str, Any] = kernel.inputs(sizes, np.random.default_rng(3))
    assert_close(called(net, arrays), by_python(kernel.nest, arrays))


@pytest.mark.parametrize(("name", "cores"), [("atax", 2), ("bicg", 2), ("mvt", 1), ("mvt", 2)])
def test_the_default_plan_reads_a_large_matrix_once(name: str, cores: int) -> None:
    nest = KERNELS[name].nest.with_sizes(sizes_of(name, 1900, 2100))
    plan = plan_for(nest, replace(Machine.preset("zen5"), units=cores))
    (said,) = (note for note in plan.notes if " once, " in note)
    assert "not taken" not in said
    matrix = next(iter(pairs_of(nest))).matrix
    (reading,) = (
        part
        for part in parts(plan.schedule.tree)
        if any(matrix in plan.schedule.nest.statement(n).tensors for n in statements(part))
    )
    binds = [loop.bind for loop in loops(reading)]
    assert binds.count("cores") == (cores > 1)
    assert binds.count("unroll") == 2


def test_a_matrix_that_is_near_is_left_to_the_search() -> None:
    nest = KERNELS["atax"].nest.with_sizes({"M": 97, "N": 83})
    assert not read_once(nest, Machine.preset("zen5")).passes
    assert read_once(nest, small(2)).passes


def test_rows_that_wait_for_all_sums_across_are_refused() -> None:
    """gemver's second product reads what the first one, with the transpose, sums up."""
    waiting = defined(
        """
@pf.nest
def waiting(a: "f64[M, N]", x: "f64[M]"):
    s = np.zeros(N)
    w = np.zeros(M)
    for i in range(M):
        for j in range(N):
            s[j] += a[i, j] * x[i]
    for i in range(M):
        for j in range(N):
            w[i] += a[i, j] * s[j]
    return w
"""
    )
    nest = waiting.with_sizes({"M": 97, "N": 83})
    found = read_once(nest, small(2))
    assert not found.passes
    (why,) = found.refused
    assert "read a each on its own" in why.text
    assert "would break" in why.text
    plan = plan_for(nest, small(2))
    assert why in plan.remarks


@pytest.mark.parametrize("cores", [1, 2, 3])
def test_what_comes_between_runs_with_its_row(cores: int) -> None:
    between = defined(
        """
@pf.nest
def between(a: "i64[37, 53]", x: "i64[53]", y: "i64[53]", z: "i64[37]"):
    for i in range(37):
        z[i] = 0
        for j in range(53):
            z[i] += a[i, j] * x[j]
    for i in range(37):
        z[i] = z[i] * 2 + 1
    for j in range(53):
        y[j] = 0
        for i in range(37):
            y[j] += a[i, j] * z[i]
"""
    )
    found = read_once(between, small(cores))
    (one,) = found.passes
    schedule = row_by_row(pf.Schedule(found.nest), one)
    net = pf.compile(found.nest, target="cpu", machine=small(cores), schedule=schedule)
    rng = np.random.default_rng(0)
    a, x = rng.integers(-9, 9, (37, 53)), rng.integers(-9, 9, 53)
    y, z = np.zeros(53, np.int64), np.zeros(37, np.int64)
    net(a, x, y, z)
    np.testing.assert_array_equal(z, 2 * (a @ x) + 1)
    np.testing.assert_array_equal(y, a.T @ z)


def test_cores_share_rows_in_whole_tiles_and_each_call_gives_the_same() -> None:
    kernel, sizes = KERNELS["atax"], {"M": 97, "N": 83}
    nest = kernel.nest.with_sizes(sizes)
    (one,) = read_once(nest, small(2)).passes
    assert one.share == 52
    net = pf.compile(nest, target="cpu", machine=small(2))
    arrays: dict[str, Any] = kernel.inputs(sizes, np.random.default_rng(3))
    first, again = called(net, arrays), called(net, arrays)
    assert all((first[name] == again[name]).all() for name in first)


def test_a_refusal_is_said_beside_a_pass_that_is_made() -> None:
    both = defined(
        """
@pf.nest
def both(a: "f64[97, 83]", b: "f64[97, 83]", x: "f64[97]", y: "f64[83]"):
    s = np.zeros(83)
    w = np.zeros(97)
    u = np.zeros(97)
    v = np.zeros(83)
    for i in range(97):
        for j in range(83):
            s[j] += a[i, j] * x[i]
    for i in range(97):
        for j in range(83):
            w[i] += a[i, j] * s[j]
    for i in range(97):
        for j in range(83):
            u[i] += b[i, j] * y[j]
    for i in range(97):
        for j in range(83):
            v[j] += b[i, j] * x[i]
    return w, u, v
"""
    )
    found = read_once(both, small(1))
    assert len(found.passes) == len(found.said) == 1
    (why,) = found.refused
    assert "read a each on its own" in why.text
    assert why in plan_for(both, small(1)).remarks

"""Expansion: what becomes of variables, that values stay, and which dependences go."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from papers.polybench import KERNELS
from polyfuse.rewrite import expand
from polyfuse.rewrite.storage.webs import webs
from tests.frontend.python.running import assert_close, by_python, by_source, called

# ruff: noqa: F821

WITH_VARIABLES = ("deriche", "durbin", "gramschmidt", "ludcmp", "symm")


@pf.nest
def sums(A: f64[M, N], y: f64[M]):
    for i in range(M):
        s = 0.0
        for j in range(N):
            s += A[i, j]
        y[i] = s


@pf.nest
def two_lives(a: f64[N], b: f64[N]):
    for i in range(N):
        t = a[i] * 2.0
        b[i] = b[i] + t
        t = a[i] * 3.0
        b[i] = b[i] * t
    for i in range(N - 1, -1, -1):
        t = b[i]
        a[i] = t + t


@pf.nest
def carried(x: f64[N]):
    last = 0.0
    for i in range(N):
        here = x[i]
        x[i] = here + last
        last = here


def false_pairs(nest: pf.Nest, *tensors: str) -> list[tuple[str, str, str]]:
    """The anti and output pairs that end in a write to one of the tensors, without what is flow as well."""
    found = nest.dependences()
    targets = {s.name: s.write.tensor for s in nest.statements}
    return [
        (p.kind, p.source, p.sink)
        for p in found.pairs
        if p.kind in ("anti", "output") and targets[p.sink] in tensors
        and not p.map.is_subset(found.flow.extract_map(p.map.get_space()))
    ]  # fmt: skip


def test_a_sum_in_a_variable_is_private_to_its_row() -> None:
    done = expand(sums)
    assert str(done) == "s becomes s[M]: its values live within one iteration of i"
    assert [str(s.write) for s in done.nest.statements] == ["s[i]", "s[i]", "y[i]"]
    assert false_pairs(sums, "s")
    assert not false_pairs(done.nest, "s")
    schedule = pf.Schedule(sums)
    refused = schedule.why_not("bind", "S0", i="cores")
    assert refused is not None
    assert refused.kind in ("anti", "output")
    parallel = pf.Schedule(done.nest).bind("S0", i="cores")
    A = np.random.default_rng(0).random((5, 7))
    y = np.zeros(5)
    pf.compile(done.nest, target="cpu", schedule=parallel)(A, y)
    assert np.allclose(y, A.sum(1))


def test_lives_that_share_only_the_name_are_told_apart() -> None:
    assert [(w.writers, w.readers) for w in webs(two_lives, "t")] == [
        (("S0",), ("S1",)),
        (("S2",), ("S3",)),
        (("S4",), ("S5",)),
    ]
    done = expand(two_lives)
    assert [(e.tensor, e.into, e.loops, e.shape) for e in done.expansions] == [
        ("t", "t", ("i",), ("N",)),
        ("t", "t_2", ("i",), ("N",)),
        ("t", "t_3", ("i",), ("N",)),
    ]
    assert "it shares nothing with t but the name" in str(done)
    assert not false_pairs(done.nest, "t", "t_2", "t_3")
    rng = np.random.default_rng(1)
    arrays = {"a": rng.random(6), "b": rng.random(6)}
    assert_close(pf.interpret(done.nest, arrays), by_python(two_lives, arrays), 0.0)


def test_statements_of_other_tensors_are_the_same_ones() -> None:
    done = expand(two_lives)
    moved = [s.name for s in done.nest.statements if s is not two_lives.statement(s.name)]
    assert moved == [s.name for s in two_lives.statements if "t" in s.tensors]
    only_here = expand(carried, only=["here"]).nest
    assert any(s is carried.statement(s.name) for s in only_here.statements if "here" not in s.tensors)


def test_a_value_that_a_loop_carries_stays() -> None:
    done = expand(carried)
    assert [str(e) for e in done.expansions] == [
        "last stays as it is: no loop is around all its uses",
        "here becomes here[N]: its values live within one iteration of i",
    ]
    arrays = {"x": np.random.default_rng(2).random(6)}
    assert_close(pf.interpret(done.nest, arrays), by_python(carried, arrays), 0.0)
    assert expand(carried, only=["last"]).nest is carried


@pytest.mark.parametrize("name", WITH_VARIABLES)
def test_flow_and_values_stay_and_false_dependences_go(name: str) -> None:
    kernel = KERNELS[name]
    done = expand(kernel.nest)
    before, after = kernel.nest.dependences(), done.nest.dependences()
    assert after.flow.is_equal(before.flow)
    assert after.reduction.is_equal(before.reduction)
    assert after.anti.union(after.output).is_subset(before.anti.union(before.output))
    grown = [e.into for e in done.expansions if e.loops]
    assert grown
    assert not false_pairs(done.nest, *grown) or name == "deriche"
    arrays = kernel.inputs(kernel.mini, np.random.default_rng(3))
    expected = by_python(kernel.nest, arrays)
    assert_close(pf.interpret(done.nest, arrays), expected)
    assert_close(by_source(done.nest, arrays, kernel.mini), expected)


@pytest.mark.parametrize("name", ["gemm", "adi", "jacobi-2d"])
def test_a_nest_without_such_variables_is_the_same_nest(name: str) -> None:
    done = expand(KERNELS[name].nest)
    assert done.nest is KERNELS[name].nest
    assert str(done) == "no temporary is written more than once"


def test_expansion_at_sizes_where_loops_are_empty() -> None:
    kernel = KERNELS["ludcmp"]
    net = pf.compile(expand(kernel.nest).nest, target="cpu", schedule=pf.Schedule(expand(kernel.nest).nest))
    for n in (1, 2, 5):
        arrays: dict[str, Any] = kernel.inputs({"N": n}, np.random.default_rng(n))
        assert_close(called(net, arrays), by_python(kernel.nest, arrays))


def test_a_value_that_one_reader_takes_to_the_next_iteration_is_not_expanded() -> None:
    @pf.nest
    def carried(x: f64[N], y: f64[N], z: f64[N]):
        t = np.empty(1)
        for i in range(N):
            if i >= 1:
                y[i] = t[0] + 1.0
            t[0] = x[i]
            z[i] = t[0] * 2.0

    expanded = expand(carried)
    assert [str(each.why) for each in expanded.expansions] == ["loop i carries its value from S1 to S0"]
    assert expanded.nest.tensor("t").shape == (1,)

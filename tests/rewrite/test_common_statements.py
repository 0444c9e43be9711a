"""Equal temporaries computed once: values bit by bit, sums, chains, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.errors import IllegalRewrite
from polyfuse.rewrite import share, why_not_share
from tests.frontend.python.running import assert_close, by_python, by_source

# ruff: noqa: F821


@pf.nest
def twice(x: f64[N], y: f64[N], z: f64[N]):
    t = np.empty(N)
    u = np.empty(N)
    for i in range(N):
        t[i] = x[i] * x[i] + i
    for i in range(N):
        y[i] = t[i] + 1.0
    for i in range(N):
        u[i] = x[i] * x[i] + i
    for i in range(N - 1):
        z[i] = u[i + 1] - u[i]


@pf.nest
def with_a_write_between(x: f64[N], y: f64[N]):
    t = np.empty(N)
    u = np.empty(N)
    for i in range(N):
        t[i] = 2.0 * x[i]
    for i in range(3, N):
        x[i] = t[i] + 1.0
    for i in range(N):
        u[i] = 2.0 * x[i]
    for i in range(N):
        y[i] = u[i] - t[i]


@pf.nest
def of_other_domains(x: f64[N], y: f64[N]):
    t = np.zeros(N)
    u = np.zeros(N)
    for i in range(N):
        t[i] = 2.0 * x[i]
    for i in range(1, N):
        u[i] = 2.0 * x[i]
    for i in range(N):
        y[i] = u[i] - t[i]


@pf.nest
def of_other_places(x: f64[N], y: f64[N]):
    t = np.empty(N)
    u = np.empty(N)
    for i in range(N):
        t[i] = 2.0 * x[i]
    for i in range(N):
        u[i] = 2.0 * x[N - 1 - i]
    for i in range(N):
        y[i] = u[i] - t[i]


@pf.nest
def into_a_result(x: f64[N], y: f64[N], z: f64[N]):
    t = np.empty(N)
    for i in range(N):
        t[i] = 2.0 * x[i]
    for i in range(N):
        y[i] = 2.0 * x[i]
    for i in range(N):
        z[i] = y[i] - t[i]


@pf.nest
def read_a_step_later(x: f64[T, N], y: f64[T, N], z: f64[T, N]):
    t = np.zeros(N)
    u = np.zeros(N)
    for k in range(T):
        for i in range(N):
            t[i] = 2.0 * x[k, i]
        for i in range(N):
            y[k, i] = t[i]
        for i in range(N):
            z[k, i] = u[i]
        for i in range(N):
            u[i] = 2.0 * x[k, i]


@pf.nest
def sums(x: f64[N, M], y: f64[N], z: f64[N]):
    t = np.zeros(N)
    for i in range(N):
        for j in range(M):
            t[i] += x[i, j] * x[i, j]
    for i in range(N):
        y[i] = t[i] + 1.0
    u = np.zeros(N)
    for i in range(N):
        for j in range(M):
            u[i] += x[i, j] * x[i, j]
    for i in range(N):
        z[i] = np.sqrt(u[i])


@pf.nest
def chained(x: f64[N], y: f64[N], z: f64[N]):
    t = np.empty(N)
    t_2 = np.empty(N)
    u = np.empty(N)
    u_2 = np.empty(N)
    for i in range(N):
        t[i] = np.exp(x[i])
    for i in range(N):
        t_2[i] = t[i] / 3.0
    for i in range(N):
        y[i] = t_2[i] + 1.0
    for i in range(N):
        u[i] = np.exp(x[i])
    for i in range(N):
        u_2[i] = u[i] / 3.0
    for i in range(N):
        z[i] = u_2[i] * u[i]


def drawn(nest: pf.Nest, sizes: dict[str, int]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    shapes = {
        t.name: tuple(sizes.get(str(n), n) for n in t.shape) for t in nest.tensors if t.role != "temporary"
    }
    return {name: rng.random(shape) for name, shape in shapes.items()}


def assert_same(nest: pf.Nest, made: pf.Nest, sizes: dict[str, int]) -> None:
    """Bit by bit in the interpreter, and as machine code."""
    arrays = drawn(nest, sizes)
    expected = by_python(nest, arrays)
    assert_close(pf.interpret(made, arrays), expected, 0.0)
    assert_close(by_source(made, arrays, sizes), expected, 1e-14)


def test_readers_of_a_second_temporary_read_the_first() -> None:
    done = share(twice, "t", "u")
    assert str(done) == "t is read in place of u, which S2 would compute again"
    assert [s.name for s in done.nest.statements] == ["S0", "S1", "S3"]
    assert "u" not in [t.name for t in done.nest.tensors]
    assert "z[i] = t[1 + i] - t[i]" in str(done.nest)
    assert_same(twice, done.nest, {"N": 7})


def test_sums_with_their_first_values_are_equal() -> None:
    done = share(sums, "t", "u")
    assert len(done.statements) == 2
    assert_same(sums, done.nest, {"N": 4, "M": 5})


def test_what_reads_equal_values_becomes_equal() -> None:
    assert "compute different values" in str(why_not_share(chained, "t_2", "u_2"))
    first = share(chained, "t", "u").nest
    done = share(first, "t_2", "u_2").nest
    assert len(done.statements) == 4
    assert_same(chained, done, {"N": 6})


@pytest.mark.parametrize(
    ("nest", "kept", "removed", "why"),
    [
        (with_a_write_between, "t", "u", "S2 reads other values of x than S0"),
        (of_other_domains, "t", "u", "compute different values"),
        (of_other_places, "t", "u", "compute different values"),
        (into_a_result, "t", "y", "y is visible to the caller (inout)"),
        (read_a_step_later, "t", "u", "would not read in t what it reads in u"),
        (twice, "t", "t", "differ, or are one"),
    ],
)
def test_refusals(nest, kept, removed, why) -> None:
    refusal = why_not_share(nest, kept, removed)
    assert why in str(refusal)
    with pytest.raises(IllegalRewrite):
        share(nest, kept, removed)


def test_a_write_in_between_is_shown_by_its_instances() -> None:
    refusal = why_not_share(with_a_write_between, "t", "u")
    assert [i.statement for i in refusal.instances] == ["S1", "S2"]

"""What a Python function may contain, and that its nest means what Python means."""

from __future__ import annotations

import math
import pickle
from math import exp, sqrt
from typing import Any

import islpy as isl
import numpy as np
import pytest

import polyfuse as pf
from polyfuse.ir import Nest, Tensor, statement
from polyfuse.ir.number_types import DType
from polyfuse.ir.tree import loops
from tests.frontend.python.running import assert_close, by_python, by_source, called, copies, defined

# ruff: noqa: F821
HALF = 0.5
OFFSET = 2


def agree(nest: Any, arrays: dict[str, Any], sizes: dict[str, int], relative: float = 1e-12) -> None:
    """Oracle, emitted source and Python leave the same."""
    expected = by_python(nest, arrays)
    assert_close(pf.interpret(nest, arrays), expected, relative)
    assert_close(by_source(nest, arrays, sizes), expected, relative)


@pf.nest
def trmm(alpha: f64, A: f64[M, M], B: f64[M, N]):
    for i in range(M):
        for j in range(N):
            for k in range(i + 1, M):
                B[i, j] += A[k, i] * B[k, j]
            B[i, j] = alpha * B[i, j]


def test_the_example_of_the_design() -> None:
    rng = np.random.default_rng(0)
    A, B = rng.random((6, 6)), rng.random((6, 7))
    expected = 1.5 * (np.tril(A, -1) + np.eye(6)).T @ B
    mine = B.copy()
    assert trmm.python(1.5, A, mine) is None
    assert np.allclose(mine, expected)
    compiled = B.copy()
    assert pf.compile(trmm, target="cpu", schedule=pf.Schedule(trmm))(1.5, A, compiled) is None
    assert np.allclose(compiled, expected)
    assert [(t.name, t.role, t.shape) for t in trmm.tensors] == [
        ("alpha", "input", ()),
        ("A", "input", ("M", "M")),
        ("B", "inout", ("M", "N")),
    ]
    assert [s.op for s in trmm.statements] == ["+=", "="]
    assert trmm.python.__wrapped__.__name__ == "trmm"


def test_a_nest_is_not_called_but_compiled() -> None:
    with pytest.raises(pf.BadArgument, match=r"pf.compile\(trmm\)\(…\) runs it, trmm.python\(…\)"):
        trmm(1.5, np.ones((2, 2)), np.ones((2, 2)))
    with pytest.raises(pf.BadArgument, match="reads a Python function"):
        pf.nest(3)  # type: ignore[arg-type]


def test_a_nest_of_python_can_be_pickled_and_compared() -> None:
    again = pickle.loads(pickle.dumps(trmm))
    assert str(again) == str(trmm)
    assert again.python is None


@pf.nest
def steps(x: f64[N], y: f64[N]):
    for i in range(N - 1, -1, -2):
        x[i] = x[i] + i
    for i in range(1, N, 3):
        for j in range(max(0, i - 2), min(N, i + 2)):
            y[i] += x[j] * (i - j)
    for i in range(N, 0, -3):
        for j in range(i, N, 2):
            y[j] = y[j] + HALF * x[i - 1]


@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_steps_of_either_sign_and_bounds_of_min_and_max(n: int) -> None:
    rng = np.random.default_rng(n)
    agree(steps, {"x": rng.random(n), "y": rng.random(n)}, {"N": n})


def test_dates_grow_as_the_loop_runs() -> None:
    expected = {
        "S0": "[N] -> { S0[i] -> [(floor((N - 1 - i)/2))] }",
        "S1": "[N] -> { S1[i, j] -> [(floor((i - 1)/3))] }",
        "S2": "[N] -> { S2[i, j] -> [(floor((N - i)/3))] }",
    }
    outer = [loop for loop in loops(steps.order) if loop.name == "i"]
    assert [loop.dates[0][0] for loop in outer] == list(expected)
    for loop in outer:
        ((name, date),) = loop.dates
        assert (
            date.intersect_domain(steps.domains[name])
            .as_map()
            .is_equal(isl.PwAff(expected[name]).intersect_domain(steps.domains[name]).as_map())
        )


@pf.nest
def branches(a: f64[N, N], b: f64[N, N]):
    for i in range(N):
        for j in range(len(a)):
            if i == j or ((i + 2 * j) % 3 == 1 and not j > 4):
                a[i, j] = b[j][i]
            elif 0 <= i - j < 3:
                a[i, j] = -b[i, j]
            else:
                a[i][j] = a[i, j] + b[i // 2, min(j + OFFSET, a.shape[0] - 1)]
            if i != j:
                b[i, j] = a[i // 2, j]


def test_conditions_divide_the_instances() -> None:
    rng = np.random.default_rng(1)
    for n in (1, 4, 7):
        agree(branches, {"a": rng.random((n, n)), "b": rng.random((n, n))}, {"N": n})


@pf.nest
def values(k: f64, n: i64, x: f64[N], y: f64[N]):
    for i in range(N):
        t = x[i] if (x[i] > HALF and y[i] <= x[i]) or not i < n else -x[i]
        t = max(t, y[i], 0.25) + min(t, 1.0)
        y[i] = sqrt(abs(t)) + exp(-t) * math.log(1.0 + t * t) - np.tanh(k) ** 2 + math.pow(2.0, t)
        y[i] = y[i] + np.sin(t) / np.cos(x[i]) + math.pi * i / N - np.where(0.2 < t < 0.9, t, +k)


def test_functions_and_conditional_values() -> None:
    rng = np.random.default_rng(2)
    for n in (1, 8):
        agree(values, {"k": 0.3, "n": 5, "x": rng.random(n), "y": rng.random(n)}, {"N": n, "n": 5}, 1e-11)


@pf.nest
def reductions(x: f64[N, N], s: f64[N], p: f64[N], m: f64[N], q: f64[N], z: f64[N]):
    for i in range(N):
        for j in range(N):
            s[i] = x[i, j] + s[i]
            p[i] *= x[i, j]
            m[i] = max(m[i], x[j, i])
            q[i] -= x[i, j]
            z[i] = z[i] + z[j]
            z[j] += 1.0
    for i in range(N):
        s[i] += 1.0


def test_reductions_are_recognised_where_they_are_ones() -> None:
    # z[i] = z[i] + z[j] reads the element that it writes (i = j); z[j] += 1.0 does not;
    # s[i] += 1.0 happens once, but not alone
    assert [s.op for s in reductions.statements] == ["+=", "*=", "max=", "+=", "=", "+=", "+="]
    rng = np.random.default_rng(3)
    agree(reductions, {t.name: rng.random((5,) * t.rank) for t in reductions.inputs}, {"N": 5})


@pf.nest
def variables(c: f32, x: f32[N], k: i32[N], out: f64[N]):
    total = 0.0
    count = 0
    for i in range(N):
        total += x[i] * c
        if i % 2 == 0:
            count += k[i]
        mean: f64 = total / (i + 1)
        c = c + 1.0
        out[i] = mean + count


def test_local_variables_have_the_types_that_numpy_gives_them() -> None:
    types = {t.name: t.dtype for t in variables.with_role("temporary")}
    assert types == {"total": "float32", "count": "int32", "mean": "float64", "c_local": "float32"}


def test_a_parameter_that_is_assigned_stays_the_callers() -> None:
    arrays = {
        "c": np.float32(0.5),
        "x": np.arange(5, dtype=np.float32),
        "k": np.arange(5, dtype=np.int32),
        "out": np.zeros(5),
    }
    agree(variables, arrays, {"N": 5}, 1e-6)


@pf.nest
def integers(flag: i64, a: i64[N], b: i32[N], h: f64[N // 2, 2 * N + 1]):
    best = a[0]
    for i in range(1, N):
        best = max(best, a[i] * 3 - b[i])
        a[i] = best if best > flag else abs(a[i]) + i
    for i in range(N // 2):
        for j in range(2 * N + 1):
            h[i, j] = h[i, j] + (i - j) * b[i] / 4


@pytest.mark.parametrize("target", ["python", "cpu", "lockstep"])
def test_integers_on_every_target(target: str) -> None:
    rng = np.random.default_rng(5)
    for n in (2, 7):
        arrays = {
            "flag": 3,
            "a": rng.integers(-(2**40), 2**40, n),
            "b": rng.integers(-9, 9, n).astype(np.int32),
            "h": rng.random((n // 2, 2 * n + 1)),
        }
        if target == "python":
            agree(integers, arrays, {"N": n, "flag": 3})
            continue
        where = (
            {"target": "cpu"}
            if target == "cpu"
            else {"target": "cuda", "machine": "h200", "device": "lockstep"}
        )
        net = pf.compile(integers, schedule=pf.Schedule(integers), **where)  # type: ignore[arg-type]
        expected = by_python(integers, arrays)
        found = called(net, arrays)
        assert (found["a"] == expected["a"]).all()
        assert_close(found, expected)


def test_numbers_outside_are_read_when_the_function_is_read() -> None:
    def made(factor: float) -> Any:
        @pf.nest
        def scale(x: f64[N]):
            for i in range(N):
                x[i] = factor * x[i]

        return scale

    two, three = made(2.0), made(3.0)
    for nest, factor in ((two, 2.0), (three, 3.0)):
        assert (pf.interpret(nest, [np.ones(3)])["x"] == factor).all()
        x = np.ones(3)
        nest.python(x)
        assert (x == factor).all()


def test_a_global_of_a_sizes_name_is_not_that_size() -> None:
    nest = defined('@pf.nest\ndef f(x: "f64[N]"):\n    for i in range(N):\n        x[i] = N', N=100)
    assert (pf.interpret(nest, [np.zeros(3)])["x"] == 3).all()
    x = np.zeros(4)
    nest.python(x)
    assert (x == 4).all()


def test_a_variable_around_the_function_of_a_sizes_name_is_not_that_size() -> None:
    N = 100

    @pf.nest
    def count(x: f64[N]):
        for i in range(N):
            x[i] = N

    assert (pf.interpret(count, [np.zeros(3)])["x"] == 3).all()
    x = np.zeros(4)
    count.python(x)
    assert (x == 4).all()
    assert N == 100


def test_statements_that_never_run_are_left_out() -> None:
    nest = defined(
        '@pf.nest\ndef f(x: "f64[N]"):\n    for i in range(N):\n        if i < 0:\n            x[i] = 1.0\n'
        "        else:\n            x[i] = 2.0"
    )
    assert len(nest.statements) == 1
    with pytest.raises(pf.InvalidNest, match="f computes nothing"):
        defined('@pf.nest\ndef f(x: "f64[N]"):\n    for i in range(0):\n        x[i] = 1.0')


def test_arrays_are_not_copied_when_python_runs() -> None:
    arrays = {"x": np.ones((2, 2)), **{name: np.ones(2) for name in "spmqz"}}
    before = copies(arrays)
    by_python(reductions, arrays)
    assert all((arrays[name] == before[name]).all() for name in arrays)


@pf.nest
def powers(x: i64[N], y: i64[N]):
    for i in range(N):
        y[i] = 2 ** x[i]


@pytest.mark.parametrize("n", [1, 5, 70])
def test_powers_of_integers_in_lock_step_where_threads_are_idle(n: int) -> None:
    x, y = np.arange(n) % 60, np.zeros(n, np.int64)
    pf.compile(powers, target="cuda", machine="h200", device="lockstep")(x, y)
    assert (y == 2**x).all()


@pytest.mark.parametrize(
    "dtypes", [("int64", "int64"), ("int32", "int64"), ("int8", "int8"), ("int16", "uint8")]
)
def test_a_negative_power_of_an_integer_is_a_whole_number(dtypes: tuple[DType, DType]) -> None:
    tensors = (
        Tensor("x", (6, 8), dtypes[0], "input"),
        Tensor("e", (6, 8), dtypes[1], "input"),
        Tensor("y", (6, 8), "int64", "output"),
        Tensor("z", (6, 8), "float64", "output"),
    )
    nest = Nest.of(
        tensors,
        [
            statement(
                f"{{ S{name}[i, j] : 0 <= i < 6 and 0 <= j < 8 }}", f"{name}[i, j] = x[i, j] ** e[i, j]"
            )
            for name in "yz"
        ],
    )
    x, e = np.meshgrid([-2, -1, 0, 1, 2, 3], [-70, -3, -2, -1, 0, 1, 2, 3], indexing="ij")
    if dtypes[1] == "uint8":
        expected = x ** (e := np.abs(e) % 5)
    else:  # the whole part, as torch.pow has it
        expected = np.where(e < 0, np.trunc(np.where(x == 0, 9, x) ** e.astype(float)), x ** np.maximum(e, 0))
    for name, found in pf.interpret(nest, {"x": x.astype(dtypes[0]), "e": e.astype(dtypes[1])}).items():
        np.testing.assert_array_equal(found, expected, name)
    places: Any = ({"target": "cpu"}, {"target": "cuda", "machine": "h200", "device": "lockstep"})
    for place in places:
        for found in pf.compile(nest, **place)(x.astype(dtypes[0]), e.astype(dtypes[1])):
            np.testing.assert_array_equal(found, expected, str(place))

"""Calls of compiled loops: arrays that alias, arrays that cannot be written, numbers that are none of the type."""

from __future__ import annotations

import pickle
from contextlib import nullcontext
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

import polyfuse as pf
from polyfuse.runtime.arguments import check_elements_apart
from polyfuse.runtime.cuda.device_arrays import DeviceArray, check_overlaps
from tests.frontend.python.running import defined

# ruff: noqa: F821


@pf.nest
def add(k: i64, out: f64[N], x: f64[N], y: f64[N]):
    for i in range(1, N):
        out[i] = x[i - 1] + k * y[i]


@pytest.fixture(scope="module")
def net() -> pf.Executable:
    return pf.compile(add, target="cpu", schedule=pf.Schedule(add))


def test_arrays_that_are_only_read_may_be_one(net: pf.Executable) -> None:
    x, out = np.arange(4.0), np.zeros(4)
    assert net(2, out, x, x) is None
    assert (out == [0, 2, 5, 8]).all()
    assert net(k=2, out=out, x=x, y=x + 1) is None
    assert (out == [0, 4, 7, 10]).all()


@pf.nest
def shifted(x: f64[M, N]):
    for i in range(1, M):
        for j in range(N):
            x[i, j] += x[i - 1, j]


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_an_array_that_overlaps_itself_is_refused_where_it_is_written(target: pf.Target) -> None:
    """A copy would lose what one element writes and another reads."""
    run = pf.compile(shifted, target=target, **({"device": "lockstep"} if target == "cuda" else {}))
    flat = np.arange(20.0)
    for strides in ((8, 8), (16, 8), (0, 8), (4, 64), (-8, 8)):
        with pytest.raises(pf.BadArgument, match="x is changed in place, and two elements of the array"):
            run(as_strided(flat[4:], (3, 4), strides))
    turned = np.arange(12.0).reshape(4, 3).T
    expected = np.cumsum(turned, 0)
    run(turned)
    np.testing.assert_array_equal(turned, expected)


@hypothesis.given(st.lists(st.tuples(st.integers(-40, 40), st.integers(0, 4)), min_size=1, max_size=3))
def test_overlaps_are_those_of_the_addresses(axes: list[tuple[int, int]]) -> None:
    steps, shape = zip(*axes, strict=True)
    data = as_strided(np.zeros(1000, np.int8)[500:508].view(np.float64), shape, steps)
    touched = [np.dot(steps, place) + byte for place in np.ndindex(*shape) for byte in range(8)]
    overlaps = len(set(touched)) < len(touched)
    with pytest.raises(pf.BadArgument) if overlaps else nullcontext():
        check_elements_apart("x", data)


def test_an_array_given_twice_is_refused_where_it_is_written(net: pf.Executable) -> None:
    x, wide = np.arange(4.0), np.zeros(8)
    with pytest.raises(pf.BadArgument, match="out and x share memory, and out is changed in place"):
        net(2, x, x, np.ones(4))
    with pytest.raises(pf.BadArgument, match="out and x share memory"):
        net(2, wide[1:5], wide[3:7], x)
    with pytest.raises(pf.BadArgument, match="out and x share memory"):
        net(2, wide[:4], wide[::2], x)
    net(2, wide[1::2], wide[::2], x)  # they interleave and share no element
    wide[:] = 0
    net(2, wide[:4], wide[4:], x)
    assert (wide[1:4] == 2 * x[1:]).all()


@pf.nest
def combined(k: f64, y: f64[N, M], x: f64[N, M], z: f64[N, M]):
    for i in range(N):
        for j in range(M):
            z[i, j] = y[i, j]
    for i in range(1, N):
        for j in range(M):
            y[i, j] = k * x[i, j] + x[i, j] * z[i - 1, j]


@pf.nest
def turned(y: f64[N, M], x: f64[N, M]):
    for i in range(N):
        for j in range(M):
            y[i, j] = x[i, M - 1 - j]


@pytest.mark.parametrize("device", ["cpu", "lockstep"])
def test_an_array_given_twice_is_legal_where_no_two_instances_meet(device: Any) -> None:
    target: Any = "cpu" if device == "cpu" else "cuda"
    net = pf.compile(combined, target=target, device=None if device == "cpu" else device)
    for ours in (rows(40, 5), rows(40, 10)[:, ::2]):
        theirs, z = ours.copy(), np.zeros((40, 5))
        net(3.0, ours, ours, z)
        combined.python(3.0, theirs, theirs, np.zeros((40, 5)))
        assert np.allclose(ours, theirs, rtol=1e-14)


def rows(count: int, width: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(count).standard_normal((count, width))


def test_an_array_given_twice_is_refused_with_the_two_instances_that_meet() -> None:
    net, x = pf.compile(turned, target="cpu"), rows(4, 4)
    before = x.copy()
    with pytest.raises(pf.BadArgument, match=r"S0\[0, 0\] writes through y what S0\[0, 3\] reads through x"):
        net(x, x)
    assert (x == before).all()
    net(x[:, :1], x[:, :1])  # rows of one element, which S0[i, 0] reads and writes
    assert (x == before).all()
    with pytest.raises(pf.BadArgument, match=r"y and z share memory.*so is z"):
        pf.compile(combined, target="cpu")(1.0, x, rows(4, 4), x)


def test_strided_arrays_are_changed_in_place(net: pf.Executable) -> None:
    wide = np.zeros(8)
    net(1, wide[1::2], np.ones(4), np.arange(4.0))
    assert (wide == [0, 0, 0, 2, 0, 3, 0, 4]).all()


def test_an_array_that_cannot_be_written(net: pf.Executable) -> None:
    fixed = np.zeros(4)
    fixed.flags.writeable = False
    with pytest.raises(
        pf.BadArgument, match="out is changed in place, and the array given for it is read-only"
    ):
        net(2, fixed, np.ones(4), np.ones(4))


@pytest.mark.parametrize(("k", "why"), [(2.5, "expected an integer"), (2**70, "does not fit int64")])
def test_a_number_of_another_type(net: pf.Executable, k: Any, why: str) -> None:
    with pytest.raises(pf.BadArgument, match=f"k: .*{why}"):
        net(k, np.zeros(4), np.ones(4), np.ones(4))


def test_sizes_that_are_fixed_in_part() -> None:
    kernel = pf.einsum("ik,kj->ij")
    fixed = kernel.with_sizes({"Ni": 3})
    assert [t.shape for t in fixed.tensors] == [(3, "Nk"), ("Nk", "Nj"), (3, "Nj")]
    rng = np.random.default_rng(0)
    A, B = rng.random((3, 4)), rng.random((4, 2))
    assert np.allclose(pf.interpret(fixed, [A, B])["out"], A @ B)
    with pytest.raises(pf.BadArgument, match="has no size Z; its sizes are"):
        kernel.with_sizes({"Z": 3})
    with pytest.raises(pf.BadArgument, match="outside of what the nest allows"):
        kernel.with_sizes({"Ni": 0})


@pf.nest
def scaled(x: f64[N], y: f64[M], factor: f64 = 2.0, n: i64 = 3):
    for i in range(n):
        x[i] = factor * y[i + 1]


def test_parameters_with_defaults_can_be_left_out() -> None:
    net = pf.compile(scaled, target="cpu", schedule=pf.Schedule(scaled))
    y = np.arange(5.0)
    for given, named in (
        ((), {}),
        ((3.0,), {}),
        ((), {"n": 2}),
        ((0.5, 1), {}),
        ((), {"n": 1, "factor": 4.0}),
    ):
        expected, found = np.zeros(4), np.zeros(4)
        scaled.python(expected, y, *given, **named)
        net(found, y, *given, **named)
        assert (found == expected).all()
    assert (pf.interpret(scaled, {"x": np.zeros(4), "y": y})["x"] == [2, 4, 6, 0]).all()
    assert pickle.loads(pickle.dumps(scaled)).defaults == {"factor": 2.0, "n": 3}


def test_the_assumption_that_sizes_break_is_named() -> None:
    net = pf.compile(scaled, target="cpu", schedule=pf.Schedule(scaled))
    with pytest.raises(pf.BadArgument, match=r"what the nest allows: n <= N does not hold; its context is"):
        net(np.zeros(2), np.zeros(9))
    with pytest.raises(pf.BadArgument, match=r"what the nest allows: (n < M|M > n) does not hold"):
        net(np.zeros(9), np.zeros(3))
    with pytest.raises(pf.BadArgument, match=r"what the nest allows: .* does not hold"):
        pf.interpret(scaled, [np.zeros(2), np.zeros(9), 1.0, 3])
    with pytest.raises(pf.BadArgument, match=r"what the nest allows: n >= 0 does not hold"):
        scaled.with_sizes({"n": -1})


@pf.nest
def some(n: i64, x: f64[N]):
    for i in range(min(2 * n, N)):
        x[i] += 1.0


def test_a_size_that_index_arithmetic_could_not_hold() -> None:
    # 2 * n wraps around in 64 bits: the loop would silently not run
    net = pf.compile(some, target="cpu", schedule=pf.Schedule(some))
    with pytest.raises(pf.BadArgument, match=r"the size n is 4611686018427387904, beyond 2\*\*40"):
        net(2**62, np.zeros(3))
    x = np.zeros(3)
    net(2**40, x)
    assert (x == 1).all()


def test_an_integer_of_32_bits_is_a_size_of_64() -> None:
    @pf.nest
    def last(n: i32, x: f64[N], y: f64[1]):
        for i in range(n):
            if 100000 * i <= 100000 * n - 100000:
                y[0] += x[100000 * i - 99999 * i]

    net = pf.compile(last, target="cpu", schedule=pf.Schedule(last))
    x, y = np.ones(30000), np.zeros(1)  # 100000 * 30000 is beyond 32 bits
    net(np.int32(30000), x, y)
    assert y[0] == 30000


@pytest.mark.parametrize("kind", ["i32", "i64"])
@pytest.mark.parametrize("k", [-3, -1, 2])
def test_an_integer_in_a_subscript_may_be_negative(kind: str, k: int) -> None:
    nest = defined(
        f"""
@pf.nest
def moved(k: "{kind}", x: "f64[N]", y: "f64[N]"):
    for i in range(N):
        if 0 <= i + k < N:
            y[i] = x[i + k]
"""
    )
    net, x, y = pf.compile(nest, target="cpu", schedule=pf.Schedule(nest)), np.arange(1.0, 6), np.zeros(5)
    for given in (k, np.dtype(nest.tensor("k").dtype).type(k)):
        net(given, x, y)
        assert y.tolist() == [x[i + k] if 0 <= i + k < 5 else 0 for i in range(5)]


@pf.nest
def beyond(k: i64, x: f32[N], y: f32[1]):
    for i in range(2):
        y[0] += x[k + i]


def test_elements_beyond_two_to_the_31(tmp_path: Any) -> None:
    count = 2**31 + 8
    x = np.memmap(
        tmp_path / "x", np.float32, "w+", shape=(count,)
    )  # a sparse file: no memory but what is touched
    x[-3:] = [1.0, 2.0, 4.0]
    y = np.zeros(1, np.float32)
    pf.compile(beyond, target="cpu", schedule=pf.Schedule(beyond))(count - 2, x, y)
    assert y[0] == 6.0
    assert pf.interpret(beyond, [count - 3, x, np.zeros(1, np.float32)])["y"][0] == 3.0


def test_factors_and_numbers_that_could_leave_64_bits() -> None:
    build = pf.NestBuilder("far", context="[N] -> { : N >= 1 }").tensor("x", ("N",), role="inout")
    with pytest.raises(pf.InvalidNest, match=r"3000000 in .* is too large: factors go up to 2\*\*20"):
        build.statement("far", "[N] -> { [i] : 0 <= i and 3000000i < N }", "x[i]", "1.0").nest()
    for condition in ("i < 99999999999999999999", "i + 2000000000000 < N"):
        with pytest.raises(pf.InvalidNest, match=r"numbers up to 2\*\*40"):
            defined(
                f"@pf.nest\ndef f(x: 'f64[N]'):\n    for i in range(N):\n        if {condition} or i == 3:\n"
                "            x[i] = 1.0"
            )


def test_arrays_on_a_gpu_that_overlap() -> None:
    def at(start: int, count: int = 4) -> DeviceArray:
        return DeviceArray(start, (count,), 8 * count, None)

    apart = {"k": DeviceArray(8, (), 8, None), "out": at(64), "x": at(0), "y": at(96)}
    check_overlaps(add, apart, {"N": 4})
    check_overlaps(add, {**apart, "x": at(96)}, {"N": 4})
    check_overlaps(add, {**apart, "y": at(64)}, {"N": 4})
    with pytest.raises(pf.BadArgument, match="out and y share memory"):
        check_overlaps(add, {**apart, "y": at(88)}, {"N": 4})
    with pytest.raises(pf.BadArgument, match="out and x share memory"):
        check_overlaps(add, {**apart, "x": at(64)}, {"N": 4})


def test_a_call_that_leaves_a_default_out_is_known_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    @pf.nest
    def scaled(x: f64[N], y: f64[N], by: f64 = 3.0):
        for i in range(N):
            y[i] = by * x[i]

    run = pf.compile(scaled, target="cpu", schedule=pf.Schedule(scaled))
    x, y = np.arange(4.0), np.zeros(4)
    run(x, y)
    monkeypatch.setattr(run, "_adapted", None)  # a known call matches no arguments
    for call in (lambda: run(x, y), lambda: run(x, y=y)):
        y[:] = 0
        call()
        assert (y == 3 * x).all()

"""Calls of compiled loops: arrays that alias, arrays that cannot be written, numbers that are none of the type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.runtime.device_arrays import DeviceArray, check_overlaps

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


def test_an_array_given_twice_is_refused_where_it_is_written(net: pf.Executable) -> None:
    x, wide = np.arange(4.0), np.zeros(8)
    with pytest.raises(pf.BadArgument, match="out and y share memory, and out is changed in place"):
        net(2, x, np.ones(4), x)
    with pytest.raises(pf.BadArgument, match="out and x share memory"):
        net(2, wide[1:5], wide[3:7], x)
    with pytest.raises(pf.BadArgument, match="out and x share memory"):
        net(2, wide[:4], wide[::2], x)
    net(2, wide[1::2], wide[::2], x)  # they interleave and share no element
    wide[:] = 0
    net(2, wide[:4], wide[4:], x)
    assert (wide[1:4] == 2 * x[1:]).all()


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


@pytest.mark.parametrize(("k", "why"), [(2.5, "expected an integer"), (2**70, "is no int64")])
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
    with pytest.raises(pf.BadArgument, match="has no size Z; it has"):
        kernel.with_sizes({"Z": 3})
    with pytest.raises(pf.BadArgument, match="outside of what the nest allows"):
        kernel.with_sizes({"Ni": 0})


def test_arrays_on_a_gpu_that_overlap() -> None:
    def at(start: int, count: int = 4) -> DeviceArray:
        return DeviceArray(start, (count,), None)

    apart = {"k": DeviceArray(8, (), None), "out": at(64), "x": at(0), "y": at(96)}
    check_overlaps(add, apart)
    check_overlaps(add, {**apart, "x": at(96)})
    with pytest.raises(pf.BadArgument, match="out and y share memory"):
        check_overlaps(add, {**apart, "y": at(88)})

"""Variance, norms and the logarithm of a sum of exponentials against NumPy, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import polyfuse as pf
from polyfuse import nn
from polyfuse.errors import BadArgument
from polyfuse.ir import DType
from polyfuse.rewrite import online, split_reduction
from tests.support.examples import examples

Array = np.ndarray[Any, Any]
SOME = st.one_of(st.floats(-50, 50), st.sampled_from([-np.inf, -np.inf, np.inf, np.nan]))
X = np.random.default_rng(0).standard_normal((4, 7, 5))


def of(value: Callable[[nn.Value], nn.Value], data: Array = X) -> Array:
    nest = nn.lower(value(nn.input("x", data.shape, "float64")))
    oracle = pf.interpret(nest, {"x": data})["out"]
    assert np.allclose(pf.compile(nest, target="cpu")(data), oracle, rtol=1e-12)
    return oracle


@pytest.mark.parametrize("axis", [None, 0, (1, 2), -1])
@pytest.mark.parametrize("keepdims", [False, True])
def test_as_in_numpy(axis: int | tuple[int, ...] | None, keepdims: bool) -> None:
    def same(value: Callable[[nn.Value], nn.Value], expected: Array) -> None:
        found = of(value)
        assert found.shape == np.shape(expected)
        assert np.allclose(found, expected, rtol=1e-12)

    same(lambda x: nn.var(x, axis, keepdims=keepdims), np.var(X, axis, keepdims=keepdims))
    same(lambda x: nn.std(x, axis, 1, keepdims), np.std(X, axis, ddof=1, keepdims=keepdims))
    same(lambda x: nn.norm(x, axis, keepdims=keepdims), np.sqrt(np.sum(X * X, axis, keepdims=keepdims)))
    same(lambda x: nn.norm(x, axis, 1, keepdims), np.sum(np.abs(X), axis, keepdims=keepdims))
    same(lambda x: nn.norm(x, axis, math.inf, keepdims), np.max(np.abs(X), axis, keepdims=keepdims))
    same(lambda x: nn.logsumexp(x, axis, keepdims), np.log(np.sum(np.exp(X), axis, keepdims=keepdims)))


def test_nothing_overflows_or_cancels() -> None:
    large = np.full((3, 5), 1e4) + np.arange(5) / 8
    assert np.allclose(
        of(lambda x: nn.logsumexp(x, 1), large), 1e4 + np.log(np.sum(np.exp(np.arange(5) / 8)))
    )
    assert np.allclose(of(lambda x: nn.var(x, 1), large * 1e6), np.var(large * 1e6, 1), rtol=1e-9)


def compiled(nest: pf.Nest, target: pf.Target) -> pf.Executable:
    return pf.compile(nest, target=target, **({"device": "lockstep"} if target == "cuda" else {}))


def log_sum_exp(data: Array, axis: int) -> Array:
    """In float64, an infinite maximum as it is."""
    values = data.astype(np.float64)
    largest = np.max(values, axis, keepdims=True)
    shift = np.where(np.isfinite(largest), largest, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(np.sum(np.exp(values - shift), axis)) + np.squeeze(shift, axis)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_infinite_values_in_the_logarithm_of_a_sum_of_exponentials(
    axis: int, target: pf.Target, dtype: DType
) -> None:
    low, high = -np.inf, np.inf
    rows = [[0, 1, 2], [low] * 3, [high, 0, 1], [low, high, 0], [low, 3, low], [high] * 3, [0, np.nan, high]]
    data = np.array(rows if axis else np.transpose(rows), np.dtype(dtype))
    nest = nn.lower(nn.logsumexp(nn.input("x", data.shape, dtype), axis))
    expected = [2.407606, low, high, high, 3, high, np.nan]
    near = 1e-2 if dtype == "bfloat16" else 1e-6
    for found in (compiled(nest, target)(data), pf.interpret(nest, {"x": data})["out"]):
        np.testing.assert_allclose(found.astype(np.float64), expected, near)


def split(nest: pf.Nest, size: int) -> pf.Nest:
    """The maximum and the sum of exponentials of rows in parts."""
    for name in ("rowmax0", "rowsum0"):
        nest = split_reduction(nest, name, "j", size=size).nest
    return nest


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_infinite_rows_in_parts_and_in_blocks(target: pf.Target) -> None:
    data = np.random.default_rng(3).standard_normal((4, 200)).astype(np.float32)
    data[1], data[2, 130], data[3, :120] = -np.inf, np.inf, -np.inf
    nest = nn.lower(nn.logsumexp(nn.input("x", data.shape), 1))
    for form in (split(nest, 50), online(nest, "rowmax0", 50).nest):
        np.testing.assert_allclose(compiled(form, target)(data), log_sum_exp(data, 1), 1e-5)


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.lists(SOME, min_size=5, max_size=5), min_size=1, max_size=3), st.integers(1, 6))
def test_rows_with_infinite_values_in_every_form(rows: list[list[float]], block: int) -> None:
    data = np.array(rows)
    nest = nn.lower(nn.logsumexp(nn.input("x", data.shape, "float64"), 1))
    for form in (nest, split(nest, block), online(nest, "rowmax0", block).nest):
        np.testing.assert_allclose(
            pf.interpret(form, {"x": data})["out"], log_sum_exp(data, 1), 1e-12, equal_nan=True
        )


def variance_bound(data: Array, axis: int, chain: int) -> Array:
    """What `reductions.Variance` says of the relative error, for sums of so many additions one after the other."""
    exact = data.astype(np.float64)
    step = chain * float(np.finfo(data.dtype).eps) / 2
    return 3 * step * (1 + step * np.abs(exact.mean(axis)) / exact.std(axis)) ** 2


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize(
    ("shape", "axis", "chain"), [((3, 256), 1, 16), ((1000, 4), 0, 1000), ((2, 999), 1, 64)]
)
def test_the_variance_of_values_far_from_zero(
    shape: tuple[int, int], axis: int, chain: int, target: pf.Target
) -> None:
    """Where NumPy's float32 has lost all but four digits."""
    data = (1e6 + np.random.default_rng(0).standard_normal(shape)).astype(np.float32)
    exact = data.astype(np.float64).var(axis)
    assert np.abs(data.var(axis) / exact - 1).max() > 1e-4
    found = compiled(nn.lower(nn.var(nn.input("x", shape), axis)), target)(data)
    assert (np.abs(found / exact - 1) <= variance_bound(data, axis, chain)).all()


def test_the_variance_of_long_rows_far_from_zero_in_parts() -> None:
    data = (1e6 + np.random.default_rng(0).standard_normal((3, 70_000))).astype(np.float32)
    exact = data.astype(np.float64).var(1)
    nest = nn.lower(nn.var(nn.input("x", data.shape), 1))
    parts = nest
    for name in ("meansum0", "devsum0", "varsum0"):
        parts = split_reduction(parts, name, "j", size=4096).nest
    for form in (nest, parts):
        np.testing.assert_allclose(pf.compile(form, target="cpu")(data), exact, 1e-5)


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(2, 60), st.floats(-1e6, 1e6), st.floats(1.0, 1e3), st.integers(1, 60), st.integers(0, 99))
def test_the_error_of_a_variance_stays_below_its_bound(
    count: int, mean: float, deviation: float, part: int, seed: int
) -> None:
    """Added up one by one, and in parts."""
    data = (mean + deviation * np.random.default_rng(seed).standard_normal((1, count))).astype(np.float32)
    exact = data.astype(np.float64).var(1)
    assume(exact > deviation * deviation / 100)
    nest = nn.lower(nn.var(nn.input("x", data.shape), 1))
    parts = nest
    for name in ("meansum0", "devsum0", "varsum0"):
        parts = split_reduction(parts, name, "j", size=part).nest
    for form in (nest, parts):
        found = pf.interpret(form, {"x": data})["out"]
        assert np.abs(found / exact - 1) <= variance_bound(data, 1, count + 4)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_equal_values_have_no_negative_variance(target: pf.Target) -> None:
    data = np.float32([[1e6 + 1 / 16] * 7, [0.1] * 7, [-3e7] * 7, [np.inf] + [1] * 6, [np.nan] + [1] * 6])
    nest = nn.lower(nn.std(nn.input("x", data.shape), 1))
    for found in (compiled(nest, target)(data), pf.interpret(nest, {"x": data})["out"]):
        np.testing.assert_array_less(found[:3], [0.1, 1e-7, 3.0])
        assert (found[:3] >= 0).all()
        assert np.isnan(found[3:]).all()


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_places_are_the_first_ones(axis: int, target: pf.Target) -> None:
    """Of equal values and of NaN too, and of rows that are infinite all along."""
    data = np.round(X, 1)
    data[1, 2:5, 3], data[2], data[0, 3, :2] = np.nan, -np.inf, np.inf
    x = nn.input("x", data.shape, "float64")
    nest = nn.lower((nn.argmax(x, axis), nn.argmin(x, axis, keepdims=True)))
    net = pf.compile(nest, target=target, **({"device": "lockstep"} if target == "cuda" else {}))
    for found in (net(data), pf.interpret(nest, {"x": data}).values()):
        largest, smallest = found
        assert largest.dtype == smallest.dtype == np.int64
        np.testing.assert_array_equal(largest, np.argmax(data, axis))
        np.testing.assert_array_equal(smallest, np.argmin(data, axis, keepdims=True))


def test_a_sum_of_one_number_has_no_loops() -> None:
    of(lambda x: x / (nn.sum(x * x) + 1.0), np.array(3.0))


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_places_in_long_rows(target: pf.Target) -> None:
    """In parts, on lanes: whatever order they are combined in."""
    data = np.random.default_rng(1).integers(0, 500, (3, 9000)).astype(np.float32)
    net = pf.compile(
        nn.lower(nn.argmax(nn.input("x", data.shape))),
        target=target,
        **({"device": "lockstep"} if target == "cuda" else {}),
    )
    np.testing.assert_array_equal(net(data), np.argmax(data, -1))


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (lambda x: nn.var(x, 1, correction=7), "7 values of .* leave no positive divisor"),
        (lambda x: nn.norm(x, order=3), "order 3, expected 1, 2 or math.inf"),
        (lambda x: nn.logsumexp(x, 3), "axis 3 of"),
        (lambda x: nn.argmax(x[:0], 0), r"axes \(0,\) of \(0, 7, 5\) are empty"),
        (lambda x: nn.exp(nn.argmax(x)), "exp computes in float32 or float64 or"),
        (lambda x: nn.logsumexp(x[:0]), r"logsumexp: axes \(0, 1, 2\) of \(0, 7, 5\) are empty"),
    ],
)
def test_what_is_refused(value: Callable[[nn.Value], nn.Value], why: str) -> None:
    with pytest.raises(BadArgument, match=why):
        value(nn.input("x", X.shape))

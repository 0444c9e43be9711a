"""Layer and group norm of values whose mean is much larger than their deviation, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import polyfuse as pf
from polyfuse import nn
from polyfuse.rewrite import split_reduction
from tests.support.examples import examples

Array = np.ndarray[Any, Any]


def normalised(data: Array, axes: tuple[int, ...], eps: float = 1e-5) -> Array:
    """The norm in float64."""
    exact = data.astype(np.float64)
    return (exact - exact.mean(axes, keepdims=True)) / np.sqrt(exact.var(axes, keepdims=True) + eps)


def bound(data: Array, axes: tuple[int, ...], chain: int) -> Array:
    """What `along_axes.LayerNorm` says of the error, for sums of so many additions one after the other."""
    exact = data.astype(np.float64)
    step = chain * float(np.finfo(data.dtype).eps) / 2
    apart = np.abs(exact.mean(axes, keepdims=True)) / exact.std(axes, keepdims=True)
    return 3 * step * (1 + step * apart) ** 2 * np.abs(normalised(data, axes)).max(axes, keepdims=True)


def compiled(nest: pf.Nest, target: pf.Target) -> pf.Executable:
    return pf.compile(nest, target=target, device="lockstep" if target == "cuda" else None)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("start", [1e3, -1e6])
def test_layer_norm(start: float, target: pf.Target) -> None:
    step = 1e-3 if start == 1e3 else 1.0
    data = (start + step * np.arange(2 * 256).reshape(2, 256) % 301).astype(np.float32)
    found = compiled(nn.lower(nn.layer_norm(nn.input("x", data.shape), 256)), target)(data)
    assert (np.abs(found - normalised(data, (1,))) <= bound(data, (1,), 16)).all()


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_group_norm(target: pf.Target) -> None:
    data = (1e5 + np.random.default_rng(0).standard_normal((2, 4, 6, 3))).astype(np.float32)
    found = compiled(nn.lower(nn.group_norm(nn.input("x", data.shape), 2)), target)(data)
    groups = data.reshape(2, 2, 2, 6, 3)
    axes = (2, 3, 4)
    assert (np.abs(found.reshape(groups.shape) - normalised(groups, axes)) <= bound(groups, axes, 36)).all()


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(2, 60), st.floats(-1e6, 1e6), st.floats(1.0, 1e3), st.integers(1, 60), st.integers(0, 99))
def test_the_error_stays_below_its_bound(
    count: int, mean: float, deviation: float, part: int, seed: int
) -> None:
    """Added up one by one, and in parts."""
    data = (mean + deviation * np.random.default_rng(seed).standard_normal((1, count))).astype(np.float32)
    assume(data.astype(np.float64).std() > deviation / 10)
    nest = nn.lower(nn.layer_norm(nn.input("x", data.shape), count))
    parts = nest
    for name in ("meansum0", "devsum0", "varsum0"):
        parts = split_reduction(parts, name, "j", size=part).nest
    for form in (nest, parts):
        found = pf.interpret(form, {"x": data})["out"]
        assert (np.abs(found - normalised(data, (1,))) <= bound(data, (1,), count + 4)).all()

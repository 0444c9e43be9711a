"""Reductions in any order: their values, NaN wherever it stands, and that LLVM puts them on vector lanes."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pytest

import polyfuse as pf
from polyfuse.codegen.cpu.intrinsics import reassociated as sums
from polyfuse.codegen.cpu.intrinsics.parallel_parts import FASTMATH
from polyfuse.codegen.cpu.intrinsics.reassociated import IN_ANY_ORDER
from polyfuse.ir import Nest, Tensor, statement

Array = npt.NDArray[Any]

NUMPY = {"+=": np.sum, "*=": np.prod, "max=": np.max, "min=": np.min}
LANES = {"+=": "fadd", "*=": "fmul", "max=": "fmaximum", "min=": "fminimum"}
"""LLVM's names for combining a vector's lanes."""


@cache
def over_an_array(op: str) -> Callable[[Array], float]:
    combine = getattr(sums, IN_ANY_ORDER[op])

    def reduced(x: Array) -> float:
        total = x[0]
        for i in range(1, x.size):
            total = combine(total, x[i])
        return total

    compiled: Callable[[Array], float] = numba.njit(fastmath=FASTMATH)(reduced)
    return compiled


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", IN_ANY_ORDER)
def test_values_and_lanes(op: str, dtype: str) -> None:
    reduced, x = over_an_array(op), np.random.default_rng(0).uniform(0.9, 1.1, 131).astype(dtype)
    assert reduced(x) == pytest.approx(NUMPY[op](x), rel=1e-5)
    (code,) = (text for types, text in reduced.inspect_llvm().items() if str(types[0].dtype) == dtype)
    assert f"@llvm.vector.reduce.{LANES[op]}.v" in code


@pytest.mark.parametrize("op", IN_ANY_ORDER)
@pytest.mark.parametrize("place", [0, 1, 64, 130])
def test_nan_stays(op: str, place: int) -> None:
    x = np.random.default_rng(0).standard_normal(131)
    x[place] = np.nan
    assert math.isnan(over_an_array(op)(x))


@pytest.mark.parametrize("value", [np.inf, -np.inf, 0.0])
def test_extrema_of_one_value(value: float) -> None:
    x = np.full(131, value)
    assert over_an_array("max=")(x) == over_an_array("min=")(x) == value


@pytest.mark.parametrize("op", IN_ANY_ORDER)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_kernels_compute_the_oracles_reduction(op: str, dtype: str) -> None:
    nest = Nest.of(
        [Tensor("x", (3, 37), dtype, "input"), Tensor("m", (3,), dtype, "inout")],
        [statement("{ S[i, j] : 0 <= i < 3 and 0 <= j < 37 }", f"m[i] {op} x[i, j]")],
    )
    net = pf.compile(nest, target="cpu")
    assert (IN_ANY_ORDER[op] in net.source) == (dtype != "int64")
    rng = np.random.default_rng(0)
    x, m = rng.uniform(1, 3, (3, 37)).astype(dtype), np.ones(3, dtype)
    if dtype != "int64":
        x[1, 36] = np.nan
    expected = pf.interpret(nest, {"x": x, "m": m})["m"]
    net(x=x, m=m)
    np.testing.assert_allclose(m, expected, rtol=1e-5)

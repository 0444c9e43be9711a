"""The derivative of each function of one number, and the subgradients at kinks, where torch's are the model."""

from __future__ import annotations

import math

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.ir import Nest, Tensor, statement
from polyfuse.ir.scalar import CONVERSIONS, FUNCTIONS


def pointwise(value: str, inputs: int = 1) -> Nest:
    """y[i] = value, of x0, x1, …"""
    tensors = [Tensor(f"x{k}", (4,), "float64", "input") for k in range(inputs)]
    tensors.append(Tensor("y", (4,), "float64", "output"))
    return Nest.of(tensors, [statement("{ S[i] : 0 <= i < 4 }", f"y[i] = {value}")])


def derivative(value: str, *x: list[float], seed: float = 1.0) -> list[float]:
    """The gradient by the first of some inputs."""
    nest = pf.vjp(pointwise(value, len(x)), "x0")
    return list(pf.interpret(nest, [*map(np.array, x), np.full(4, seed)])["x0_grad"])


OF_TWO = {"pow", "max", "min", "where"}
SMOOTH = sorted(set(FUNCTIONS) - {"abs", "floor", "ceil", *OF_TWO, *CONVERSIONS})


@pytest.mark.parametrize("name", SMOOTH)
def test_functions_of_one_number(name: str) -> None:
    x = [1.2, 1.5, 2.0, 3.0] if name == "acosh" else [0.1, 0.3, 0.6, 0.9]
    step = 1e-6
    nest = pointwise(f"{name}(x0[i])")
    above, below = (pf.interpret(nest, [np.array(x) + d])["y"] for d in (step, -step))
    np.testing.assert_allclose(derivative(f"{name}(x0[i])", x), (above - below) / (2 * step), rtol=1e-8)


@pytest.mark.parametrize(
    ("value", "at", "expected"),
    [
        ("max(x0[i], 0)", [-1.0, 0.0, 2.0, math.nan], [0, 0, 1, 1]),  # ReLU
        ("min(max(x0[i], 0), 6)", [0.0, 3.0, 6.0, math.nan], [0, 1, 0, 0]),  # hardtanh
        ("min(max(x0[i], 0.0), 6.0)", [-1.0, 0.0, 6.0, 7.0], [0, 1, 1, 0]),  # clamp
        ("abs(x0[i])", [-2.0, 0.0, 3.0, math.nan], [-1, 0, 1, 0]),
        ("floor(x0[i]) + ceil(x0[i])", [0.0, 0.5, 1.0, 2.0], [0, 0, 0, 0]),
        ("float32(x0[i]) + float64(int8(x0[i])) * 3.0", [0.0, 0.5, 1.0, 2.0], [1, 1, 1, 1]),
        ("where(bool(x0[i]), x0[i], 0.0)", [0.0, 0.5, 1.0, 2.0], [0, 1, 1, 1]),
        ("x0[i] % 0.75 + x0[i] // 0.75", [0.1, -0.5, 1.0, 2.0], [1, 1, 1, 1]),
        ("5.0 % x0[i]", [2.0, -2.0, 3.0, 4.0], [-2, 3, -1, -1]),
        ("x0[i] ** 0", [0.0, 1.0, 2.0, 3.0], [0, 0, 0, 0]),
        ("x0[i] ** 3", [0.0, 1.0, 2.0, -3.0], [0, 3, 12, 27]),
        ("1.0 / (1.0 + exp(-x0[i]))", [-1000.0, 0.0, 1000.0, -math.inf], [0, 0.25, 0, 0]),  # no inf * 0
        ("log(1.0 + exp(x0[i]))", [-1000.0, 0.0, 1000.0, math.inf], [0, 0.5, 1, 1]),
        ("where(x0[i] > 1.0, log(x0[i]), 0.0)", [-1.0, 0.0, 1.0, 2.0], [0, 0, 0, 0.5]),
        ("x0[i] * x0[i] * x0[i]", [1.0, 2.0, 3.0, 4.0], [3, 12, 27, 48]),
        ("where(x0[i] == x0[i], 1.0, 0.0)", [1.0, 2.0, 3.0, 4.0], [0, 0, 0, 0]),
    ],
)
def test_kinks_and_overflows(value: str, at: list[float], expected: list[float]) -> None:
    np.testing.assert_allclose(derivative(value, at), expected, rtol=1e-15)


@pytest.mark.parametrize("op", ["max", "min"])
def test_equal_operands_share_evenly(op: str) -> None:
    first, second = [1.0, 2.0, 3.0, 3.0], [2.0, 2.0, 2.0, 3.0]
    wins = [0, 0.5, 1, 0.5] if op == "max" else [1, 0.5, 0, 0.5]
    assert derivative(f"{op}(x0[i], x1[i])", first, second) == wins


def test_a_power_has_both_derivatives() -> None:
    base, exponent = [0.0, 2.0, 3.0, 0.0], [0.0, 3.0, 0.5, 2.0]
    assert derivative("x0[i] ** x1[i]", base, exponent) == pytest.approx([0, 12, 0.5 / math.sqrt(3), 0])
    by_exponent = [0, 8 * math.log(2), math.sqrt(3) * math.log(3), 0]
    assert derivative("x1[i] ** x0[i]", exponent, base) == pytest.approx(by_exponent)


def test_a_branch_that_is_not_taken_passes_nothing_on() -> None:
    assert (
        derivative("where(x0[i] > 0.0, x0[i], sqrt(x0[i]))", [1.0, 1.0, 1.0, 1.0], seed=math.inf)
        == [math.inf] * 4
    )

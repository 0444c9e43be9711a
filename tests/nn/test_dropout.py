"""Dropout: which elements stay, by the formula in NumPy; the share of them; the backward pass drops the same ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.ir.nest_text import body_text
from tests.support.gradients import agrees

Array = np.ndarray[Any, Any]

SEED = nn.input("seed", (), "int64")


def mixed(z: Array) -> Array:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    return (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)


def kept(shape: tuple[int, ...], p: float, seed: int, draw: int = 0) -> Array:
    step = np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        key = mixed(np.array([seed], "int64").view("uint64") + step * np.uint64(draw + 1))
        bits = mixed(key + step * np.arange(1, np.prod(shape) + 1, dtype="uint64")) >> np.uint64(33)
    return (bits >= round(p * 2**31)).reshape(shape)


def dropped(shape: tuple[int, ...], p: float, seed: int, draw: int = 0) -> Array:
    nest = nn.lower(nn.dropout(nn.input("x", shape, "float64"), p, SEED, draw))
    return pf.interpret(nest, {"x": np.ones(shape), "seed": np.int64(seed)})["out"]


@pytest.mark.parametrize(("p", "seed", "draw"), [(0.3, 7, 0), (0.5, -(2**63), 3), (0.0, 1, 0), (1.0, 1, 0)])
def test_an_element_stays_by_its_number(p: float, seed: int, draw: int) -> None:
    expected = kept((3, 5, 4), p, seed, draw) * (1 / (1 - p) if p < 1 else 0)
    np.testing.assert_array_equal(dropped((3, 5, 4), p, seed, draw), expected)


def test_as_many_stay_as_the_probability_says() -> None:
    n = 200_000
    for p in 0.1, 0.5, 0.9:
        stay = [kept((n,), p, seed, draw) for seed, draw in ((0, 0), (1, 0), (0, 1))]
        for one in stay:
            assert abs(one.mean() - (1 - p)) < 5 * np.sqrt(p * (1 - p) / n)
            assert abs(np.corrcoef(one[1:], one[:-1])[0, 1]) < 5 / np.sqrt(n)  # neighbours
        for a, b in ((0, 1), (0, 2), (1, 2)):
            assert abs(np.corrcoef(stay[a], stay[b])[0, 1]) < 5 / np.sqrt(n)  # other seeds and draws


def test_the_backward_pass_draws_the_same_numbers_again() -> None:
    x = nn.input("x", (6, 8), "float64")
    nest = nn.lower(nn.tanh(nn.dropout(x, 0.4, SEED)))
    agrees(nest)
    back = pf.vjp(nest, "x")
    lines = {s.name: body_text(s) for s in back.statements}
    assert lines["drop0_to_x"].endswith("where(kept0_again[i, j] == 0, 0.0, 1.6666666666666667)")
    assert "kept0_again" in lines
    assert "kept0" in lines, "the forward pass has its own"
    rng = np.random.default_rng(0)
    X, cotangent = rng.normal(size=(2, 6, 8))
    scale = kept((6, 8), 0.4, 5) / 0.6
    (found,) = [pf.compile(back, target="cpu")(X, np.int64(5), cotangent)]
    np.testing.assert_allclose(found, cotangent * scale * (1 - np.tanh(X * scale) ** 2), rtol=1e-12)


def test_a_layer_drops_in_training_only() -> None:
    x = nn.input("x", (2, 3))
    layer = nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.5), nn.Dropout(0.0))
    assert layer(x) is x
    with nn.training(SEED) as mode:
        assert layer(x) is not x
    assert mode.draws == 2
    assert layer(x) is x


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda: nn.dropout(nn.input("x", (2,)), 1.5, SEED), "expected a probability"),
        (lambda: nn.dropout(nn.input("x", (2,)), 0.5, nn.input("s", (2,), "int64")), "expected one number"),
        (lambda: nn.dropout(nn.input("x", (2,), "int64"), 0.5, SEED), "floating-point"),
        (lambda: nn.training(nn.input("s", ())).__enter__(), "expected one number"),
    ],
)
def test_refusals(made: Callable[[], object], why: str) -> None:
    with pytest.raises(pf.BadArgument, match=why):
        made()

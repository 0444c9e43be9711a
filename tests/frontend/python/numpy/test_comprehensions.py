"""Comprehensions over literals and constant ranges: Python's values, in Python's order, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.errors import NotAffine
from tests.frontend.python.running import assert_close, by_python

# ruff: noqa: B023, F821

OFFSETS = (-1, 0, 1)
COUNT = 3


@pf.nest
def neighbours(x: f64[N], y: f64[N]):
    for j in range(1, N - 1):
        y[j] = sum(x[j + i] for i in (-1, 0, 1))


@pf.nest
def slices(x: f64[N], y: f64[N]):
    y[1:-1] = sum(x[1 + i : N - 1 + i] for i in OFFSETS) / 3.0


@pf.nest
def weights(x: f64[N], y: f64[N]):
    for j in range(1, N - 1):
        y[j] = sum(w * x[j + i] for w, i in ((0.5, -1), (0.25, 0), (2, 1)))


@pf.nest
def pairs(x: f64[N], y: f64[N]):
    for j in range(2, N - 2):
        y[j] = sum([x[j + i] * x[j + k] for i in range(-1, 2) for k in range(COUNT) if i != k])


@pf.nest
def extremes(x: f64[N], y: f64[N]):
    for j in range(1, N - 1):
        if all(x[j] >= x[j + i] for i in (-1, 1)) or any(x[j + i] > 0.9 for i in (-1, 1)):
            y[j] = min(x[j + i] for i in (-1, 0, 1))
        else:
            y[j] = max([x[j + i] for i in range(2)])


@pf.nest
def functions_of_one(x: f64[N], y: f64[N]):
    i = 3
    y[:] = sum(f(x) for f in (np.sin, np.cos)) + sum(x[i] for i in range(2)) + i + sum(i for i in ())


@pf.nest
def integers(x: i32[N], y: i32[N]):
    for j in range(N):
        y[j] = sum(x[j] * k for k in (3, 5)) + sum((x[j], x[j] - 1))


NESTS = (neighbours, slices, weights, pairs, extremes, functions_of_one, integers)


@pytest.mark.parametrize("nest", NESTS, ids=lambda nest: nest.name)
def test_values_are_pythons(nest: pf.Nest) -> None:
    rng = np.random.default_rng(3)
    x = rng.random(11) if nest is not integers else rng.integers(-9, 9, 11).astype(np.int32)
    arrays = {"x": x, "y": np.zeros_like(x)}
    expected = by_python(nest, arrays)
    assert_close(pf.interpret(nest, arrays), expected, 0.0)
    y = np.zeros_like(x)
    pf.compile(nest, target="cpu")(x, y)
    np.testing.assert_allclose(y, expected["y"], rtol=1e-13)


def test_a_sum_is_one_statement_from_the_left() -> None:
    (only,) = neighbours.statements
    assert "y[j] = 0 + x[-1 + j] + x[j] + x[1 + j]" in str(neighbours)
    assert len(only.reads) == 3


def test_the_first_value_is_zero() -> None:
    """0 + -0.0 is 0.0: a sum of one term is not the term."""

    def one(x: f64[N], y: f64[N]):
        for j in range(N):
            y[j] = sum(x[j] for _ in (1,))

    y = np.ones(2)
    pf.compile(pf.nest(one), target="cpu")(np.array([-0.0, 2.0]), y)
    assert not np.signbit(y).any()


def over_an_array(x: f64[N], y: f64[N]):
    y[:] = sum(2.0 * v for v in x)


def over_a_size(x: f64[N], y: f64[N]):
    y[:] = sum(x[i] for i in range(N))


def over_many(x: f64[N], y: f64[N]):
    y[:] = sum(x[i] for i in range(100))


def under_a_condition_of_data(x: f64[N], y: f64[N]):
    y[:] = sum(x[i] for i in (0, 1) if x[i] > 0)


def of_an_element(x: f64[N], y: f64[N]):
    y[:] = sum(x[0] for y[0] in (0, 1))


def kept(x: f64[N], y: f64[N]):
    g = (x[i] for i in (0, 1))
    x[0] = 1.0
    y[:] = sum(g)


def of_functions(x: f64[N], y: f64[N]):
    y[:] = sum([f(x) for f in [lambda v: v * i for i in (1, 2)]])


@pytest.mark.parametrize(
    ("function", "why", "at"),
    [
        (kept, "a generator", "(x[i] for"),
        (of_functions, "a function that sees a comprehension's variables", "[lambda"),
        (over_an_array, "a comprehension over x", "x)"),
        (over_a_size, "how many elements range(N) has is not known here", "range(N))"),
        (over_many, "range(100) has 100 elements", "range(100))"),
        (under_a_condition_of_data, "whether x[i] > 0 is not known here", "x[i] > 0)"),
        (of_an_element, "y[0] as a comprehension's variable", "y[0] in"),
    ],
)
def test_refusals_name_the_part(function, why, at) -> None:
    with pytest.raises(NotAffine) as raised:
        pf.nest(function)
    assert why in str(raised.value)
    shown, caret = str(raised.value).splitlines()[1:3]
    assert shown[caret.index("^") :].startswith(at)

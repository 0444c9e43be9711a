"""Elements of reshaped arrays are counted by the digits of their position: values are NumPy's, without quotients."""

from __future__ import annotations

from math import prod
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyfuse as pf
from polyfuse.frontend.python.numpy.lowering import lowered
from polyfuse.frontend.python.source import source_of
from tests.frontend.python.running import defined
from tests.support.examples import examples

# ruff: noqa: F821


def permuted(x: f64[4, 6, 5], w: f64[120]):
    return x.transpose(1, 0, 2).reshape(-1) * w


def test_an_index_of_a_reshaped_array_becomes_one_of_each_digit() -> None:
    found = str(lowered(source_of(permuted)))  # type: ignore[arg-type]  # a plain function
    assert (
        found.split("\n", 1)[1]
        == """\
    result = empty((120,), 'float64')
    for i0 in range(6):
        for i1 in range(4):
            for i2 in range(5):
                result[20 * i0 + 5 * i1 + i2] = x[i1, i0, i2] * w[20 * i0 + 5 * i1 + i2]
    return result"""
    )


def of_both_axes(x: f64[4, 6], y: f64[N], z: f64[3, 8]):
    return np.repeat(x, 2, axis=1) + np.tile(z.T, (1, 4))[:4], np.tile(x[:, :, None] * y, (2, 1, 1))


def values(x: i64[24], y: f64[24]):
    y[:] = x * (np.arange(24) // 6) - np.arange(24) % 6
    x[:] = x.reshape(4, 6).T.reshape(-1)


def where_positive(A: f64[4, 6], y: f64[24]):
    flat = A.reshape(-1)
    flat[flat > 4] = 0
    y[y > 3] = 1
    flat[1::2] += y[:12]


def not_by_digits(x: f64[24], y: f64[24]):
    y[1:] = np.roll(x, 3)[1:] + (np.arange(23) + 1) // 2
    return x[::-1].reshape(4, 6).T.reshape(-1) + np.arange(24) // 4 + np.arange(24) % 9


@pytest.mark.parametrize("function", [of_both_axes, values, where_positive, not_by_digits])
def test_results_are_numpys(function: Any) -> None:
    nest, rng = pf.nest(function), np.random.default_rng(2)
    sizes = {"N": 5}
    arrays = {
        t.name: rng.integers(0, 9, [sizes.get(str(extent), extent) for extent in t.shape]).astype(t.dtype)
        for t in nest.inputs
    }
    found = pf.interpret(nest, arrays, sizes=sizes if nest.params else {})
    given = {name: value.copy() for name, value in arrays.items()}
    returned = function(**given)
    outputs = returned if isinstance(returned, tuple) else () if returned is None else (returned,)
    for tensor, value in zip(nest.with_role("output"), outputs, strict=True):
        np.testing.assert_allclose(found[tensor.name], value, rtol=1e-12)
    for tensor in nest.with_role("inout"):
        np.testing.assert_allclose(found[tensor.name], given[tensor.name], rtol=1e-12)


@settings(max_examples=examples(20), deadline=None)
@given(st.integers(0, 10**9))
def test_any_reshape_of_a_permutation_is_numpys(seed: int) -> None:
    random = Random(seed)
    extents = [random.choice((1, 2, 3, 4)) for _ in range(random.randint(1, 4))]
    axes = random.sample(range(len(extents)), len(extents))
    turned = [extents[axis] for axis in axes]
    cut = random.randint(0, len(turned))
    shapes = [(prod(turned),), (prod(turned[:cut]), prod(turned[cut:]))]
    shape, other = random.sample(shapes, 2)
    nest = defined(
        f"""
@pf.nest
def f(x: "f64{extents}", y: "f64{list(other)}"):
    z = x.transpose({tuple(axes)}).reshape{shape} - np.reshape(y, {shape}) * 3.0
    return np.transpose(np.reshape(z, {tuple(turned)}))
"""
    )
    x, y = np.random.default_rng(seed).random(extents), np.random.default_rng(seed + 1).random(other)
    expected = (x.transpose(axes).reshape(shape) - y.reshape(shape) * 3.0).reshape(turned).T
    (output,) = nest.with_role("output")
    np.testing.assert_allclose(pf.interpret(nest, {"x": x, "y": y})[output.name], expected, rtol=1e-12)

"""Reads at places that an array of integers holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from tests.frontend.python.running import assert_close, called, copies, defined


def look_up(x: Any, W: Any, k: Any, K: Any, y: Any) -> Any:
    for i in range(k.shape[0]):
        y[i] += x[k[i]] * W[k[i], 1]
        y[i] -= W[k[i]] @ W[K[i, 0]]
    y += x[k]
    return W[k], x[K].sum(axis=1), W[k, 1:] * 2, x[k[::-1]] - x[0], W[K, 0]


@pytest.mark.parametrize("target", ["oracle", "cpu"])
def test_reads_at_places_from_data(target: str) -> None:
    rng = np.random.default_rng(3)
    given = {"x": rng.normal(size=7), "W": rng.normal(size=(7, 4))}
    given |= {
        "k": rng.integers(0, 7, 5),
        "K": rng.integers(0, 7, (5, 3)).astype(np.int32),
        "y": rng.normal(size=5),
    }
    nest = pf.nest(look_up, example=tuple(given.values()))
    assert {t.name for t in nest.with_role("gathered")} == {"x_at_k", "W_at_k", "W_at_K", "x_at_K"}
    expected = copies(given)
    returned = look_up(**expected)
    found = (
        pf.interpret(nest, copies(given))
        if target == "oracle"
        else called(pf.compile(nest, target="cpu"), given)
    )
    np.testing.assert_allclose(found["y"], expected["y"])
    for tensor, value in zip(nest.results, returned, strict=True):
        np.testing.assert_allclose(found[tensor.name], value)


def places(T: Any, U: Any, idx: Any, b: Any, h: Any, y: Any) -> Any:
    for i in range(len(y)):
        y[i] += T[i % 3, idx[i]] * U[idx[i], b[i]] + h[b[i]]
        h[i % 4] += 1.0
    h[:4] = h[b[:4]]
    double = h * 2
    return double[idx], T[1, idx[0]] @ U[2, b[1]]


def test_elements_at_places_in_any_dimension_and_of_arrays_that_are_written() -> None:
    rng = np.random.default_rng(3)
    given = {
        "T": rng.random((3, 5, 2)),
        "U": rng.random((5, 6, 2)),
        "idx": rng.integers(0, 5, 7),
        "b": rng.integers(0, 6, 7),
        "h": rng.random(6),
        "y": rng.random((7, 2)),
    }
    nest = pf.nest(places, example=tuple(given.values()))
    expected = copies(given)
    returned = places(**expected)
    found = pf.interpret(nest, copies(given))
    for tensor, value in zip(nest.results, returned, strict=True):
        np.testing.assert_allclose(found[tensor.name], value)
    assert_close(found, {name: expected[name] for name in "hy"})
    assert_close(called(pf.compile(nest, target="cpu"), given), {name: expected[name] for name in "hy"})


HEAD = "@pf.nest\ndef f(x: 'f64[N]', k: 'i64[N]', W: 'f64[N, N]'):\n"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("if x[1] > 0.0:\n        x[0] = x[k[0]]", "k[0] depends on data, and x is written here"),
        (
            "for i in range(N):\n        k[i] = 0\n        W[k[i], 0] = 1.0",
            "k[i] names a place, and k is written here",
        ),
        ("x[0] = W[0, k[0] + 1]", "k[0] depends on data"),
        ("x[:] = W[0][k + 1]", "depends on data"),
        ("x[W] = 1.0", "W as a subscript"),
    ],
)
def test_what_is_no_gather_is_refused(body: str, why: str) -> None:
    with pytest.raises(pf.NotAffine) as found:
        defined(f"{HEAD}    {body}\n")
    assert why in found.value.why

"""Reads at places that an array of integers holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from tests.frontend.python.running import called, copies, defined


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


HEAD = "@pf.nest\ndef f(x: 'f64[N]', k: 'i64[N]', W: 'f64[N, N]'):\n"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("for i in range(N):\n        x[i] = x[k[i]]", "k[i] depends on data, and x is written here"),
        (
            "for i in range(N):\n        k[i] = 0\n        W[k[i], 0] = 1.0",
            "k[i] names a place, and k is written here",
        ),
        ("x[0] = W[0, k[0]]", "k[0] depends on data"),
        ("x[:] = W[0][k]", "depends on data"),
        ("x[k] = 1.0", "k as a subscript"),
        ("t = x * 2\n    W[0] = t[k]", "depends on data"),
    ],
)
def test_what_is_no_gather_is_refused(body: str, why: str) -> None:
    with pytest.raises(pf.NotAffine) as found:
        defined(f"{HEAD}    {body}\n")
    assert why in found.value.why

"""np.add.at and its like: updates of the places that arrays of integers name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from tests.frontend.python.running import assert_close, called, copies, defined


def updates(h: Any, d: Any, m: Any, idx: Any, b: Any, w: Any, g: Any, c: Any) -> None:
    np.add.at(h, idx, w)
    np.subtract.at(h, idx, 1.5)
    np.add.at(d, idx, g)
    np.maximum.at(m, (idx, b), w)
    np.multiply.at(d, c, 2.0)
    np.add.at(h, c, np.flip(h) * 2)


def test_updates_at_places() -> None:
    rng = np.random.default_rng(1)
    given = {
        "h": rng.random(7),
        "d": rng.random((7, 4)),
        "m": np.zeros((7, 6)),
        "idx": rng.integers(0, 7, 11),
        "b": rng.integers(0, 6, 11),
        "w": rng.random(11),
        "g": rng.random((11, 4)),
        "c": rng.integers(0, 7, 7),
    }
    nest = pf.nest(updates, example=tuple(given.values()))
    expected = copies(given)
    updates(**expected)
    assert_close(pf.interpret(nest, copies(given)), {name: expected[name] for name in "hdm"})
    assert_close(called(pf.compile(nest, target="cpu"), given), {name: expected[name] for name in "hdm"})


def stores(y: Any, d: Any, m: Any, n: Any, idx: Any, b: Any, w: Any, g: Any) -> Any:
    out = np.zeros(7)
    out[idx] = w
    y[idx] = y[:11] * 2
    y[idx[1:]] = 7
    d[idx] = g
    m[idx, b] = w
    n[idx] = w
    return out


def test_stores_at_places_keep_the_last_value() -> None:
    """All values are read first; integers are cut off, as by an assignment."""
    rng = np.random.default_rng(2)
    given = {
        "y": rng.random(12),
        "d": rng.random((7, 4)),
        "m": np.zeros((7, 6)),
        "n": np.zeros(7, np.int64),
        "idx": rng.integers(0, 7, 11),
        "b": rng.integers(0, 6, 11),
        "w": 9 * rng.random(11),
        "g": rng.random((11, 4)),
    }
    run = pf.compile(stores, example=tuple(given.values()), target="cpu")
    mine, theirs = copies(given), copies(given)
    np.testing.assert_array_equal(run(*mine.values()), stores(**theirs))
    assert_close(mine, theirs)


HEAD = "@pf.nest\ndef f(x: 'f64[N]', n: 'i64[N]', k: 'i64[N]', W: 'f64[N, N]'):\n"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("x[k] += 1.0", "x[k] is no array's memory"),
        ("np.divide.at(x, k, 2.0)", "this function at places"),
        ("np.add.at(x, W, 1.0)", "these places"),
        ("np.add.at(n, k, 1.5)", "n is int64, the values float64: NumPy refuses it, too"),
        ("np.add.at(x + 1, k, 1.0)", "x + 1 is no array's memory"),
        ("np.add.at(x, n * 2, 1.0)", "n[i0] depends on data"),
        ("k[k] = n", "places that the array itself holds"),
    ],
)
def test_what_is_refused(body: str, why: str) -> None:
    with pytest.raises(pf.NotAffine) as found:
        defined(f"{HEAD}    {body}\n")
    assert why in found.value.why

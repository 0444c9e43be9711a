"""Loops of which data say what iterations do anything run those alone, also where a kernel computes the data itself."""

from __future__ import annotations

import numpy as np
import pytest

import polyfuse as pf


def solved(a, b):  # type: ignore[no-untyped-def]
    return np.linalg.solve(a, b)


def kept(x, t):  # type: ignore[no-untyped-def]
    n = 0
    for i in range(len(x)):
        n = i if x[i] > x[0] else n
    for i in range(len(t)):
        t[i] = 7.0 if i == n else t[i]


@pytest.mark.parametrize("dtype", ["f64", "c128"])
def test_rows_of_an_elimination_are_exchanged_once(dtype: str) -> None:
    nest = pf.nest(solved, types={"a": f"{dtype}[N, N]", "b": f"{dtype}[N, M]"})
    run = pf.compile(nest, target="cpu", sizes={"N": 40, "M": 24})
    assert "at = int64(pivot" in run.source
    assert "float64(i_1) == pivot" not in run.source
    random = np.random.default_rng(1)
    a, b = (random.random(shape).astype("c16" if dtype == "c128" else "f8") for shape in ((40, 40), (40, 24)))
    np.testing.assert_allclose(run(a, b), np.linalg.solve(a, b), rtol=1e-9)


@pytest.mark.parametrize("preset", ["zen4", "xeon"])
def test_rows_are_exchanged_once_at_all_sizes_too(preset: str) -> None:
    nest = pf.nest(solved, types={"a": "f64[N, N]", "b": "f64[N, M]"})
    run = pf.compile(nest, target="cpu", machine=preset)
    assert "at = int64(pivot" in run.source


def test_an_index_that_the_kernel_finds_may_lie_outside_of_the_loop() -> None:
    run = pf.compile(pf.nest(kept, types={"x": "f64[N]", "t": "f64[M]"}), target="cpu")
    for last in (2, 5):
        x, t = np.zeros(6), np.zeros(4)
        x[last] = 1.0
        run(x, t)
        assert t.tolist() == [0.0, 0.0, 7.0 if last == 2 else 0.0, 0.0]


def upto(p, y):  # type: ignore[no-untyped-def]
    for i in range(y.shape[0]):
        y[i] = 1.0 if i <= p[0] else y[i]


def behind(p, y):  # type: ignore[no-untyped-def]
    for i in range(y.shape[0]):
        y[i] = 1.0 if i > p[0] else y[i]


def at_last(p, y):  # type: ignore[no-untyped-def]
    for i in range(y.shape[0]):
        y[i] = 1.0 if i + 2 == p[0] else y[i]


@pytest.mark.parametrize("dtype", ["int64", "uint64", "int32", "uint32", "int8", "uint8"])
@pytest.mark.parametrize("function", [upto, behind, at_last])
def test_the_least_and_greatest_integers_are_compared_as_they_are(function, dtype: str) -> None:  # type: ignore[no-untyped-def]
    """One more than the greatest int64 is the least: a loop up to it stored far behind its array."""
    run = pf.compile(
        pf.nest(function, types={"p": f"{dtype[0]}{np.iinfo(dtype).bits}[1]", "y": "f64[N]"}), target="cpu"
    )
    limits = np.iinfo(dtype)
    for number in (limits.min, limits.min + 1, 0, 3, limits.max - 1, limits.max):
        p, y, expected = np.array([number], dtype), np.zeros(6), np.zeros(6)
        function([number], expected)
        run(p, y)
        np.testing.assert_array_equal(y, expected, str(number))

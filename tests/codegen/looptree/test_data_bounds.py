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


def test_an_index_that_the_kernel_finds_may_lie_outside_of_the_loop() -> None:
    run = pf.compile(pf.nest(kept, types={"x": "f64[N]", "t": "f64[M]"}), target="cpu")
    for last in (2, 5):
        x, t = np.zeros(6), np.zeros(4)
        x[last] = 1.0
        run(x, t)
        assert t.tolist() == [0.0, 0.0, 7.0 if last == 2 else 0.0, 0.0]

# ruff: noqa: F821, UP037 — sizes are names in annotations
"""Copies of what is as long as the smaller, or the larger, of two sizes: one extent, a sum of sizes, holds them."""

from __future__ import annotations

import numpy as np
import pytest

import polyfuse as pf


@pf.nest
def both(x: "f64[N]", y: "f64[M]"):  # type: ignore[no-untyped-def]
    for i in range(min(N, M)):
        for _j in range(4):
            y[i] += x[i]


@pf.nest
def either(x: "f64[K]", y: "f64[N]", z: "f64[M]"):  # type: ignore[no-untyped-def]
    for i in range(N):
        y[i] += x[i]
    for i in range(M):
        z[i] += x[i]


def halves() -> pf.Schedule:
    s = pf.Schedule(either).split("S0", "i", 4).split("S1", "i", 4).fuse("S0", "S1", at="i")
    return s.promote("x", "S0", at="i")


@pytest.mark.parametrize(
    ("schedule", "shape"),
    [
        (pf.Schedule(both).promote("x", "S0", at="i"), ("M", "M")),
        (halves(), ("floor((N + 3)/4) + floor((M + 3)/4)", "N + M")),
    ],
)
@pytest.mark.parametrize("sizes", [(13, 19), (19, 13)])
def test_a_copy_has_one_extent(schedule: pf.Schedule, shape: tuple[str, ...], sizes: tuple[int, int]) -> None:
    nest = schedule.source
    assert schedule.nest.tensors[-1].shape == shape
    n, m = sizes
    arrays = [np.arange(float(n)), np.ones(m)] if nest is both else [np.arange(19.0), np.ones(n), np.ones(m)]
    expected = [array.copy() for array in arrays]
    nest.python(*expected)
    pf.compile(nest, target="cpu", schedule=schedule)(*arrays)
    for found, wanted in zip(arrays, expected, strict=True):
        np.testing.assert_array_equal(found, wanted)

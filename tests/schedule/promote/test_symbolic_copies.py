# ruff: noqa: F821, UP037 — sizes are names in annotations
"""Copies of what is as long as the smaller, or the larger, of two sizes: one extent, a sum of sizes, holds them."""

from __future__ import annotations

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.errors import InvalidSchedule
from polyfuse.ir import Nest, Tensor, statement


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


def test_a_copy_of_nothing_is_refused() -> None:
    """A statement whose loops have no values reads no element."""
    tensors = [Tensor("x", (8,), "float64", "input"), Tensor("y", (8,), "float64", "output")]
    nest = Nest.of(
        tensors,
        [
            statement("{ first[i] : 0 <= i < 8 }", "y[i] = 1.0"),
            statement("{ never[i, j] : 0 <= i < 8 and 0 <= j < 0 }", "y[i] += x[j]"),
        ],
    )
    with pytest.raises(InvalidSchedule, match="nothing inside i reads an element of x"):
        pf.Schedule(nest).promote("x", "never", at="i")

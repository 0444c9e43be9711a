"""Index-set splitting: pieces by producer, values and order kept, and what is left whole."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

import polyfuse as pf
from tests.rewrite.bilinear.test_apply import same
from tests.support.examples import examples
from tests.support.nests import nests

# ruff: noqa: F821


@pf.nest
def halves(x: f64[16], out: f64[16]):
    y = np.empty(16)
    z = np.empty(16)
    for i in range(8):
        y[i] = x[i] * 2.0
    for i in range(8):
        y[15 - i] = x[i] + 1.0
    for i in range(16):
        z[i] = max(y[i], 0.0)
    for i in range(16):
        out[i] = z[i] + x[i]


"""A tensor in two halves, one of them backwards, and two consumers in a row."""


def test_consumers_run_in_pieces_by_producer() -> None:
    done = pf.rewrite.pieces(halves)
    assert str(done) == "S2 runs in pieces: S2_0, S2_1; S3 runs in pieces: S3_0, S3_1"
    assert str(done.nest.statement("S3_1").write) == "out[15 - i]"
    done.nest.check()
    same(halves, done.nest)


def test_what_is_left_whole() -> None:
    @pf.nest
    def sums(x: f64[16], out: f64[16], total: f64[1]):
        y = np.empty(16)
        for i in range(8):
            y[i] = x[i]
        for i in range(8):
            y[8 + i] = x[i] + 1.0
        for i in range(16):
            total[0] += y[i]
        for i in range(16):
            out[i] = y[i] * i
        for i in range(16):
            for j in range(2):
                out[i] = y[i] + j

    done = pf.rewrite.pieces(sums)
    assert done.nest is sums
    assert str(done) == ""


@settings(max_examples=examples(60), deadline=None)
@given(nests())
def test_random_nests_keep_their_values(nest: pf.Nest) -> None:
    done = pf.rewrite.pieces(nest)
    done.nest.check()
    if not nest.params:
        same(nest, done.nest)


def test_a_producer_that_writes_an_element_twice_is_not_split_by() -> None:
    @pf.nest
    def twice(x: f64[16], out: f64[16]):
        y = np.empty(16)
        for i in range(8):
            for t in range(2):
                y[i] = x[i] * t
        for i in range(8):
            y[8 + i] = x[i] + 1.0
        for i in range(16):
            out[i] = y[i]

    assert pf.rewrite.pieces(twice).nest is twice

"""Rows made and reduced in one pass: where that is done, and that it computes what the oracle does."""

from __future__ import annotations

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.ir import Nest, Tensor, statement
from polyfuse.machine import Machine
from polyfuse.strategy.pipeline import plan_for

ONE_CORE = Machine.preset("zen5")


def by_rows(reduced: str, made: str = "exp(x[i, j])") -> Nest:
    return Nest.of(
        [
            Tensor("x", (6, 40), "float64", "input"),
            Tensor("e", (6, 40), "float64", "output"),
            Tensor("s", (6,), "float64", "output"),
        ],
        [
            statement("{ M[i, j] : 0 <= i < 6 and 0 <= j < 40 }", f"e[i, j] = {made}"),
            statement("{ Z[i] : 0 <= i < 6 }", "s[i] = 0.0"),
            statement("{ R[i, j] : 0 <= i < 6 and 0 <= j < 40 }", reduced),
        ],
    )


@pytest.mark.parametrize(
    "reduced", ["s[i] += e[i, j]", "s[i] max= e[i, j]", "s[i] += e[i, j] * x[i, j]", "s[i] += e[i, 39 - j]"]
)
def test_a_row_is_reduced_where_it_is_made(reduced: str) -> None:
    nest = by_rows(reduced)
    schedule = plan_for(nest, ONE_CORE).schedule
    assert schedule.loops("M")[-1] is schedule.loops("R")[-1]
    assert schedule.loops("R")[-1].bind == "vector"
    x = np.random.default_rng(0).standard_normal((6, 40))
    e, s = pf.compile(nest, target="cpu", schedule=schedule)(x)
    expected = pf.interpret(nest, {"x": x})
    np.testing.assert_allclose(e, expected["e"], rtol=1e-14)
    np.testing.assert_allclose(s, expected["s"], rtol=1e-13)


def test_a_row_that_is_read_elsewhere_first_is_not() -> None:
    """The sum reads elements j and 39 - j: one of them is not there yet when the other is made."""
    schedule = plan_for(by_rows("s[i] += e[i, j] * e[i, 39 - j]"), ONE_CORE).schedule
    assert schedule.loops("M")[-1] is not schedule.loops("R")[-1]


def test_softmax_makes_exponentials_and_their_sum_in_one_loop() -> None:
    net = pf.compile(pf.lower(nn.Softmax(), batch=4, features=100), target="cpu")
    lines = [line.strip() for line in net.source.splitlines()]
    place = next(n for n, line in enumerate(lines) if line.startswith("e[j] ="))
    assert lines[place + 1] == "rowsum_sum = add_any_order(rowsum_sum, e[j])"

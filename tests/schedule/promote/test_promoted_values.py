"""promote of a value: computed once for a loop, kept in a buffer, bit by bit what the statement computed; refusals."""

from __future__ import annotations

from dataclasses import replace

import islpy as isl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyfuse as pf
from polyfuse.analysis.validation import validate
from polyfuse.errors import InvalidSchedule, ValidationFailure
from polyfuse.ir import Nest, Tensor, statement
from polyfuse.ir.scalar import add, mul, number, read
from polyfuse.sets import SET
from tests.support.examples import examples

# ruff: noqa: F821

VALUES = (
    "c * x[i, k]",
    "x[i, k] * c + u[k]",
    "max(x[i, k], u[i]) / c",
    "exp(x[i, k]) - x[i, k] * v[k]",
    "x[i, k]",
    "x[k, i] * v[k]",
)
"""Values of (i, k) in a sum over k."""


def sums(value: str, steps: int) -> Nest:
    """y[i, j] += value * w[k, j] for 6 x 5 sums."""
    box = f"0 <= i < 6 and 0 <= j < 5 and 0 <= k < {steps}"
    extents = {"c": (), "x": (12, 12), "u": (12,), "v": (12,), "w": (12, 5), "y": (6, 5)}
    s = statement(f"{{ mac[i, j, k] : {box} }}", f"y[i, j] += ({value}) * w[k, j]")
    kinds = {"y": "inout"}
    return Nest.of(
        [Tensor(t, extents[t], "float64", kinds.get(t, "input")) for t in extents if t in s.tensors], [s]
    )


@settings(max_examples=examples(40), deadline=None)
@given(
    value=st.sampled_from(VALUES),
    steps=st.integers(1, 12),
    block=st.integers(1, 5),
    order=st.permutations(["i", "k", "j", "k_in"]),
    at=st.integers(0, 3),
    panel=st.sampled_from([None, (0, 4), (1, 2)]),
)
def test_a_value_at_any_loop_keeps_every_bit(
    value: str, steps: int, block: int, order: list[str], at: int, panel: tuple[int, int] | None
) -> None:
    nest = sums(value, steps)
    if order.index("k_in") < order.index("k"):
        order = [{"k": "k_in", "k_in": "k"}.get(name, name) for name in order]
    s = pf.Schedule(nest).split("mac", "k", block).reorder("mac", *order)
    s = s.promote(value, "mac", at=order[at], panel=panel)
    validate(s.source, s.nest, s.tree)
    rng = np.random.default_rng(3)
    arrays = {t.name: rng.standard_normal(t.shape) for t in nest.inputs}
    wanted = pf.interpret(nest, arrays)["y"]
    pf.compile(nest, target="cpu", schedule=s)(**arrays)
    np.testing.assert_allclose(arrays["y"], wanted, rtol=1e-12, atol=1e-12)


def test_the_buffer_holds_the_value_and_the_sum_reads_it() -> None:
    s = pf.Schedule(sums("c * x[i, k]", 8)).promote("c * x[i, k]", "mac", at="i")
    assert "load_x: x_local[i, e0, e1] = c * x[e0, e1]" in str(s)
    assert "mac: y[i, j] += x_local[i, i, k] * w[k, j]" in str(s)
    assert s.trace().endswith("s.promote('c * x[i, k]', 'mac', at='i', memory='local')")


def test_one_of_two_reads_of_a_tensor() -> None:
    nest = sums("x[i, k]", 8)
    squares = statement(
        "{ mac[i, j, k] : 0 <= i < 6 and 0 <= j < 5 and 0 <= k < 8 }", "y[i, j] += x[i, k] * x[j, k]"
    )
    nest = Nest.of([t for t in nest.tensors if t.name in "xy"], [squares])
    s = pf.Schedule(nest).promote("x[j, k]", "mac", at="i")
    assert "mac: y[i, j] += x[i, k] * x_local[i, j, k]" in str(s)
    validate(s.source, s.nest, s.tree)


@pf.nest
def changing(c: f64, x: f64[N], n: i64[N], y: f64[N], z: f32[N]):
    for i in range(N):
        y[i] += (c + i) * x[i]
    for i in range(N - 1):
        for j in range(N - 1):
            x[j + 1] += (c * x[i]) * y[j]
    for i in range(N):
        y[i] += (c * z[i]) * x[i]
    for i in range(N):
        y[i] += x[i] / (c * x[i])


@pytest.mark.parametrize(
    ("statement", "value", "why"),
    [
        ("S0", "c * x[i]", "'c [*] x.i.' is neither a tensor nor a value in S0"),
        ("S0", "c + i", r"c \+ i depends on an index of S0 as a number"),
        ("S1", "c * x[i]", "x is written after load_x would have copied it"),
        ("S2", "c * z[i]", "in S2 mixes float32 and float64"),
        ("S3", "1.0 / (c * x[i])", "stands for a division"),
    ],
)
def test_what_is_refused(statement: str, value: str, why: str) -> None:
    schedule = pf.Schedule(changing)
    with pytest.raises(InvalidSchedule, match=why):
        schedule.promote(value, statement, at=schedule.loops(statement)[0].name)


def test_a_copy_that_computes_something_else_is_found() -> None:
    s = pf.Schedule(sums("c * x[i, k]", 8)).promote("c * x[i, k]", "mac", at="i")
    copy = s.nest.statement("load_x")
    for other in (add(read(0), read(1)), mul(read(1), read(0)), mul(mul(read(0), read(1)), number(2))):
        wrong = replace(copy, body=other)
        nest = replace(s.nest, statements=tuple(wrong if x is copy else x for x in s.nest.statements))
        with pytest.raises(ValidationFailure, match="validation of copies failed"):
            validate(s.source, nest, s.tree)


def test_a_copy_that_leaves_elements_out_is_found() -> None:
    s = pf.Schedule(sums("c * x[i, k]", 8)).promote("c * x[i, k]", "mac", at="i")
    copy = s.nest.statement("load_x")
    fewer = replace(copy, domain=copy.domain.lower_bound_val(SET, 2, isl.Val(1)))
    nest = replace(s.nest, statements=tuple(fewer if x is copy else x for x in s.nest.statements))
    with pytest.raises(ValidationFailure, match="which load_x does not fill"):
        validate(s.source, nest, s.tree)

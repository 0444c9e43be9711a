"""Bodies keep the order of floating-point operations through every change of form."""

from __future__ import annotations

import json

import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from polyfuse.interpret.array_body import function_of
from polyfuse.ir.scalar import (
    FUNCTIONS,
    Maximum,
    Minimum,
    Read,
    Select,
    add,
    combine,
    decode,
    div,
    encode,
    greater,
    mul,
    neg,
    number,
    operations,
    power,
    read,
    reads_in,
    renumber,
    sub,
    substitute,
)

leaves = st.one_of(
    st.integers(0, 2).map(read),
    st.floats(allow_nan=False, allow_infinity=False, width=32).map(number),
    st.integers(-3, 3).map(number),
    st.just(sympy.Symbol("i")),
)
bodies = st.recursive(
    leaves,
    lambda inner: st.one_of(
        *(st.builds(f, inner, inner) for f in (add, sub, mul, div, Maximum, Minimum)),
        *(
            st.builds(FUNCTIONS[f], inner)
            for f in ("exp", "tanh", "abs", "erf", "sqrt", "floor", "log1p", "acos")
        ),
        st.builds(neg, inner),
        st.builds(lambda c, a, b: Select(greater(c, a), a, b), inner, inner, inner),
    ),
    max_leaves=8,
)


@given(bodies)
def test_encode_and_decode_are_inverse_also_through_json(body: sympy.Basic) -> None:
    again = decode(json.loads(json.dumps(encode(body))))
    assert encode(again) == encode(body)
    assert sympy.srepr(again) == sympy.srepr(body)


@given(bodies)
def test_substituting_a_leaf_by_itself_changes_nothing(body: sympy.Basic) -> None:
    assert encode(substitute(body, {read(0): read(0)})) == encode(body)
    there = renumber(body, [2, 0, 1])
    assert encode(renumber(there, [1, 2, 0])) == encode(body)


@given(bodies, st.lists(st.floats(-4, 4), min_size=4, max_size=4))
def test_a_decoded_body_computes_the_same_bits(body: sympy.Basic, values: list[float]) -> None:
    positions = {"read0": 0, "read1": 1, "read2": 2, "i": 3}
    arguments = [np.float64(v) for v in values]
    with np.errstate(all="ignore"):
        first = function_of(body, positions)(arguments)
        second = function_of(decode(encode(body)), positions)(arguments)
    assert np.array_equal(first, second, equal_nan=True)


def test_nothing_is_simplified() -> None:
    x, y = read(0), read(1)
    assert encode(sub(add(x, y), x)) == ["Add", ["Add", "read0", "read1"], ["Mul", -1, "read0"]]
    assert encode(add(y, x)) == ["Add", "read1", "read0"]
    assert encode(mul(number(1.0), x)) == ["Mul", 1.0, "read0"]
    assert encode(add(x, number(0.0))) == ["Add", "read0", 0.0]
    assert encode(div(x, x)) == ["Mul", "read0", ["Pow", "read0", -1]]
    assert encode(power(power(x, number(2)), number(0.5))) == ["Pow", ["Pow", "read0", 2], 0.5]
    assert encode(Maximum(x, x)) == ["Maximum", "read0", "read0"]


def test_substitution_keeps_order_and_does_not_simplify() -> None:
    body = sub(add(read(0), read(1)), read(0))
    assert encode(substitute(body, {read(1): number(0.0)})) == [
        "Add", ["Add", "read0", 0.0], ["Mul", -1, "read0"],
    ]  # fmt: skip
    nested = substitute(mul(read(0), read(1)), {read(0): add(read(1), read(2)), read(1): neg(read(1))})
    assert encode(nested) == ["Mul", ["Add", "read1", "read2"], ["Mul", -1, "read1"]]


@pytest.mark.parametrize("value", [0.1, 1e-5, 1e300, 5e-324, -0.75, float("inf"), 3, -7])
def test_literals_keep_every_bit(value: float) -> None:
    assert encode(decode(encode(number(value)))) == value
    assert type(encode(number(value))) is type(value)


def test_reads_are_listed_once_by_position() -> None:
    assert reads_in(add(read(1), mul(read(0), read(1)))) == [read(0), read(1)]
    assert (read(3).position, type(decode("read3")), type(decode("ready"))) == (3, Read, sympy.Symbol)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("=", "new"),
        ("+=", ["Add", "old", "new"]),
        ("*=", ["Mul", "old", "new"]),
        ("max=", ["Maximum", "old", "new"]),
        ("min=", ["Minimum", "old", "new"]),
    ],
)
def test_what_an_operator_stores(op: str, expected: object) -> None:
    assert encode(combine(op, sympy.Symbol("old"), sympy.Symbol("new"))) == expected


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (read(0), 0),
        (add(read(0), read(1)), 1),
        (sub(read(0), read(1)), 1),
        (div(read(0), read(1)), 1),
        (add(mul(read(0), read(1)), read(2)), 2),
        (FUNCTIONS["exp"](read(0)), 1),
        (FUNCTIONS["sqrt"](read(0)), 1),
        (Select(greater(read(0), number(0)), read(0), neg(read(0))), 2),
    ],
)
def test_operations_are_counted(body: sympy.Basic, count: int) -> None:
    assert operations(body) == count


def test_the_subgradient_of_a_maximum() -> None:
    x = sympy.Symbol("x")
    derivative = Maximum(x, sympy.Integer(0)).diff(x)
    assert encode(derivative) == ["Select", ["StrictGreaterThan", "x", 0], 1, 0]

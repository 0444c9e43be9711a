"""Bodies as source: maxima, what a choice is between, types; and that NaN goes through each form of a maximum."""

# ruff: noqa: F821, UP037  (sizes are names in annotations)

from __future__ import annotations

import ast

import numpy as np
import pytest
import sympy

import polyfuse as pf
from polyfuse.codegen.cpu.intrinsic_table import FUNCTIONS
from polyfuse.codegen.looptree.body_source import Values
from polyfuse.codegen.looptree.nodes import Element, Store
from polyfuse.ir.number_types import DType
from polyfuse.ir.scalar import BitAnd, BitXor, Maximum, Minimum, Select, add, greater, mul, number, read

NAN = np.float32(np.nan)


def element(name: str, dtype: DType = "float32", at: str = "i") -> Element:
    return Element(name, (ast.Name(at),) if at else (), dtype)


def place(one: Element) -> ast.expr:
    return ast.parse(f"{one.array}[i]" if one.subscripts else one.array, mode="eval").body


def lines(
    body: sympy.Basic, *types: DType, at: str = "i", op: str = "=", cpu: bool = True, at_once: bool = False
) -> list[str]:
    """What is printed for y = body, where y and the leaves x0, x1, … have these types."""
    target, *leaves = types
    reads = tuple(element(f"x{n}", dtype) for n, dtype in enumerate(leaves))
    store = Store("S", element("y", target, at), op, body, reads)
    return Values(store, place, FUNCTIONS if cpu else None, at_once).lines()


@pytest.mark.parametrize(
    ("types", "cpu", "printed"),
    [
        (["float32"] * 3, True, "y[i] = larger(x0[i], x1[i])"),
        (["float32"] * 3, False, "y[i] = x1[i] if x0[i] <= x1[i] or x1[i] != x1[i] else x0[i]"),
        (["int64"] * 3, True, "y[i] = x1[i] if x0[i] <= x1[i] else x0[i]"),
        (["float64", "float32", "float64"], True, "y[i] = larger(float64(x0[i]), x1[i])"),
    ],
)  # fmt: skip
def test_a_maximum_is_one_operation_of_floats_on_a_cpu(types: list[DType], cpu: bool, printed: str) -> None:
    assert lines(Maximum(read(0), read(1)), *types, cpu=cpu) == [printed]


def test_what_a_choice_is_between_is_read_once_and_before() -> None:
    body = Select(greater(read(0), number(0)), mul(read(1), number(2)), add(read(2), read(3)))
    reads = tuple(map(element, ("x", "a", "a", "b")))
    store = Store("S", element("y"), "=", body, reads)
    assert Values(store, place, FUNCTIONS, at_once=True).lines() == [
        "value0 = a[i]",
        "value1 = b[i]",
        "y[i] = value0 * float32(2.0) if x[i] > float32(0.0) else value0 + value1",
    ]
    assert Values(store, place, FUNCTIONS).lines() == [
        "y[i] = a[i] * float32(2.0) if x[i] > float32(0.0) else a[i] + b[i]"
    ]


@pytest.mark.parametrize(
    ("types", "at", "op", "printed"),
    [
        (["int32", "int32", "int32"], "i", "=", "y[i] = int32(x0[i] * x1[i])"),
        (["int64", "int32", "int32"], "i", "=", "y[i] = int32(x0[i] * x1[i])"),
        (["int64", "int64", "int32"], "i", "=", "y[i] = x0[i] * x1[i]"),
        (["int32", "int32", "int32"], "i", "+=", "y[i] += int32(x0[i] * x1[i])"),
        (["int32", "int32", "int32"], "", "+=", "y = int32(y + int32(x0[i] * x1[i]))"),
        (["int32", "int64", "int64"], "", "=", "y = int32(x0[i] * x1[i])"),
        (["float32", "float64", "float64"], "", "+=", "y = float32(y + x0[i] * x1[i])"),
        (["float64", "float32", "float32"], "", "+=", "y += x0[i] * x1[i]"),
    ],
)
def test_a_variable_keeps_its_type_as_an_array_does(
    types: list[DType], at: str, op: str, printed: str
) -> None:
    assert lines(mul(read(0), read(1)), *types, at=at, op=op) == [printed]


@pytest.mark.parametrize(
    ("types", "printed"),
    [
        (["float64", "float32"], "y[i] = x0[i] * float32(1.5)"),
        (["float32", "float64"], "y[i] = x0[i] * float64(1.5)"),
        (["int32", "int32"], "y[i] = x0[i] * float64(1.5)"),
    ],
)
def test_a_number_takes_the_type_of_what_it_meets(types: list[DType], printed: str) -> None:
    assert lines(mul(read(0), number(1.5)), *types) == [printed]


def numbers() -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Pairs in which either number, both or none is NaN, at each place of a vector."""
    pairs = np.random.default_rng(0).standard_normal((2, 50, 70)).astype(np.float32)
    pairs[0, ::3, ::2] = NAN
    pairs[1, ::2, ::5] = NAN
    return pairs


def test_nan_goes_through_each_form_of_a_maximum() -> None:
    @pf.nest
    def forms(
        x: "f32[2, 50, 70]", each: "f32[50, 70]", ahead: "f32[50, 70]", rows: "f32[50]", near: "f32[50, 70]"
    ):  # type: ignore[no-untyped-def]
        for i in range(50):
            for j in range(70):
                each[i, j] = max(x[0, i, j], x[1, i, j]) + min(x[1, i, j], 0.5)
        for i in range(50):
            for j in range(1, 70):
                ahead[i, j] = max(ahead[i, j - 1], x[0, i, j])
        for i in range(50):
            for j in range(70):
                rows[i] = min(rows[i], x[0, i, j])
        for i in range(50):
            for j in range(1, 69):
                near[i, j] = max(max(x[1, i, j - 1], x[1, i, j]), x[1, i, j + 1])

    x = numbers()
    results = [np.zeros(shape, np.float32) for shape in ((50, 70), (50, 70), (50,), (50, 70))]
    net = pf.compile(forms, target="cpu")
    net(x, *results)
    each, ahead, rows, near = results
    np.testing.assert_array_equal(each, np.maximum(*x) + np.minimum(x[1], np.float32(0.5)))
    np.testing.assert_array_equal(ahead[:, 1:], np.maximum.accumulate(np.maximum(x[0, :, 1:], 0), axis=1))
    np.testing.assert_array_equal(rows, np.minimum(x[0].min(axis=1), 0))
    np.testing.assert_array_equal(
        near[:, 1:-1], np.maximum(np.maximum(x[1, :, :-2], x[1, :, 1:-1]), x[1, :, 2:])
    )
    assert "row_of_lanes(" in net.source


def test_nan_goes_through_a_short_row_behind_a_product() -> None:
    linear = pf.nn.Linear(24, 40)
    nest = pf.lower(pf.nn.Sequential(linear, pf.nn.ReLU()), batch=9)
    net = pf.compile(nest, target="cpu")
    x = np.random.default_rng(1).standard_normal((9, 24)).astype(np.float32)
    x[::2, 3] = NAN
    assert "short_row(" in net.source
    out = net(x)
    assert np.isnan(out[::2]).all()
    assert not np.isnan(out[1::2]).any()
    np.testing.assert_allclose(out, pf.interpret(nest, [x])["out"], 1e-5, 1e-5)


def test_the_smaller_of_two() -> None:
    assert lines(Minimum(read(0), number(2)), "float32", "float32") == ["y[i] = smaller(x0[i], float32(2.0))"]


def test_bits_of_short_numbers_are_not_cut_where_long_ones_are_computed() -> None:
    bits = BitXor(read(0), BitAnd(read(1), number(1)))
    assert lines(bits, "int64", "int64", "uint8") == ["y[i] = x0[i] ^ int64(x1[i] & uint8(1))"]
    assert lines(bits, "uint8", "uint8", "uint8") == ["y[i] = uint8(x0[i] ^ uint8(x1[i] & uint8(1)))"]

"""Statements and nests as LaTeX."""

from __future__ import annotations

from collections.abc import Callable

import islpy as isl
import pytest

from polyfuse.ir import Access, Nest, Statement, statement
from polyfuse.ir.scalar import number
from polyfuse.show import latex
from polyfuse.show.formulas import assignment, domain
from tests.show.subjects import dense, jacobi

BODIES = [
    ("a[i] + b[i] - c[i]", "a_{i} + b_{i} - c_{i}"),
    ("a[i] + (b[i] - (c[i] - a[i]))", r"a_{i} + \left(b_{i} - \left(c_{i} - a_{i}\right)\right)"),
    ("a[i] - b[i] / c[i]", r"a_{i} - \frac{b_{i}}{c_{i}}"),
    ("a[i] * b[i] / c[i]", r"\frac{a_{i} \, b_{i}}{c_{i}}"),
    ("a[i] * (b[i] * c[i])", r"a_{i} \, \left(b_{i} \, c_{i}\right)"),
    ("a[i] * (b[i] / c[i])", r"a_{i} \, \frac{b_{i}}{c_{i}}"),
    ("(a[i] + b[i]) * c[i]", r"\left(a_{i} + b_{i}\right) \, c_{i}"),
    ("-(a[i] + b[i]) * 2", r"-\left(a_{i} + b_{i}\right) \cdot 2"),
    ("1 / (1 + exp(-a[i]))", r"\frac{1}{1 + e^{-a_{i}}}"),
    ("a[i] ** -2 + sqrt(b[i])", r"a_{i}^{-2} + \sqrt{b_{i}}"),
    ("0.1 * a[i] + i", r"0.1 \, a_{i} + i"),
    ("int8(a[i] + 1)", r"\operatorname{int8}\left(a_{i} + 1\right)"),
    ("max(a[i], min(b[i], 6))", r"\max\left(a_{i}, \min\left(b_{i}, 6\right)\right)"),
    (
        "where(a[i] > 0, a[i], 0)",
        r"\begin{cases} a_{i} & \text{if } a_{i} > 0 \\ 0 & \text{otherwise} \end{cases}",
    ),
]


@pytest.mark.parametrize(("body", "expected"), BODIES)
def test_a_body_keeps_its_order_and_its_brackets(body: str, expected: str) -> None:
    assert assignment(statement("{ S[i] : 0 <= i < 8 }", f"y[i] = {body}")) == f"y_{{i}} = {expected}"


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("s", "s"),
        ("y[i + 1, 2 * i - 1]", "y_{i + 1, 2 i - 1}"),
        ("y[i // 4]", r"y_{\left\lfloor{\frac{i}{4}}\right\rfloor}"),
        ("y[i % 4]", r"y_{i - 4 \left\lfloor{\frac{i}{4}}\right\rfloor}"),
        ("out_0[N - i]", r"\mathit{out\_0}_{N - i}"),
    ],
)  # fmt: skip
def test_subscripts_are_written_as_mathematics(target: str, expected: str) -> None:
    assert assignment(statement("[N] -> { S[i] : 0 <= i < N }", f"{target} = 0")) == f"{expected} = 0"


@pytest.mark.parametrize(
    ("op", "expected"),
    [("+=", r"\mathrel{+}="), ("*=", r"\mathrel{\times}="), ("max=", r"\mathrel{\max}=")],
)
def test_a_reduction_keeps_its_operator(op: str, expected: str) -> None:
    assert assignment(statement("{ S[i] : 0 <= i < 8 }", f"s {op} x[i]")) == f"s {expected} x_{{i}}"


def test_a_subscript_in_pieces_is_isls_text() -> None:
    domain_ = isl.Set("{ S[i] : 0 <= i < 8 }")
    clamped = Access("y", isl.Map("{ S[i] -> y[0] : i < 4; S[i] -> y[i] : i >= 4 }"))
    assert assignment(Statement("S", domain_, clamped, "=", (), number(0))).startswith(r"y_{\mathtt{")


def test_names_with_underscores_do_not_become_subscripts() -> None:
    assert domain(statement("[n_x] -> { S_0[row, c] : 0 <= row, c < n_x }", "y[row] = c").domain) == (
        r"\mathit{n\_x} \to \{\, \mathrm{S\_0}(\mathit{row}, c) \mid "
        r"0 \le \mathit{row} < \mathit{n\_x} \wedge 0 \le c < \mathit{n\_x} \,\}"
    )


@pytest.mark.parametrize(("name", "nest"), [("jacobi", jacobi), ("dense", dense)])
def test_a_nest_is_an_array_of_its_statements(
    name: str, nest: Callable[[], Nest], golden: Callable[[str, str], None]
) -> None:
    golden(f"show/{name}.tex", latex(nest()))


def test_a_statement_is_a_line() -> None:
    only = jacobi().statements[0]
    assert latex(only) == rf"{assignment(only)} \qquad {domain(only.domain)}"


def test_operations_on_integers_and_functions_that_sympy_has_not() -> None:
    only = statement("{ S[i] : 0 <= i < 8 }", "y[i] = (k[i] // 3 % 5 << 2) - log2(k[i] & 6)")
    assert assignment(only) == (
        r"y_{i} = \left(\left(\left\lfloor{\frac{k_{i}}{3}}\right\rfloor \bmod 5\right) \ll 2\right)"
        r" - \operatorname{log2}\left(\left(k_{i} \mathbin{\&} 6\right)\right)"
    )

"""The text form of statements and nests, both ways."""

from __future__ import annotations

from collections.abc import Callable

import islpy as isl
import numpy as np
import pytest
from hypothesis import given

from polyfuse import nn
from polyfuse.errors import InvalidNest
from polyfuse.ir import Nest, Statement, Tensor, statement
from polyfuse.ir.nest_text import body_text, statement_text
from polyfuse.ir.scalar import encode
from tests.support.nests import nests

TEXTS = [
    "y[i, j] += x[i, k] * w[k, j]",
    "y[i, j] = (x[i, j] - m[i]) * r[i] / 8.0",
    "y[i, j] = x[i, j] - (m[i] - r[i])",
    "y[i, j] max= abs(x[i, k])",
    "y[i, j] *= where(x[i, j] > 0, x[i, j], 0.01 * x[i, j])",
    "y[i, j] min= -inf",
    "y[i, j] = pow(x[i, j], 3.0) + sqrt(x[i, j]) + exp(-x[i, j]) + erf(log(i + 1))",
    "y[i, j] = floor(x[i, j]) + log1p(x[i, j]) * asinh(x[i, j])",
    "y[i, j] = (k[i] // 3 % k[j] << 2) - (k[i] >> 1 & k[j] | k[i] ^ 5)",
    "s = x[i, j]",
    "y[7 - i, i + 2 * j] = a + 1",
]


def over_box(text: str) -> Statement:
    return statement("{ S[i, j, k] : 0 <= i, j, k < 8 }", text)


@pytest.mark.parametrize("text", TEXTS)
def test_what_is_printed_reads_back_to_the_same_statement(text: str) -> None:
    first = over_box(text)
    assert equal(over_box(body_text(first).replace("2j", "2 * j")), first)


def equal(a: Statement, b: Statement) -> bool:
    same = (a.name, a.op, encode(a.body), len(a.reads)) == (b.name, b.op, encode(b.body), len(b.reads))
    return same and all(
        x.tensor == y.tensor and x.map.is_equal(y.map) for x, y in zip(a.accesses, b.accesses, strict=True)
    )


@given(nests())
def test_random_statements_read_back(nest: Nest) -> None:
    for s in nest.statements:
        text = body_text(s)
        for d in s.dims:
            text = text.replace(f"2{d}", f"2*{d}")
        if " : " not in text:
            assert equal(statement(s.domain, text), s)


def test_quasi_affine_subscripts() -> None:
    found = over_box("y[i // 2, j % 3] = x[i, 2 * (j + 1) - 1]")
    assert found.write.map.is_equal(isl.Map("{ S[i, j, k] -> y[floor(i/2), j mod 3] }"))
    assert str(found.reads[0]) == "x[i, 1 + 2j]"


def test_equal_accesses_are_one_read() -> None:
    found = over_box("y[i, j] = x[i, k] * x[i, k] + x[i, 0 + k]")
    assert [str(a) for a in found.reads] == ["x[i, k]"]
    assert encode(found.body) == ["Add", ["Mul", "read0", "read0"], "read0"]


def test_indices_and_sizes_are_numbers_in_a_body() -> None:
    found = statement("[N] -> { S[i] : 0 <= i < N }", "y[i] = x[N - 1 - i] * (i + N) + a")
    assert [str(a) for a in found.reads] == ["x[-1 + N - i]", "a"]
    assert encode(found.body) == ["Add", ["Mul", "read0", ["Add", "i", "N"]], "read1"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("y[i]", r"cannot read 'y\[i\]'"),
        ("y[i] = x[i] +", r"statement S: cannot read 'x\[i\] \+'"),
        ("y[i] = x[i * j]", r"x\[\(i \* j\)\] is not affine in i, j, k"),
        ("y[i] = x[x[i]]", "is not affine"),
        ("y[i] = gamma(x[i])", r"cannot read 'gamma\(x\[i\]\)'; allowed are .*exp"),
        ("y[i] = x[i] if i else 0", "cannot read 'x"),
        ("y[i] = f(x)[i]", "expected TENSOR"),
        ("y[i] -= x[i]", "cannot read"),
    ],
)
def test_what_cannot_be_read_is_said(text: str, message: str) -> None:
    with pytest.raises(InvalidNest, match=message):
        over_box(text)


def test_the_text_of_a_nest(golden: Callable[[str, str], None]) -> None:
    x = nn.input("x", (64, 512))
    layer = nn.Linear(512, 10)
    golden("nest_softmax.txt", str(nn.lower(nn.softmax(nn.relu(layer(x))), name="classifier")))


def test_infinity_has_a_name() -> None:
    assert body_text(over_box("s max= -inf")) == "s max= -inf"
    assert "e309" not in statement_text(over_box("s = inf"))


def test_the_text_of_tensors() -> None:
    assert str(Tensor("A", ("N", 3), "float64", "inout")) == "inout A: float64[N, 3]"
    assert str(Tensor("a", (), "float32", "input")) == "input a: float32[]"


def test_constants_are_references() -> None:
    w = np.ones((2, 2))
    nest = nn.lower(nn.input("x", (1, 2), "float64") @ w)
    assert nest.constants["w0"] is w

"""What `check_copies` refuses: statements beside a source's that are not copies, each into a buffer of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

import polyfuse as pf
from polyfuse.analysis.copies import check_copies, holds_rounded, rounds
from polyfuse.errors import ValidationFailure
from polyfuse.ir import DType, Nest, Statement, Tensor, statement
from polyfuse.ir.precision import Math
from polyfuse.ir.scalar import Tf32

TENSORS = [Tensor("x", (8,), "float32", "input"), Tensor("y", (8,), "float32", "output")]
TWICE = statement("{ twice[i] : 0 <= i < 8 }", "y[i] = 2 * x[i]")
COPIED = statement("{ twice[i] : 0 <= i < 8 }", "y[i] = 2 * b[i]")
COPY = statement("{ copy[i] : 0 <= i < 8 }", "b[i] = x[i]")


def written(name: str, text: str) -> Statement:
    """A statement over eight elements; `b[i] = tf32 x[i]` rounds what it reads."""
    made = statement(f"{{ {name}[i] : 0 <= i < 8 }}", text.replace("tf32 ", ""))
    return replace(made, body=Tf32(made.body)) if "tf32 " in text else made


def checked(statements: list[Statement], source: Nest | None = None) -> None:
    nest = Nest.of([*TENSORS, Tensor("b", (8,), "float32", "temporary")], statements)
    check_copies(source or Nest.of(TENSORS, [TWICE]), nest, pf.Schedule(nest).tree)


def test_a_copy_is_allowed() -> None:
    checked([COPY, COPIED])


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ([COPY, statement("{ again[i] : 0 <= i < 8 }", "b[i] = x[i]")], "two statements write one buffer"),
        ([COPY, statement("{ other[i] : 0 <= i < 8 }", "y[i] = x[i]")], "two statements write one buffer"),
        ([statement("{ copy[i] : 0 <= i < 8 }", "b[i] = x[i] + i")], "copy is not a copy of values"),
    ],
)
def test_other_statements_are_refused(more: list[Statement], why: str) -> None:
    with pytest.raises(ValidationFailure, match=why):
        checked([*more, COPIED])


def test_another_original_order_is_refused() -> None:
    first = statement("{ first[i] : 0 <= i < 8 }", "y[i] = 0.0")
    with pytest.raises(ValidationFailure, match="original order is another one"):
        checked([COPY, COPIED, first], Nest.of(TENSORS, [first, TWICE]))


@pytest.mark.parametrize(
    ("given", "held", "text", "format"),
    [
        ("float32", "float32", "tf32 x[i]", "tf32"),
        ("float32", "float32", "x[i]", None),
        ("float32", "float16", "x[i]", "f16"),
        ("float32", "bfloat16", "x[i]", "bf16"),
        ("float16", "float16", "x[i]", None),
        ("float16", "float16", "2 * x[i]", "f16"),
        ("float16", "bfloat16", "x[i]", "bf16"),
        ("float64", "float32", "x[i]", None),
        ("float32", "float64", "x[i]", None),
    ],
)
def test_the_format_to_which_a_copy_rounds(given: DType, held: DType, text: str, format: Math | None) -> None:
    copy = written("copy", f"b[i] = {text}")
    nest = Nest.of([Tensor("x", (8,), given, "input"), Tensor("b", (8,), held, "output")], [copy])
    assert rounds(nest, copy) == format
    assert not holds_rounded(nest, "b", "tf32")  # a result, to which others may write


@pytest.mark.parametrize(
    ("texts", "holds"),
    [
        (["tf32 x[i]"], True),
        (["0.0", "tf32 x[i]"], True),
        (["x[i]"], False),
        (["1.0"], False),
        (["tf32 x[i]", "2 * x[i]"], False),
        ([], False),
    ],
)
def test_a_buffer_holds_rounded_numbers_if_all_its_writers_round(texts: list[str], holds: bool) -> None:
    writers = [written(f"copy{n}", f"b[i] = {text}") for n, text in enumerate(texts)]
    last = statement("{ last[i] : 0 <= i < 8 }", "y[i] = b[i]" if texts else "y[i] = x[i]")
    tensors = [*TENSORS, Tensor("b", (8,), "float32", "temporary")]
    nest = Nest.of(tensors, [*writers, last])
    assert holds_rounded(nest, "b", "tf32") is holds
    assert not holds_rounded(nest, "b", "bf16")
    assert not holds_rounded(nest, "x", "tf32")


def test_halves_hold_numbers_of_their_own_format() -> None:
    made = statement("{ made[i] : 0 <= i < 8 }", "y[i] = x[i]")
    nest = Nest.of([Tensor("x", (8,), "float16", "input"), Tensor("y", (8,), "float64", "output")], [made])
    assert holds_rounded(nest, "x", "f16")
    assert not holds_rounded(nest, "x", "bf16")
    assert holds_rounded(nest, "y", "f64")


def test_a_circle_of_copies_holds_nothing_that_is_rounded() -> None:
    """b is first written with rounded numbers, and then with what c holds, which is what b held."""
    tensors = [*TENSORS, *(Tensor(name, (8,), "float32", "temporary") for name in "bc")]
    texts = ("b[i] = tf32 x[i]", "c[i] = b[i]", "b[i] = c[i]", "y[i] = b[i]")
    every = [written(f"S{n}", text) for n, text in enumerate(texts)]
    assert not holds_rounded(Nest.of(tensors, every), "b", "tf32")
    assert holds_rounded(Nest.of(tensors, [*every[:2], every[3]]), "c", "tf32")

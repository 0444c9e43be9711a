"""What `check_copies` refuses: statements beside a source's that are not copies, each into a buffer of its own."""

from __future__ import annotations

import pytest

import polyfuse as pf
from polyfuse.analysis.copies import check_copies
from polyfuse.errors import ValidationFailure
from polyfuse.ir import Nest, Statement, Tensor, statement

TENSORS = [Tensor("x", (8,), "float32", "input"), Tensor("y", (8,), "float32", "output")]
TWICE = statement("{ twice[i] : 0 <= i < 8 }", "y[i] = 2 * x[i]")
COPIED = statement("{ twice[i] : 0 <= i < 8 }", "y[i] = 2 * b[i]")
COPY = statement("{ copy[i] : 0 <= i < 8 }", "b[i] = x[i]")


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

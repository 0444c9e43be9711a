"""Conditions taken apart: what holds together is asked part by part, and nothing is lost."""

import ast

import pytest

from polyfuse.codegen.looptree.guards import parts_of


@pytest.mark.parametrize(
    ("condition", "parts"),
    [
        ("a and (b and c)", ["a", "b", "c"]),
        ("i < min(a, b)", ["i < a", "i < b"]),
        ("max(a, b, c) <= i", ["a <= i", "b <= i", "c <= i"]),
        ("max(a, b) < min(c, d)", ["a < c", "b < c", "a < d", "b < d"]),
        ("a or b", ["a or b"]),
        ("max(a, b) > i", ["max(a, b) > i"]),
    ],
)
def test_parts_of_a_condition(condition: str, parts: list[str]) -> None:
    assert [ast.unparse(part) for part in parts_of(ast.parse(condition, mode="eval").body)] == parts

"""Which rows the next value of a loop reads for the first time."""

from __future__ import annotations

import ast

import pytest

from polyfuse.codegen.looptree.leading_reference import leading
from polyfuse.codegen.looptree.nodes import Block, Element, For


def element(text: str) -> Element:
    """x[i + 1, j] as an element."""
    node = ast.parse(text, mode="eval").body
    assert isinstance(node, ast.Subscript)
    assert isinstance(node.slice, ast.Tuple)
    return Element(ast.unparse(node.value), tuple(node.slice.elts), "float32")


@pytest.mark.parametrize(
    ("reads", "step", "asked"),
    [
        (["x[i, j]"], 1, ["x[i + 1, j]"]),
        (["x[i, j]", "x[i + 1, j]", "x[i + 2, j]", "x[i + 2, j + 1]"], 1, ["x[i + 3, j]"]),
        (["x[i, j]", "x[i + 1, j]"], 2, ["x[i + 2, j]", "x[i + 3, j]"]),
        (
            ["x[2 * i, j]", "x[2 * i + 1, j]", "x[2 * i + 2, j]"],
            1,
            ["x[2 * (i + 1) + 1, j]", "x[2 * (i + 1) + 2, j]"],
        ),
        (["x[k, 8 * i + j]"], 1, ["x[k, 8 * (i + 1) + j]"]),
        (["x[i // 2, j]"], 1, ["x[(i + 1) // 2, j]"]),
    ],
)
def test_one_element_of_each_row_that_is_new(reads: list[str], step: int, asked: list[str]) -> None:
    zero = ast.Constant(0)
    outer = For("i", zero, zero, step, None, Block(()))
    found = leading(tuple(map(element, reads)), outer)
    assert [f"{e.array}[{', '.join(map(ast.unparse, e.subscripts))}]" for e in found] == asked

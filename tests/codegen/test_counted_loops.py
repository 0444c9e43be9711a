"""Loops over ranges as while loops: the same passes, with the same numbers."""

import ast
from typing import Any

import pytest

from polyfuse.codegen.counted_loops import counted

NESTED = """
def kernel(n, found):
    for i in range(n):
        i_end = 7
        for j in range(i, n, 2):
            found.append((i, j, i_end))
        for j in range(2, 4):
            found.append((j,))
"""


def function(source: str) -> ast.FunctionDef:
    (made,) = ast.parse(source).body
    assert isinstance(made, ast.FunctionDef)
    return made


def calls(made: ast.FunctionDef, *arguments: Any) -> list[Any]:
    """What the function appends."""
    namespace: dict[str, Any] = {}
    exec(compile(ast.Module([made], []), "<test>", "exec"), namespace)
    found: list[Any] = []
    namespace["kernel"](*arguments, found)
    return found


@pytest.mark.parametrize("n", [0, 1, 5])
def test_the_passes_are_those_of_the_range(n: int) -> None:
    assert calls(counted(function(NESTED)), n) == calls(function(NESTED), n)


def test_an_end_is_computed_once_and_its_name_is_free() -> None:
    made = ast.unparse(counted(function(NESTED)))
    assert "for" not in made
    assert "i_end_2 = n" in made
    assert "while j < 4:" in made

"""Loops over ranges as while loops: the same passes, with the same numbers."""

import ast
from typing import Any

import pytest

from polyfuse.codegen.cuda.compile.canonical_loops import counted

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


def test_only_loops_that_wait_and_stay_if_asked_for() -> None:
    source = """
def kernel():
    for k in range(0, 40):
        for i in range(0, 40):
            pass
        cuda.syncthreads()
    for k in range(0, 2):
        for j in range(0, 40):
            cuda.syncthreads()
    for n in range(0, 2):
        tile_fma(8, 8, 4, y, a, 0, 9, 1, 0, 0, 1, b, 0, 9, 1, 0, 0, 1, n)
        cuda.syncthreads()
    for n in range(0, 2):
        tile_fma(4, 4, 3, y, a, 0, 9, 1, 0, 0, 1, b, 0, 9, 1, 0, 0, 1, n)
        cuda.syncthreads()
"""
    made = ast.unparse(counted(function(source), waiting=True))
    assert [made.count(f"while {name} < ") for name in "kjn"] == [1, 1, 1]
    assert made.count("for ") == 3

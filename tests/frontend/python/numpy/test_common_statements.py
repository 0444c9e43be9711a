"""Statements that both branches of an `if` on sizes have are lowered once, and compute the same."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.frontend.python.numpy.lowering import lowered
from polyfuse.frontend.python.numpy.statements.common_statements import merged
from polyfuse.frontend.python.source import source_of

# ruff: noqa: F821, SIM108


def body(function: Callable[..., Any]) -> str:
    return str(lowered(source_of(function))).split("\n", 1)[1]  # type: ignore[arg-type]  # a plain function


def mixed(x: Any, z: Any) -> Any:
    u = np.empty((x.shape[0], x.shape[0] + z.shape[1]))
    u[:, : x.shape[0]] = x
    u[:, x.shape[0] :] = z
    return u[:, 1:] * 2.0


def chosen(x: f64[N, N], z: f64[N, M]):
    if N == M:
        y = mixed(x, np.ones((N, N)))
    else:
        y = mixed(x, z)
    return y


def test_branches_that_differ_in_one_statement_share_the_others() -> None:
    assert (
        body(chosen)
        == """\
    empty_array = empty((N, N + M), 'float64')
    y = empty((N, N + M - 1), 'float64')
    for i0 in range(N):
        for i1 in range(N):
            empty_array[i0, i1] = x[i0, i1]
    if N == M:
        for i0 in range(N):
            for i1 in range(N):
                empty_array[i0, i1 + N] = 1.0
    else:
        for i0 in range(N):
            for i1 in range(M):
                empty_array[i0, i1 + N] = z[i0, i1]
    for i0 in range(N):
        for i1 in range(N + M - 1):
            y[i0, i1] = empty_array[i0, i1 + 1] * 2.0
    return y"""
    )


@pytest.mark.parametrize(("n", "m"), [(3, 3), (3, 4), (4, 2), (1, 1)])
def test_shared_statements_compute_what_both_branches_did(n: int, m: int) -> None:
    nest = pf.nest(chosen)
    rng = np.random.default_rng(0)
    x, z = rng.random((n, n)), rng.random((n, m))
    known = {"N": n, "M": m}
    found = pf.interpret(nest, {"x": x, "z": z}, sizes=known)
    (result,) = (found[tensor.name] for tensor in nest.with_role("output"))
    expected = mixed(x, np.ones((n, n))) if n == m else mixed(x, z)
    np.testing.assert_array_equal(result, expected)


def inverse_or_solution(a: f64[N, N], b: f64[N, M]):
    if N == M:
        x = np.linalg.inv(a)
    else:
        x = np.linalg.solve(a, b)
    return x


def solution(a: f64[N, N], b: f64[N, M]):
    return np.linalg.solve(a, b)


def test_an_inverse_and_a_solution_are_one_elimination() -> None:
    alone, both = (len(pf.nest(f).statements) for f in (solution, inverse_or_solution))
    assert both <= alone + 3  # ones and zeros of the unit matrix instead of the right sides


def of(text: str) -> list[list[ast.stmt]]:
    """The two branches of an `if` as it is written."""
    (test,) = ast.parse(text).body
    assert isinstance(test, ast.If)
    return [test.body, test.orelse]


def common(text: str, own: str) -> list[str] | None:
    """Return the text of three parts: before both branches, the branches themselves, behind them."""
    bodies = of(text)
    (test,) = ast.parse(text).body
    assert isinstance(test, ast.If)
    found = merged(test.test, bodies, frozenset(own.split()), frozenset("NM"), {})
    if found is None:
        return None
    parts = (found.before, *found.bodies, found.behind)
    return ["; ".join(map(ast.unparse, part)) for part in parts]


def test_sizes_that_the_test_makes_equal_are_those_of_the_other_branch() -> None:
    text = "if N == M:\n  f(2 * N - 1)\n  g(N)\nelse:\n  f(N + M - 1)\n  h(N)"
    assert common(text, "") == ["f(N + M - 1)", "g(N)", "h(N)", ""]
    assert common(text.replace("==", "<"), "") is None
    assert common(text.replace("2 * N", "3 * N"), "") is None


def test_fractions_are_not_added_in_another_order() -> None:
    text = "if N == M:\n  f(a + b + c)\nelse:\n  f(a + (b + c))"
    assert common(text, "") is None


def test_names_of_one_branch_become_those_of_the_other() -> None:
    text = "if N < M:\n  a = x\n  u = 1\n  f(a, u)\nelse:\n  b = x\n  v = 2\n  f(b, v)"
    assert common(text, "a b u v") == ["b = x", "v = 1", "v = 2", "f(b, v)"]
    assert common(text, "") is None  # somebody may read them behind
    swapped = "if N < M:\n  a = x\n  u = 1\n  f(a, a)\nelse:\n  b = x\n  v = 2\n  f(b, v)"
    assert common(swapped, "a b u v") == ["b = x", "u = 1; f(b, b)", "v = 2; f(b, v)", ""]


def test_no_name_takes_the_place_of_another_one() -> None:
    text = "if N < M:\n  f(b)\n  a = x\n  g(a)\nelse:\n  b = x\n  g(b)"
    assert common(text, "a b") is None

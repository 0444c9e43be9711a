"""Variables of inlined functions that are left out: which, and that values stay those of the order as written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from tests.frontend.python.running import defined

HEAD = "@pf.nest\ndef f(x: 'f64[N]', y: 'f64[N]', z: 'c128[N]', k: 'i64[N]'):\n"


def cube(t: Any) -> Any:
    square = t * t
    return square * t


def swapped(a: Any, i: int) -> None:
    first = a[i]
    a[i] = a[i + 1]
    a[i + 1] = first


def twice(t: Any) -> Any:
    kept = t
    return kept * kept


def summed(a: Any, i: int) -> Any:
    before = a[i]
    a[i] = 2.0
    return before + a[i]


def whole(t: Any) -> Any:
    number = t
    return number / 2


FUNCTIONS = (cube, swapped, twice, summed, whole)


def elements(body: str) -> str:
    nest = defined(
        f"{HEAD}    for i in range(N - 1):\n        {body}\n", **{f.__name__: f for f in FUNCTIONS}
    )
    assert isinstance(nest, pf.Nest)
    given = {
        "x": np.arange(1.0, 6.0),
        "y": np.arange(5.0) ** 2,
        "z": np.arange(5.0) + 1j,
        "k": np.arange(5) * 3,
    }
    own = {name: value.copy() for name, value in given.items()}
    nest.python(**own)  # type: ignore[attr-defined]
    left = pf.interpret(nest, {t.name: given[t.name] for t in nest.inputs})
    for tensor in nest.with_role("inout"):
        np.testing.assert_allclose(left[tensor.name], own[tensor.name])
    return str(nest.elements)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("body", "statement"),
    [
        ("y[i] = cube(x[i])", "y[i] = x[i] * x[i] * x[i]"),
        ("y[i] = twice(x[i])", "y[i] = x[i] * x[i]"),
        ("y[i] = whole(k[i])", "y[i] = k[i] / 2"),
    ],
)
def test_a_copy_and_a_value_that_is_used_once_need_no_variable(body: str, statement: str) -> None:
    assert statement in elements(body)


@pytest.mark.parametrize("body", ["swapped(x, i)", "y[i] = summed(x, i)"])
def test_a_value_that_is_stored_over_before_its_use_keeps_its_variable(body: str) -> None:
    assert ": 'f64' = x[i]\n" in elements(body)


def test_variables_of_the_function_itself_stay() -> None:
    assert "t = x[i]" in elements("t = x[i]; y[i] = t + 1.0")


def test_elimination_has_few_statements() -> None:
    nest = pf.nest(solved, types={"a": "c128[N, N]", "b": "c128[N, N]"})
    assert len(nest.statements) < 50  # 85 with a variable for each copy


def solved(a, b):  # type: ignore[no-untyped-def]
    return np.linalg.solve(a, b)


def test_a_pivot_below_the_normal_numbers_divides() -> None:
    """One over it would be infinite. OpenBLAS gives 2.5 twice."""
    a = np.array([[1e-310, 2e-310], [3e-310, 1e-310]])
    b = np.array([[5e-310], [5e-310]])
    found = pf.compile(solved, example=(a, b))(a, b)
    np.testing.assert_allclose(found, [[1.0], [2.0]], rtol=1e-9)

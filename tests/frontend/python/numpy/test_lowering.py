"""The statements that array expressions become, as they are printed; where a temporary is needed, and where not."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
from numba import prange

import polyfuse as pf
from polyfuse.frontend.python.numpy.lowering import Lowered, lowered
from polyfuse.frontend.python.numpy.syntax import constant
from polyfuse.frontend.python.source import source_of
from tests.frontend.python.running import copies

# ruff: noqa: F821


def text(function: Callable[..., Any]) -> Lowered:
    return lowered(source_of(function))  # type: ignore[arg-type]  # a plain function


def body(function: Callable[..., Any]) -> str:
    return str(text(function)).split("\n", 1)[1]


def heat(u: f64[N], v: f64[N]):
    v[1:-1] = 0.5 * (u[:-2] + u[2:])
    u[1:-1] = 0.5 * (u[:-2] + u[2:])
    return u[1:-1].sum()


def test_a_slice_assignment_becomes_statements() -> None:
    found = text(heat)
    assert (
        str(found)
        == """\
def heat(u: f64[N], v: f64[N]):
    for i0 in range(N - 2):
        v[i0 + 1] = 0.5 * (u[i0] + u[i0 + 2])
    copy = empty((N - 2,), 'float64')
    for i0 in range(N - 2):
        copy[i0] = 0.5 * (u[i0] + u[i0 + 2])
    for i0 in range(N - 2):
        u[i0 + 1] = copy[i0]
    total: 'f64' = 0.0
    for r0 in range(N - 2):
        total += u[r0 + 1]
    return total"""
    )
    assert len(found.notes) == 1
    assert "u[1:-1] = 0.5 * (u[:-2] + u[2:]): through a temporary array, since no order" in found.notes[0]


def test_the_nest_keeps_the_notes() -> None:
    nest = pf.nest(heat)
    assert nest.notes == text(heat).notes


def test_explain_names_the_temporaries() -> None:
    assert f"{text(heat).notes[0]}" in str(pf.compile(pf.nest(heat), target="cpu").explain())


def in_parallel(x: f64[N], y: f64[N]):
    for i in prange(1, N):
        y[i] = x[i - 1]
    for i in numba.prange(len(y)):
        y[i] += 1.0


def test_a_parallel_loop_of_numba_is_a_loop() -> None:
    assert (
        body(in_parallel)
        == """\
    for i in range(1, N):
        y[i] = x[i - 1]
    for i in range(N):
        y[i] += 1.0"""
    )


def forwards(x: f64[N], A: f64[N, N]):
    x[:-1] = x[1:] * 2
    A[:-1, 1:] = A[1:, :-1]


def backwards(x: f64[N], A: f64[N, N]):
    x[1:] = x[:-1] * 2
    A[1:, :-1] = A[:-1, 1:]


def test_overlaps_that_an_order_of_the_loops_solves_need_no_temporary() -> None:
    assert (
        body(forwards)
        == """\
    for i0 in range(N - 1):
        x[i0] = x[i0 + 1] * 2
    for i0 in range(N - 1):
        for i1 in range(N - 1):
            A[i0, i1 + 1] = A[i0 + 1, i1]"""
    )
    assert (
        body(backwards)
        == """\
    for i0 in range(N - 2, -1, -1):
        x[i0 + 1] = x[i0] * 2
    for i0 in range(N - 2, -1, -1):
        for i1 in range(N - 1):
            A[i0 + 1, i1] = A[i0, i1 + 1]"""
    )
    assert not text(forwards).notes + text(backwards).notes


def scaled(A: f64[N, N]):
    A /= A[0, 0]
    A[:] = A.T


def test_an_element_that_scales_its_own_array_is_read_once() -> None:
    found = text(scaled)
    assert "for i0 in range(N - 1, -1, -1):" in str(found)  # A[0, 0] is stored last
    assert [note.split(": ")[1] for note in found.notes] == ["A[:] = A.T"]
    A = np.array([[2.0, 4.0], [6.0, 8.0]])
    expected = (A / 2.0).T
    assert np.array_equal(pf.interpret(pf.nest(scaled), [A])["A"], expected)


def product(A: f64[N, M], B: f64[M, N], C: f64[N, N]):
    C[:] = A @ B


def test_a_product_is_summed_where_it_is_assigned() -> None:
    assert (
        body(product)
        == """\
    for i0 in range(N):
        for i1 in range(N):
            C[i0, i1] = 0.0
            for r0 in range(M):
                C[i0, i1] += A[i0, r0] * B[r0, i1]"""
    )


def updates(A: f64[N, N], C: f64[N, N], x: f64[N], y: f64[N]):
    C += A @ A
    y += np.max(A, axis=1)
    y[1:] += A[1:] @ x
    y += A @ y


def test_a_sum_is_added_where_it_is_added_to() -> None:
    found = body(updates)
    assert found.startswith(
        """\
    for i0 in range(N):
        for i1 in range(N):
            for r0 in range(N):
                C[i0, i1] += A[i0, r0] * A[r0, i1]
    largest = empty("""
    )
    assert "            y[i0 + 1] += A[i0 + 1, r0] * x[r0]\n" in found
    assert found.endswith("y[i0] = y[i0] + product[i0]")
    rng = np.random.default_rng(1)
    given = {name: rng.normal(size=(4, 4) if name in "AC" else 4) for name in "ACxy"}
    expected = copies(given)
    updates(**expected)
    for name, value in pf.interpret(pf.nest(updates), given).items():
        np.testing.assert_allclose(value, expected[name])


def elements(x: f64[N], y: f64[N]):
    for i in range(1, N):
        t = x[i] * 2
        y[i] = t if x[i - 1] > 0 else y[i - 1]


def test_a_function_of_elements_stays_as_it_is() -> None:
    assert (
        body(elements)
        == """\
    for i in range(1, N):
        t = x[i] * 2
        y[i] = t if x[i - 1] > 0 else y[i - 1]"""
    )


@pytest.mark.parametrize(("N", "M", "fits"), [(3, 3, True), (3, 4, False)])
def test_sizes_that_must_be_equal_are_checked_by_the_call(N: int, M: int, fits: bool) -> None:
    nest = pf.nest(_dot, types={"x": "f64[N]", "y": "f64[M]"})
    given = [np.ones(N), np.ones(M)]
    if fits:
        assert pf.interpret(nest, given)[nest.results[0].name] == 3.0
    else:
        with pytest.raises(pf.PolyfuseError):
            pf.interpret(nest, given)


def _dot(x: Any, y: Any) -> Any:
    return x @ y


@pytest.mark.parametrize(
    ("text", "value"), [("2 ** 5", 32), ("((9 ** 60) ** 60) ** 60", None), ("2 ** -1", None)]
)
def test_powers_that_fit_are_known(text: str, value: int | None) -> None:
    assert constant(ast.parse(text, mode="eval").body) == value


def between(x: f64[N], y: f64[N], steps: i64):
    for _ in range(steps):
        y[1 : N - 1] = x[0 : N - 2] + x[2:N]


def test_bounds_of_slices_that_must_fit_count_from_the_start() -> None:
    assert body(between).startswith("    assert N - 2 >= 0\n")
    given = {"x": np.arange(5.0), "y": np.zeros(5), "steps": 1}
    found = pf.interpret(pf.nest(between), given, {"N": 5})
    np.testing.assert_array_equal(found["y"], [0.0, 2.0, 4.0, 6.0, 0.0])


def local_names(x: f64[N]):
    import math as own

    shape = (2,) * 2
    x[0] = own.pi * shape[1] + own.sqrt(x[1])


def test_a_loaded_module_may_be_imported_and_a_tuple_repeated() -> None:
    assert float(pf.interpret(pf.nest(local_names), {"x": np.zeros(2)}, {"N": 2})["x"][0]) == 2 * math.pi


def test_a_default_has_a_type() -> None:
    def scaled(x, by=3, plus=0.5):  # type: ignore[no-untyped-def]
        return x * by + plus

    x = np.ones(3, np.float32)
    nest = pf.nest(scaled, example=(x,))
    assert [str(t) for t in nest.inputs[1:]] == ["input by: int64[]", "input plus: float64[]"]
    np.testing.assert_array_equal(pf.interpret(nest, {"x": x})["result"], x * 3 + 0.5)


def test_types_and_sizes_from_an_example() -> None:
    x, A = np.ones(3, np.float32), np.ones((3, 2))
    nest = pf.nest(_dot, example=(x, A))
    assert [str(t) for t in nest.inputs] == ["input x: float32[n3]", "input y: float64[n3, n2]"]
    (result,) = nest.with_role("output")
    assert result.dtype == "float64"
    with pytest.raises(pf.BadArgument, match="the example of y has type complex256"):
        pf.nest(_dot, example=(x, A.astype(np.clongdouble)))

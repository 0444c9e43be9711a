"""Python functions as compiled pieces and the Python between them: results are those of the function as it stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.errors import BadArgument, NoSource


def relaxed(u: Any, v: Any, tolerance: float) -> Any:
    """A `while` around two stores and a reduction: one piece."""
    steps, error = 0, tolerance + 1.0
    while error > tolerance:
        for i in range(1, len(u) - 1):
            s = u[i - 1] + u[i + 1]
            v[i] = 0.5 * s
        error = np.max(np.abs(u - v))
        u[:] = v
        steps += 1
    return steps, error


def with_a_break(x: Any, most: int = 40) -> Any:
    """A loop that Python runs, with pieces in its branches, and variables that have no value in the beginning."""
    total = 0.0
    for step in range(most):
        if step % 2:
            x[1:] = x[1:] + 0.25 * x[:-1]
        else:
            for i in range(len(x)):
                if x[i] > 1.0:
                    part = x[i] - 1.0
                    x[i] = part
                    total += part
        if total > 3.0:
            break
    return total, step, x.sum()


def left_to_python(x: Any, names: Any) -> Any:
    """Pieces that are no nest, or that are given no array; a name that the loop may not have bound."""
    for i in range(len(x)):
        x[i] = np.sort(x)[i]
    for i in range(len(names)):
        names[i] = names[i] + names[0]
    for i in range(len(x)):
        if x[i] > 100.0:
            found = i  # noqa: F841 - a variable that may have no value
        x[i] += 1.0
    for i in range(len(x)):
        for k in range(0):
            last = k  # noqa: F841 - the same
        x[i] += 1.0
    return x[-1]


def backwards(x: Any, at: int) -> Any:
    x[at] = 1.0
    x[at:] += 1.0
    return x


def same(function: Callable[..., Any], *args: Any) -> Any:
    """The program, after it has left what the function leaves."""
    copies = [arg.copy() if isinstance(arg, np.ndarray | list) else arg for arg in args]
    expected = function(*copies)
    program = pf.program(function, target="cpu")
    found = program(*args)
    for one, other in zip(np.atleast_1d(found), np.atleast_1d(expected), strict=True):
        np.testing.assert_allclose(one, other)
    for one, other in zip(args, copies, strict=True):
        if isinstance(one, np.ndarray):
            np.testing.assert_allclose(one, other)
        elif isinstance(one, list):
            assert one == other
    return program


def test_a_while_stays_python_around_a_compiled_piece() -> None:
    u = np.linspace(0.0, 1.0, 12) ** 2
    program = same(relaxed, u, u.copy(), 1e-3)
    (piece,) = program.pieces
    assert list(piece.remarks) == ["as machine code"]
    assert piece.remarks["as machine code"] > 5
    assert program.explain().endswith(f"ran {piece.remarks['as machine code']} times as machine code")


def test_pieces_stand_in_loops_and_branches() -> None:
    program = same(with_a_break, np.linspace(0.0, 1.3, 9))
    assert [set(piece.remarks) for piece in program.pieces] == [{"as machine code"}, {"as machine code"}]


def test_what_is_no_nest_is_left_to_python() -> None:
    program = same(left_to_python, np.array([3.0, 1.0, 2.0]), ["a", "b"])
    assert program.pieces
    assert all(text.startswith("by Python") for piece in program.pieces for text in piece.remarks)


@pytest.mark.parametrize("at", [1, -2])
def test_a_call_that_a_piece_refuses_is_run_by_python(at: int) -> None:
    """The subscript -2 counts from the end in Python; a compiled piece takes no negative number for it."""
    same(backwards, np.zeros(4), at)


def test_arguments_that_share_memory_are_left_to_python() -> None:
    x = np.arange(6.0)

    def shifted(a: Any, b: Any) -> None:
        for i in range(len(b)):
            a[i] = b[i] + 1.0

    expected = np.arange(6.0)
    shifted(expected[1:], expected[:-1])
    program = pf.program(shifted, target="cpu")
    program(x[1:], x[:-1])
    np.testing.assert_array_equal(x, expected)
    (text,) = program.pieces[0].remarks
    assert "share memory" in text


def test_outer_variables_defaults_and_methods_are_kept() -> None:
    scale = 2.0

    class Scaled:
        @pf.program(target="cpu")
        def of(self, x: Any, *, twice: bool = True) -> Any:
            x[:] = scale * x
            if twice:
                x[:] = scale * x
            return self, x

    made = Scaled()
    owner, found = made.of(np.ones(3))
    assert owner is made
    np.testing.assert_array_equal(found, [4.0, 4.0, 4.0])
    scale = 3.0
    np.testing.assert_array_equal(made.of(np.ones(3), twice=False)[1], [3.0, 3.0, 3.0])


def test_outer_arrays_are_those_of_the_call() -> None:
    weights = np.ones(3)

    @pf.program(target="cpu")
    def weighted(x: Any) -> None:
        x[:] = x * weights

    for _ in range(2):
        weights += 1.0
        x = np.ones(3)
        weighted(x)
        np.testing.assert_array_equal(x, weights)
    assert list(weighted.pieces[0].remarks) == ["as machine code"]


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(BadArgument, match="takes a Python function"):
        pf.program(np.sort)
    with pytest.raises(NoSource):
        pf.program(eval("lambda x: x"))

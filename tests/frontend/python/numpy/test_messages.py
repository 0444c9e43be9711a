"""What is refused of array expressions: where, why, and by which calls it was reached."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from tests.frontend.python.running import defined

HEAD = "@pf.nest\ndef f(x: 'f64[N]', y: 'f64[M]', A: 'f64[N, M]', k: 'i64[N]', n: 'i64'):\n"

BAD = [
    ("x += y", "x += y", "(N,) and (M,): these shapes are not known to broadcast"),
    ("A += x", "A += x", "(N, M) and (N,): these shapes are not known to broadcast"),
    ("x[:] = A", "x[:]", "an array of shape (N, M) is not known to broadcast to (N,)"),
    (
        "A[:] = np.zeros((3, 2)) @ np.ones(3)",
        "np.zeros",
        "a product of (3, 2) and (3,): 2 is not known to be 3",
    ),
    ("x[0] = y", "x[0]", "an array of shape (M,) is assigned to one element, x[0] of an array of shape (N,)"),
    ("k[0] = 'a'", "k[0]", "'a' is assigned to one element"),
    ("x[:] = x[k, k]", "x[k, k]", "x[k, k] has 2 subscripts, x has rank 1"),
    ("x[:] = np.foo(x)", "np.foo", "np.foo is not defined"),
    ("x[:] = foo(x)", "foo", "foo is not defined"),
    ("x[:] = sorted(x)", "sorted", "a call of sorted, which is not read"),
    ("x[:] = np.einsum('ij,j->k', A, y)", "np.einsum", "k is no index of an operand"),
    ("A[np.triu_indices(N)] = 1.0", "np.triu_indices", "np.triu_indices is not read"),
    ("print(x)", "print", "the value of print(x) is not kept"),
    ("del x", "del x", "`del x` is not a statement of an affine program"),
    ("return x, divmod(k, 3)", "divmod", "divmod(k, 3): a tuple inside of what is returned"),
    ("x[A] = 0.0", "A]", "A as a subscript"),
    ("t = x[k[0]:] * 2.0", "t = x", "the extent N - k[0] of a temporary array has no affine largest value"),
    ("x[::n] = 0.0", "n] = 0.0", "the step n"),
    ("k += x", "k += x", "k is int64, the result float64: NumPy refuses that too"),
    ("x[:] = A.sum(axis=2)[0]", "A.sum", "an axis of an array of rank 2"),
    ("x[0] = x.shape[1]", "x.shape[1]", "x.shape has 1 element, and none at 1"),
    ("x[:] = A.argsort()", "A.argsort", "A.argsort, a method that cannot be read"),
    ("A[:] = np.reshape(x, (2, n))", "np.reshape", "from (N,) to (2, n) a subscript is a product of sizes"),
    ("x[:] = np.zeros(3, dtype=np.longdouble)", "np.zeros", "the element type longdouble"),
    ("x[:] = A.flat", "A.flat", "A.flat of an array"),
    ("if x > 0:\n        x[0] = 1.0", "x > 0", "the truth of an array"),
    (
        "t = x[1:]\n    for i in range(3):\n        t = x[:2]\n    y[0] = t[0]",
        "t = x[:2]",
        "t has shape (N - 1,) and type float64",
    ),
    ("for i in range(N):\n        t = x[i:]\n    y[0] = t[0]", "t[0]", "view or an array of one iteration"),
    ("return (x > 0) - (x < 1)", "(x > 0)", "this operator on conditions"),
    ("return (x > 0) @ (x < 1)", "return", "a sum or product of conditions as one condition"),
    ("x[0] = -(x > 0)[0]", "-(x > 0)", "-(x > 0)[0] of conditions"),
    ("a, b = x[0], x[1], 2.0", "a, b", "2 targets and 3 values"),
    ("x[:] = np.tile(x, 2)", "x[:]", "an array of shape (2 * N,) is not known to broadcast to (N,)"),
    ("return np.linalg.svd(A)", "np.linalg.svd", "np.linalg.svd is not read: its iterations end by data"),
    ("return np.unique(x)", "np.unique", "how many elements the result has depends on data"),
    ("return np.fft.fft(x)", "np.fft.fft", "its loops are not affine"),
    ("x[k[x > 0]] = 1.0", "k[x > 0]", "how many elements a mask selects is not known"),
    ("return [x, x]", "[x, x]", "a list is returned"),
    (
        "if x[0] > 0:\n        t = x[1:]\n    else:\n        t = x[:-1]\n    return t * 2",
        "t * 2",
        "t is another array or object if x[0] > 0 than if not",
    ),
    (
        "g = np.sin\n    if x[0] > 0:\n        g = np.cos\n    return g(x)",
        "g(x)",
        "g is another array or object if x[0] > 0 than if not",
    ),
    (
        "g = (x, y)\n    for i in range(3):\n        x[0] = g[0][1]\n        g = (y, x)",
        "for i",
        "g is another object in later iterations of this loop",
    ),
    ("x[:] = x ^ 1", "x ^ 1", "x ^ 1: an operation of integers on float64 numbers"),
    ("x[:] = ~x", "~x", "~x: an operation of integers on float64 numbers"),
    ("I, J = np.mgrid[0:4:2, 0:3]", "np.mgrid", "np.mgrid[0:4:2, 0:3]: these subscripts"),
    ("x[:] = x[x > 0]", "x[:]", "the elements that a mask selects are assigned to others"),
]


@pytest.mark.parametrize(("body", "at", "why"), BAD, ids=[body.split("\n")[0] for body, _, _ in BAD])
def test_what_is_refused_says_where_and_why(body: str, at: str, why: str) -> None:
    with pytest.raises(pf.NotAffine) as found:
        defined(f"{HEAD}    {body}\n")
    assert why in found.value.why
    assert found.value.text[found.value.column - 1 :].startswith(at)


@pytest.mark.parametrize(
    "body",
    [
        "for i in range(A.shape[-1]):\n        y[i] += 1.0",
        "x += 1.0",
        "x[-1] = x[-2]",
        "for i in range(x.size):\n        x[i] = i",
        "A[0] = y",
        "x[0] = np.where(x[1] > 0, 1.0, 2.0)",
    ],
)
def test_what_was_refused_with_a_wrong_reason_is_read(body: str) -> None:
    assert isinstance(defined(f"{HEAD}    {body}\n"), pf.Nest)


def inner(z: Any) -> Any:
    return np.sort(z)


def outer(z: Any) -> Any:
    return inner(z) + 1.0


def endless(z: Any) -> Any:
    return endless(z)


def test_a_refusal_in_an_inlined_function_names_the_calls() -> None:
    with pytest.raises(pf.NotAffine) as found:
        defined(f"{HEAD}    x[:] = outer(x)\n", outer=outer)
    assert re.fullmatch(
        r"np.sort is not read: the order of elements depends on data "
        r"\(in inner, called in line \d+ of outer, in outer, called in line 3 of f\)",
        found.value.why,
    )
    assert found.value.file == __file__


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("A[np.triu_indices(N)] = 0.0", "no affine function of their number"),
        ("x[slice(0, 4, N)] = 1.0", "third is not a constant integer"),
        ("x[slice(A, 4)] = 1.0", "a bound that is no integer"),
        (
            "for i in range(3):\n        s = slice(i, i + 1)\n    for i in range(2):\n        x[s] = 1.0",
            "s is a slice, a view or an array of one iteration of the loop over i, which is over",
        ),
    ],
)
def test_a_slice_or_triangle_that_is_not_read_says_why(body: str, why: str) -> None:
    with pytest.raises(pf.NotAffine, match=re.escape(why)):
        defined(f"{HEAD}    {body}\n")


def test_a_function_that_calls_itself_is_refused() -> None:
    with pytest.raises(pf.NotAffine, match="16 calls inside of calls"):
        defined(f"{HEAD}    x[:] = endless(x)\n", endless=endless)


@pytest.mark.parametrize(
    ("body", "line", "what"),
    [
        ("x[N] = 1.0", "    x[N] = 1.0", "x[N] is out of bounds of x[N]"),
        (
            "for i in range(N):\n        x[i + 1] = 1.0",
            "        x[i + 1] = 1.0",
            "x[1 + i] is out of bounds of x[N]",
        ),
        ("t = 2.0 * x\n    y[0] = t[-N - 1]", "    y[0] = t[-N - 1]", "t[-1] is out of bounds of t[N]"),
    ],
)
def test_a_subscript_out_of_bounds_is_shown_in_the_source(body: str, line: str, what: str) -> None:
    with pytest.raises(pf.InvalidNest) as found:
        defined(f"{HEAD}    {body}\n")
    first, shown, caret, hint = str(found.value).splitlines()
    assert what in first
    assert re.match(r"<function \d+>:\d+:\d+: ", first)
    assert shown.endswith(line)
    assert caret.strip() == "^"
    assert hint.startswith("would work: ")


@pytest.mark.parametrize(
    ("body", "allowed"),
    [
        ("x[:] = A.ravel()", "axes that stay apart, as in x[i, j]"),
        ("x[:] = A.sum(axis=5)", "constants from -2 to 1"),
        ("A[k, 1:] = y[0]", "np.add.at(x, idx, y)"),
        ("x[:] = foo(x)", "the functions that the guide's page From NumPy lists"),
    ],
)
def test_a_refusal_says_what_would_work(body: str, allowed: str) -> None:
    with pytest.raises(pf.NotAffine) as found:
        defined(f"{HEAD}    {body}\n")
    assert allowed in found.value.allowed

"""What is no affine program is refused with the place in the source and what would be allowed."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from tests.frontend.python.running import defined

HEAD = '@pf.nest\ndef f(n: "i64", c: "f64", k: "i64", x: "f64[N]", A: "f64[N, N]"):\n'


def refusal(body: str, head: str = HEAD) -> pf.NotAffine:
    with pytest.raises(pf.NotAffine) as caught:
        defined(head + "".join(f"    {line}\n" for line in body.strip("\n").split("\n")))
    return caught.value


# (body, the text that the caret points at, why)
BAD = [
    ("for i in range(N):\n    x[i * i] = 0.0", "i * i", "product of two values"),
    ("for i in range(N):\n    x[A[i, i]] = 0.0", "A[i, i]", "A[i, i] depends on data"),
    ("for i in range(c):\n    x[i] = 0.0", "c):", "c is a parameter (input c: float64[])"),
    ("for i in range(N // k):\n    x[i] = 0.0", "N // k", "divides by something else"),
    ("for i in range(N % -2):\n    x[i] = 0.0", "N % -2", "divides by something else"),
    ("for i in range(0, N, k):\n    x[i] = 0.0", "k):", "the step k"),
    ("for i in range(0, N, 0):\n    x[i] = 0.0", "0):", "the step 0"),
    ("for i in {1, 2}:\n    x[0] = i", "{1, 2}", "a loop over {1, 2}"),
    ("for i, j in range(N):\n    x[i] = 0.0", "i, j", "is not a name"),
    ("for i in range(N):\n    x[i] = 0.0\nelse:\n    x[0] = 1.0", "x[0] = 1.0", "a loop with an else"),
    ("while True:\n    x[0] = 0.0", "while", "`while True:` is not a statement"),
    ("if x:\n    x[0] = 0.0", "x:", "x: the truth of an array"),
    ("while x[0] > 0.0:\n    x[0] -= 1.0", "while", "`while x[0] > 0.0:` is not a statement"),
    (
        "t = 0\nfor i in range(N):\n    t = t + 1\n    x[t] = 0.0",
        "t] = 0.0",
        "t is a local variable that is not",
    ),
    ("for i in range(N):\n    x[i] = 0.0\nx[i] = 1.0", "i] = 1.0", "the variable of a loop that is over"),
    (
        "for i in range(N):\n    for i in range(N):\n        x[i] = 0.0",
        "i in range(N):\n        x",
        "a loop around",
    ),
    ("for i in range(N):\n    i = 3\n    x[i] = 0.0", "i = 3", "i is a loop variable and assigned as well"),
    ("x[:] = A[0, :2]", "x[:]", "an array of shape (2,) is not known to broadcast to (N,)"),
    ("A[0, 0, 0] = 0.0", "A[0, 0, 0]", "A[0, 0, 0] has 3 subscripts, A has rank 2"),
    ("x.real = 1.0", "x.real", "cannot be assigned"),
    ("x[0] <<= 2.0", "x[0] <<=", "an operation of integers on float64 numbers"),
    ("x[0] = x[1] << 2", "x[1] << 2", "an operation of integers on float64 numbers"),
    ("x[0] = k & 0.5", "k & 0.5", "an operation of integers on fractions"),
    ("x[0] = print(2.0)", "print", "a call of print"),
    ("x[0] = max(2.0)", "max(2.0)", "with 1 argument"),
    ("x[0] = y[0]", "y[0]", "y[0] is not known here"),
    ("x[0] = y", "y", "y is not a known size"),
    ("y[0] = 1.0", "y[0]", "y[0] is assigned, but not given"),
    ("x[0] = 1.0 if x else 2.0", "x else", "x: the truth of an array"),
    ("if n > 3:\n    return\nx[0] = 1.0", "return", "a return before the end"),
    ("t: 'f8' = 1.0\nx[0] = t", "'f8'", "the annotation 'f8'"),
    ("x = 1.0\nA[0, 0] = x", "", "the array x is assigned as a whole"),
]


@pytest.mark.parametrize(("body", "at", "why"), BAD, ids=[why for _, _, why in BAD])
def test_what_is_not_affine_is_refused_where_it_stands(body: str, at: str, why: str) -> None:
    error = refusal(body)
    assert why in error.why
    source = HEAD + "".join(f"    {line}\n" for line in body.split("\n"))
    lines = source.split("\n")
    assert error.text == lines[error.line - 1]
    rest = "\n".join([error.text[error.column - 1 :], *lines[error.line :]])
    indented = at.replace("\n", "\n    ")
    assert rest.startswith(indented)
    where, code, caret, allowed = str(error).split("\n")
    assert where == f"{error.file}:{error.line}:{error.column}: {error.why}"
    assert code[caret.index("^") :].startswith(indented.split("\n")[0])
    assert allowed.startswith("allowed here: ")


def test_parameters_that_cannot_be_read() -> None:
    for head, why in (
        ("def f(x):", "no annotation"),
        ('def f(x: "f8[N]"):', "cannot be read"),
        ('def f(x: "f64[N"):', "cannot be read"),
        ('def f(x: "f64[N * M]"):', "product of two values"),
        ('def f(c: "f64", x: "f64[c]"):', "not affine in sizes"),
        ('def f(x: "f64[N]" = 3):', "the default 3 of input x: float64[N]"),
        ('def f(n: "i64" = 0.5):', "the default 0.5 of input n: int64[]"),
        ('def f(c: "f64" = None):', "the default None of input c: float64[]"),
        ('def f(*x: "f64[N]"):', "only plain parameters"),
        ('def f(x: "f64[N]", /):', "only plain parameters"),
        ('def f(b: "c32", x: "f64[N]"):', "the annotation 'c32' cannot be read"),
        ('def f(mod: "f64[N]"):', "has a meaning in printed nests"),
        ('def f(α: "f64", x: "f64[N]"):', "isl reads no letters such as those of the name 'α'"),
        ('def f(x: "f64[ñ]"):', "the name 'ñ'"),
    ):
        assert why in refusal("pass", f"@pf.nest\n{head}\n").why


def test_an_error_in_a_file_names_the_line_of_the_file(tmp_path: Any) -> None:
    file = tmp_path / "time_loops.py"
    file.write_text(
        "import polyfuse as pf\n\nä = 2\nif True:\n\n    @pf.nest\n    def f(x: 'f64[N]'):\n"
        "        for i in range(N):\n            x[ä * i * i] = 1.0\n"
    )
    run = subprocess.run(
        [sys.executable, str(file)], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert f"{file}:9:15: ä * i * i is a product of two values that are not constant" in run.stderr


def test_a_function_without_source() -> None:
    space: dict[str, Any] = {"pf": pf}
    exec("def f(x: 'f64[N]'):\n    x[0] = 1.0", space)
    with pytest.raises(pf.NoSource, match=r"'f' has no source to read: pf\.nest reads a function's text"):
        pf.nest(space["f"])
    with pytest.raises(pf.NoSource, match="is not a plain `def`"):
        pf.nest(lambda x: x)


def test_a_refusal_can_be_pickled() -> None:
    error = refusal("x[c] = 0.0")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert again.column == error.column


def test_subscripts_that_cannot_be_in_bounds_are_refused_with_an_instance() -> None:
    with pytest.raises(
        pf.InvalidNest, match=r"S0: x\[1 \+ i\] is out of bounds of x\[N\] at S0\[\d+\] with .*'N'"
    ):
        defined(HEAD + "    for i in range(N):\n        x[i + 1] = 1.0")
    with pytest.raises(pf.InvalidNest, match=r"x\[-1 \+ i\] is out of bounds of x\[N\] at S0\[0\]"):
        defined(HEAD + "    for i in range(N):\n        x[i - 1] = 1.0")


def test_a_variable_read_before_it_is_written() -> None:
    with pytest.raises(pf.InvalidNest, match=r"S1\[0\] reads t before any statement has written it"):
        defined(HEAD + "    for i in range(N):\n        if i > 0:\n            t = 1.0\n        x[i] = t")


def test_what_subscripts_need_of_sizes_is_assumed_and_checked() -> None:
    nest = defined(
        '@pf.nest\ndef f(x: "f64[N]", y: "f64[M]", T: "i64"):\n    assert M < 100\n'
        "    for t in range(T):\n        for i in range(N):\n            x[i] += y[i + 2]"
    )
    assert nest.context.is_equal(
        type(nest.context)("[N, M, T] -> { : N >= 1 and 1 <= M < 100 and T >= 0 and (N + 2 <= M or T = 0) }")
    )
    x = np.zeros(3)
    assert (pf.interpret(nest, [x, np.arange(5.0), 2])["x"] == [4, 6, 8]).all()
    net = pf.compile(nest, target="cpu", schedule=pf.Schedule(nest))
    net(x, np.arange(5.0), 2)
    assert (x == [4, 6, 8]).all()
    for bad, broken in (
        ((x, np.ones(4), 2), "M >= 2 + N or T = 0"),
        ((x, np.ones(100), 2), "M <= 99"),
        ((x, np.ones(5), -1), "T >= 0"),
    ):
        with pytest.raises(pf.BadArgument, match=f"the nest allows: {re.escape(broken)} does not hold"):
            net(*bad)
        with pytest.raises(pf.BadArgument, match="context"):
            pf.interpret(nest, list(bad))


def test_arrays_of_one_size_that_disagree() -> None:
    nest = defined(
        '@pf.nest\ndef f(x: "f64[N]", y: "f64[N, 2 * N + 1]"):\n    for i in range(N):\n        x[i] = y[i, i]'
    )
    for arrays in ((np.ones(3), np.ones((4, 9))), (np.ones(3), np.ones((3, 8)))):
        with pytest.raises(pf.BadArgument, match="shape"):
            pf.interpret(nest, list(arrays))
        with pytest.raises(pf.BadArgument, match="extent"):
            nest.python(*arrays)
    with pytest.raises(pf.BadArgument, match="y: shape"):
        nest.python(np.ones(3), np.ones(3))


def test_sizes_are_solved_from_any_extent_that_says_them() -> None:
    nest = defined(
        '@pf.nest\ndef f(x: "f64[2 * N + 1]", y: "f64[M + N]"):\n    for i in range(M):\n        y[i] = x[2 * N]'
    )
    y = pf.interpret(nest, [np.arange(7.0), np.zeros(8)])["y"]
    assert (y == [6] * 5 + [0] * 3).all()
    net = pf.compile(nest, target="cpu", schedule=pf.Schedule(nest))
    mine = np.zeros(8)
    net(np.arange(7.0), mine)
    assert (mine == y).all()
    with pytest.raises(pf.BadArgument, match="x: expected shape"):
        net(np.arange(6.0), mine)


@pytest.mark.parametrize("body", ["for ä in range(N):\n    x[ä] = 1.0", "δ = 1.0\nx[0] = δ"])
def test_names_that_isl_does_not_read(body: str) -> None:
    assert (
        "isl reads no letters such as those of the name"
        in refusal(body, '@pf.nest\ndef f(x: "f64[N]"):\n').why
    )


@pytest.mark.parametrize(
    "body", ["while x[0] > 0.0:\n    x[0] -= 1.0", "try:\n    x[0] = 1.0\nfinally:\n    x[0] = 2.0"]
)
def test_statements_that_end_by_data_have_a_way_out(body: str) -> None:
    assert "pf.program" in str(refusal(body))

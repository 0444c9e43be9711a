"""Python loops as C: the text, the refusals, and the 30 kernels' values bit by bit."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import polyfuse as pf
from benchmarks.c_loops import c_source, compiled
from benchmarks.polybench_sides import STRICT
from papers.polybench import KERNELS
from tests.frontend.python.running import by_python, copies, defined

WITH_GCC = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")


def body(nest: pf.Nest, **sizes: int) -> list[str]:
    """What stands in the C function's braces."""
    text = c_source(nest, sizes)  # type: ignore[arg-type]
    return text[text.index("{\n") + 2 : text.rindex("}")].splitlines()


def test_every_form_of_a_loop() -> None:
    nest = defined("""
@pf.nest
def forms(a: "f64", x: "f64[N]", A: "f64[N, N]"):
    for i in range(N - 1, 0, -1):
        s = 0.0
        for j in range(i):
            if i - j > 1 and not j == 2:
                s += A[i][j] / 3 if 0 < j <= 4 else -a
            else:
                s = max(s, sqrt(float(i)))
        x[i] -= s
""", sqrt=np.sqrt)  # fmt: skip
    assert body(nest, N=5) == [
        "    double s;",
        "    for (int64_t i = (5 - 1); i > 0; i += -1) {",
        "        s = 0.0;",
        "        for (int64_t j = 0; j < i; j += 1) {",
        "            if ((((i - j) > 1) && (!(j == 2)))) {",
        "                s += ((0 < j && j <= 4) ? ((double)(A[i][j]) / 3) : (-a));",
        "            } else {",
        "                s = max(s, sqrt((double)(i)));",
        "            }",
        "        }",
        "        x[i] -= s;",
        "    }",
    ]


def test_arrays_have_their_extents_and_sizes_are_numbers_unless_they_are_given() -> None:
    nest = KERNELS["jacobi-2d"].nest
    text = c_source(nest, {"T": 3, "N": 7})
    assert "void kernel(int64_t T, double A[restrict 7][7], double B[restrict 7][7])" in text
    assert "_t < T" in text
    assert "i < (7 - 1)" in text


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("f64", "A[i // 2]", r"line 4 of the function is not translated to C: i // 2"),
        ("f64", "tanh(abs(A[i]))", r"line 4 .*: abs\(A\[i\]\)"),
        ("f32", "A[i]", "A is float32, which is not translated to C"),
    ],
)
def test_what_is_not_translated_is_refused(kind: str, value: str, message: str) -> None:
    nest = defined(f"""
@pf.nest
def halves(A: "{kind}[N]", B: "{kind}[N]"):
    for i in range(N):
        B[i] = {value}
""", tanh=np.tanh)  # fmt: skip
    with pytest.raises(ValueError, match=message):
        c_source(nest, {"N": 4})


@WITH_GCC
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_in_c_rounds_as_python_does(name: str, tmp_path: Path) -> None:
    kernel = KERNELS[name]
    first = kernel.inputs(kernel.mini, np.random.default_rng(0))
    found = copies(first)
    compiled(kernel.nest, kernel.mini, STRICT, tmp_path)(**found)
    for tensor, expected in by_python(kernel.nest, first).items():
        np.testing.assert_array_equal(found[tensor], expected)
        assert not np.array_equal(expected, first[tensor])

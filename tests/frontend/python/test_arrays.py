"""Local arrays: temporaries with a shape, and what is refused of them."""

from __future__ import annotations

import islpy as isl
import numpy as np
import pytest

import polyfuse as pf
from tests.frontend.python.running import assert_close, by_python, by_source, called, defined

# ruff: noqa: F821


@pf.nest
def differences(x: f32[N], y: f32[N - 2]):
    T = np.empty(N - 1, np.float32)
    for i in range(N - 1):
        T[i] = x[i + 1] - x[i]
    for i in range(N - 2):
        y[i] = T[i + 1] - T[i]


def test_a_local_array_is_a_temporary_of_its_shape() -> None:
    assert [str(t) for t in differences.with_role("temporary")] == ["temporary T: float32[N - 1]"]
    assert differences.context.is_equal(isl.Set("[N] -> { : N >= 2 }"))
    arrays = {"x": np.arange(7, dtype=np.float32) ** 2, "y": np.zeros(5, np.float32)}
    expected = by_python(differences, arrays)
    assert np.array_equal(expected["y"], np.full(5, 2.0))
    assert_close(pf.interpret(differences, arrays), expected, 0.0)
    assert_close(by_source(differences, arrays, {"N": 7}), expected, 0.0)
    assert_close(called(pf.compile(differences, target="cpu"), arrays), expected, 0.0)


def test_types_and_shapes_that_a_local_array_may_have() -> None:
    made = defined(
        """
        @pf.nest
        def f(x: "f64[N]", k: "i64[N]"):
            A = np.empty((2, N // 2 + 1))
            B = np.empty([N], dtype=np.int64)
            for i in range(N):
                B[i] = k[i] + k[0]
                A[i % 2, i // 2] = x[i]
            for i in range(N):
                x[i] = A[i % 2, i // 2]
                k[i] = B[N - 1 - i]
        """.replace("\n        ", "\n")
    )
    arrays = [str(t) for t in made.with_role("temporary")]
    assert arrays == ["temporary A: float64[2, floor((N)/2) + 1]", "temporary B: int64[N]"]
    given = {"x": np.arange(5.0), "k": np.arange(5)}
    assert_close(pf.interpret(made, given), by_python(made, given), 0.0)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("T = np.empty(N, np.longdouble)", "the element type np.longdouble"),
        ("T = np.empty(N, np.float32, 'C')", r"np.float32, .C.\): these arguments"),
        ("T = np.empty(x[0])", r"x\[0\] depends on data"),
        (
            "T = np.empty(N); T = np.zeros(N + 1)",
            r"made again as temporary T: float64\[N \+ 1\], it was .*\[N\]",
        ),
        ("T[0] = 1.0; T = np.empty(N)", "assigned, but not given, nor made before"),
        ("T = np.zeros_like(N)", "N is not a known array"),
        ("T = np.full(N, x[0])", "the type of the elements is not said"),
        ("T = np.zeros(max(N, 3))", r"the extent max\(N, 3\) is not affine in sizes"),
        ("T = np.empty(N); T = 1.0", "assigned as a whole"),
    ],
)
def test_what_is_no_local_array_is_refused(line: str, why: str) -> None:
    with pytest.raises(pf.NotAffine, match=why):
        defined(f"@pf.nest\ndef f(x: 'f64[N]'):\n    {line}\n    x[0] = 1.0\n")


def test_an_array_whose_shape_depends_on_an_index_is_refused() -> None:
    with pytest.raises(pf.NotAffine, match="the extent i depends on the index i"):
        defined("@pf.nest\ndef f(x: 'f64[N]'):\n    for i in range(N):\n        T = np.empty(i)\n")


def test_an_element_that_nothing_has_written_is_refused() -> None:
    with pytest.raises(pf.InvalidNest, match=r"reads T before any statement has written it"):
        defined("@pf.nest\ndef f(x: 'f64[N]'):\n    T = np.empty(N)\n    x[0] = T[0]\n")

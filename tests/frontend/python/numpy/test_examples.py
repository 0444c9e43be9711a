"""Functions without annotations: types and shapes of example arguments, keyword-only and default arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from tests.frontend.python.running import copies, defined

X = np.random.default_rng(0).normal(size=7).astype(np.float32)


def scaled(x, a, b=0.3, *, shift=1, factor=2.5):  # type: ignore[no-untyped-def]
    return (x * a + b) * factor + shift


@pytest.mark.parametrize(
    ("a", "named"),
    [
        (0.1, {}),
        (np.float64(0.1), {}),
        (np.float32(0.1), {"shift": 3}),
        (2, {"factor": 0.5, "shift": -1}),
    ],
)
def test_a_float_of_python_takes_the_type_of_what_it_meets(a: Any, named: dict[str, Any]) -> None:
    expected = scaled(X, a, **named)
    found = pf.compile(scaled, example=(X, a), target="cpu")(X, a, **named)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, 3e-7)


def test_an_annotation_says_that_a_number_is_pythons() -> None:
    nest = defined("@pf.nest\ndef f(x: 'f32[N]', a: float, b: 'f64'):\n    return x * a, x * b\n")
    assert [tensor.dtype for tensor in nest.with_role("output")] == ["float32", "float64"]
    with pytest.raises(pf.NotAffine, match="cannot be read"):
        defined("@pf.nest\ndef f(x: 'float[N]'):\n    return x * 2\n")


def flattened(x: Any, y: Any) -> Any:
    y += 1
    return x.ravel() * 2, x.reshape(4, 3) + 1, np.repeat(x, 2), np.broadcast_to(y, (3, 4)) + x


def test_what_is_affine_in_no_sizes_is_read_for_the_shapes_of_the_example() -> None:
    given = {"x": np.arange(12.0).reshape(3, 4), "y": np.arange(4.0)}
    mine, theirs = copies(given), copies(given)
    run = pf.compile(flattened, example=tuple(given.values()), target="cpu")
    for one, other in zip(run(*mine.values()), flattened(**theirs), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(mine["y"], theirs["y"])
    assert "read for the shapes of the example alone" in str(run.explain())
    with pytest.raises(pf.BadArgument, match=r"x: expected shape \[3, 4\], given \[6, 4\]"):
        run(np.zeros((6, 4)), given["y"])


def test_a_refusal_for_all_shapes_is_that_of_symbolic_sizes() -> None:
    def refused(x):  # type: ignore[no-untyped-def]
        return np.sort(x.ravel())

    with pytest.raises(pf.NotAffine, match="sort"):
        pf.nest(refused, example=(np.zeros((3, 4)),))


PRODUCT = """@pf.nest
def f(A: 'f64[NI, NK]', B: 'f64[NK, NJ]', C: 'f64[NI, NJ]'):
    C[:, :] = A[0:NI, 0:NK] @ B[0:NK, 0:NK]
"""


@pytest.mark.parametrize(("steps", "columns"), [(7, 5), (5, 5), (4, 6)])
def test_a_slice_whose_bound_is_a_size_ends_with_its_array(steps: int, columns: int) -> None:
    """B[0:NK, 0:NK] has NJ columns where NK is larger; NumPy refuses to store fewer, and so does a call."""
    rng = np.random.default_rng(0)
    given = {"A": rng.random((3, steps)), "B": rng.random((steps, columns)), "C": np.zeros((3, columns))}
    run = pf.compile(defined(PRODUCT), target="cpu")
    if columns > steps:
        with pytest.raises(pf.BadArgument, match="NJ <= NK does not hold"):
            run(**given)
        return
    run(**given)
    np.testing.assert_allclose(given["C"], given["A"] @ given["B"])


def test_a_result_that_may_end_with_its_array_has_the_length_of_its_bound() -> None:
    nest = defined(
        "@pf.nest\ndef f(x: 'f64[N]', z: 'f64[K]'):\n    t = x[:K] * 2\n    t[0] = 1\n    return t, t + z\n"
    )
    x, z = np.arange(5.0), np.ones(3)
    kept, summed = pf.compile(nest, target="cpu")(x, z)
    np.testing.assert_array_equal(kept, [1, 2, 4])
    np.testing.assert_array_equal(summed, [2, 3, 5])

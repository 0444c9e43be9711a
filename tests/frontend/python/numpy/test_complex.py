"""Complex numbers: what is computed with pairs of real numbers is what NumPy computes, of the same types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.ir.number_types import COMPLEX, ITEMSIZE, complex_type
from polyfuse.ir.tensor import Tensor
from tests.frontend.python.running import copies

# ruff: noqa: F821

STAGES = 3
ROOTS = np.exp(2j * np.pi * np.arange(3) / 3)


def numbers(*shape: int, dtype: Any = np.complex128, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)


def formulas(x: c128[N], y: c128[N], r: f64[N], k: i8[N]):
    mask = np.abs(x) > 1
    return (
        *(x + y, x - r, k * x, x / y, r / x, x / 2, x / 2j, 1j * r, -x, +x, x**5, 1j**2 * r, np.square(x)),
        *(x.conj(), np.conj(r), x.real, y.imag, np.real(y), np.imag(r), abs(x), np.exp(x), np.exp(1j * r)),
        *(x == y, x != r, np.where(mask, x, 0), np.where(mask, r, 2j), np.reciprocal(x), x * 1j * y * x),
        *(
            np.concatenate((x, r)),
            np.roll(x, 1),
            np.pad(x, 1),
            np.stack((x, y)),
            x[::-1],
            x.astype(np.complex64),
        ),
        *(np.zeros(3, complex), np.ones_like(x), np.full((2, N), 1j), np.eye(N, dtype=complex), np.diag(x)),
    )


def sums(A: c64[N, M], B: c64[M, N], x: c64[M], b: c64[N]):
    C = A @ B
    C += A.conj() @ B
    return (
        *(C, A.sum(), A.mean(axis=0), np.cumsum(x), x @ B, np.vdot(x, x), np.dot(x, x), np.outer(x, b)),
        *(
            np.einsum("ij,j->i", A, x),
            np.tensordot(A, B, axes=1),
            np.triu(C),
            np.sum(A, axis=1, keepdims=True),
        ),
    )


def in_place(x: c128[N], y: c128[N], A: c128[N, N], z: c128):
    z = z * z + 1
    x[1:-1] = x[:-2] * y[2:] + 1j * x[2:]
    y *= x
    y[::2] += z
    x[x.real > 0] *= 2j
    A[0], A[-1] = A[-1], A[0]
    A.imag[:] = A.real * 2
    A[:] = A.T
    A[1, 0] = y[0] * y[0] - x[1]
    A[1, 1] /= z


def loops(x: c128[N], y: c128[N], w: c128):
    total, sign = 0j, 1
    for i in range(N):
        v = x[i] * ROOTS[1]
        for _ in range(3):
            v = mixed(v, w) / 2
        if abs(x[i]) > 1.0:
            total += v
        else:
            total = total.conjugate() - v
        y[i] = v if x[i] == y[i] or x[i] else complex(i, sign)
    return total, total.imag, 2.0 + total


def mixed(z, w):
    z -= w * z
    return z * z + w


def steps(c: c128[N]):
    z = np.zeros(c.shape, dtype=np.complex128)
    count = np.zeros(c.shape, dtype=np.int64)
    for n in range(6):
        inside = np.less(abs(z), 2.0)
        count[inside] = n
        z[inside] = z[inside] ** 2 + c[inside]
    return z, count


def butterflies(x: c128[8], y: c128[8]):
    y[:] = x
    for i in range(STAGES):
        z = np.reshape(y, (2**i, 2, 2 ** (STAGES - i - 1)))
        turned = z[:, 1] * np.exp(-1j * np.pi * np.arange(2**i) / 2**i)[:, None]
        y[:] = np.reshape(np.stack((z[:, 0] + turned, z[:, 0] - turned)), (8,))


def products(x: c128[N], y: c128[N], A: c128[N, N], z: c128):
    y[1:-1] = x[:-2] * y[2:] + z / x[2:]
    x *= np.exp(y)
    return A @ x, abs(y), x.sum()


PROGRAMS: dict[Any, Any] = {
    formulas: (
        numbers(4),
        numbers(4, seed=1),
        numbers(4, seed=2).real.copy(),
        np.array([1, -5, 120, 7], np.int8),
    ),
    sums: (*(numbers(*s, dtype=np.complex64) for s in ((3, 4), (4, 3), (4,), (3,))),),
    in_place: (numbers(5), numbers(5, seed=1), numbers(5, 5), 0.5 - 1j),
    loops: (numbers(5), numbers(5, seed=1), 0.25 + 0.5j),
    steps: (numbers(6),),
    butterflies: (numbers(8), numbers(8)),
}


def same(found: Any, expected: Any) -> None:
    assert np.asarray(found).dtype == np.asarray(expected).dtype
    single = np.asarray(expected).dtype in (np.complex64, np.float32)
    np.testing.assert_allclose(found, expected, rtol=1e-4 if single else 1e-9, atol=1e-5 if single else 1e-12)


def expected_of(function: Any, given: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
    """(what Python returns, what it leaves in its arguments)."""
    theirs = list(copies(dict(enumerate(given))).values())
    returned = pf.nest(function).python(*theirs)
    return list(returned) if isinstance(returned, tuple) else [], theirs


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_the_oracle_has_numpys_numbers(function: Any) -> None:
    given = PROGRAMS[function]
    returned, theirs = expected_of(function, given)
    nest = pf.nest(function)
    found = pf.interpret(nest, list(given))
    for tensor, value in zip(nest.results, returned, strict=True):
        same(found[tensor.name], value)
    for tensor, value in zip(nest.inputs, theirs, strict=True):
        if tensor.role == "inout":
            same(found[tensor.name], value)


@pytest.mark.parametrize("options", [{"target": "cpu"}, {"target": "cuda", "device": "lockstep"}], ids=str)
def test_calls_take_and_return_complex_arrays(options: dict[str, str]) -> None:
    given = (*(numbers(5, seed=seed) for seed in (0, 1)), numbers(5, 5), 0.5 - 1j)
    returned, theirs = expected_of(products, given)
    ours = list(copies(dict(enumerate(given))).values())
    run = pf.compile(pf.nest(products), **options)
    for mine, one in zip([*run(*ours), *ours], [*returned, *theirs], strict=True):
        same(mine, one)


def doubled(x: c128[N, M], s: c128):
    x += s
    return x * 2


def test_arrays_are_seen_and_never_copied() -> None:
    run = pf.compile(pf.nest(doubled), target="cpu")
    whole = numbers(4, 6)
    before, out = whole.copy(), np.empty((4, 6), complex)
    assert run(whole, 1j, out=out) is not None
    assert run.report().copied_inputs == ()
    np.testing.assert_array_equal(out, 2 * whole)
    rows = whole[::2, ::3]
    np.testing.assert_allclose(run(x=rows, s=np.complex128(-1j)), 2 * before[::2, ::3])
    np.testing.assert_allclose(whole[::2, ::3], before[::2, ::3])
    again = run.capture(whole, 0)
    np.testing.assert_array_equal(again(), 2 * whole)
    pairs = whole.view(np.float64).reshape(4, 6, 2)
    np.testing.assert_array_equal(run(pairs, 0), 2 * whole)
    with pytest.raises(pf.BadArgument, match="x: expected dtype complex128, given complex64"):
        run(whole.astype(np.complex64), 0)


def test_an_example_has_complex_types() -> None:
    def scaled(x, alpha):  # type: ignore[no-untyped-def]
        return x * alpha

    x = numbers(3, dtype=np.complex64)
    nest = pf.nest(scaled, example=(x, np.complex64(2j)))
    assert [str(t) for t in nest.tensors] == [
        "input x: float32[n3, 2] of complex64",
        "input alpha: float32[2] of complex64",
        "output result: float32[n3, 2] of complex64",
    ]
    assert nest.elements == (
        "def scaled(x: 'c64[n3]', alpha: 'c64'):\n"
        "    result = empty((n3, 2), 'float32')\n"
        "    for i0 in range(n3):\n"
        "        result[i0, 0] = x[i0, 0] * alpha[0] - x[i0, 1] * alpha[1]\n"
        "        result[i0, 1] = x[i0, 0] * alpha[1] + x[i0, 1] * alpha[0]\n"
        "    return result"
    )
    same(pf.compile(nest, target="cpu")(x, np.complex64(2j)), x * np.complex64(2j))


def test_what_both_parts_compute_is_computed_once() -> None:
    def powers(x: c128[N], y: c128[N]):
        y[:] = x * x * x * x

    assert str(pf.nest(powers).elements).count("*") < 20


def test_a_quotient_tests_which_part_is_larger_once() -> None:
    def quotients(x: c128[N], y: c128[N]):
        x[1:] /= y[1:]

    text = str(pf.nest(quotients).elements)
    assert text.count(">=") == 1
    assert max(map(len, text.splitlines())) < 130


@pytest.mark.parametrize("real", [dtype for dtype in ITEMSIZE if dtype != "bfloat16"])
@pytest.mark.parametrize("dtype", COMPLEX)
def test_common_types_are_numpys(dtype: str, real: str) -> None:
    assert complex_type([dtype, real]) == np.result_type(dtype, real)
    if real not in ("float16",):  # NumPy has complex64 here, too, by another rule
        assert complex_type(["imaginary", real]) == (np.ones(1, real) * 1j).dtype


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("return np.nan_to_num(x)", "np.nan_to_num(x) of complex numbers"),
        ("return x < y", "x < y: an order of complex numbers"),
        ("return x.max()", "an order of complex numbers"),
        ("return x // 2", "x // 2: this operator on complex numbers"),
        ("r[:] = x", "complex numbers are stored to float64 numbers"),
        ("return x.astype(np.float64)", "complex numbers as float64"),
        (
            "v = 1.0\n    for i in range(len(x)):\n        v = v * x[i]\n    return v",
            "v is a real number before this loop",
        ),
        ("return np.linspace(0, 1j, 5)", "between complex numbers"),
    ],
)
def test_what_is_not_read(body: str, why: str, tmp_path: Any) -> None:
    file = tmp_path / "kernel.py"
    file.write_text(f"import numpy as np\n\ndef kernel(x, y, r):\n    {body}\n")
    space: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec"), space)
    with pytest.raises(pf.NotAffine) as caught:
        pf.nest(space["kernel"], types={"x": "c128[N]", "y": "c128[N]", "r": "f64[N]"})
    assert why in str(caught.value)


def test_pairs_are_two_floats() -> None:
    with pytest.raises(pf.InvalidNest, match=r"pairs of float32 or float64 along a last axis of extent 2"):
        Tensor("z", ("N", 3), "float64", "input", pairs=True)

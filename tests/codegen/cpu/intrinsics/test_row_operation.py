"""Rows of stencils in whole vectors: each beginning and length, what is not touched, which loops become such rows."""

# ruff: noqa: F821  (sizes are names in annotations)
import ctypes
import math
import mmap
import re

import numba
import numpy as np
import pytest

import polyfuse as pf
from polyfuse.codegen.cpu.intrinsics.row_operation import address, beside, row_of_lanes
from polyfuse.codegen.cpu.intrinsics.vector_row import VectorRow
from tests.support.emitted import in_one_line

ROOM = 64


def rows_of(kind, value):
    """A row of a stencil, of float32 or float64 numbers."""

    @numba.njit(error_model="numpy")
    def row(b, a, first, count, by):
        at = address(a, (first,))
        row_of_lanes(
            value, kind, count, at, (address(b, (first + by,)),), (at, beside(at, a, (1,))), (a[0],)
        )  # fmt: skip

    return row


@VectorRow
def centred_row(a, b, w):
    return w * (a[-1] - 2.0 * a + b) / -4.0 + sqrt(a)


@VectorRow
def behind_row(a, b, w):
    return w * a[7] + b[2]


@VectorRow
def before_row(a, b, w):
    return w * a[-7] - b[-2]


@pytest.mark.parametrize(
    ("row", "dtype"),
    [
        (rows_of(numba.float64, centred_row), np.float64),
        (rows_of(numba.float32, centred_row), np.float32),
    ],
)
def test_every_beginning_and_length_writes_its_elements_and_no_others(row, dtype) -> None:
    a = np.random.default_rng(0).random(ROOM + 2).astype(dtype)
    for first in range(1, 18):
        for count in (-1, 0, 1, 3, 8, 15, 16, 17, 40):
            for by in (0, 3):
                b = np.full(ROOM + 8, 7, dtype)
                row(b, a, first, count, by)
                inner = slice(first, first + max(0, count))
                left, middle, right = (a[inner.start + d : inner.stop + d] for d in (-1, 0, 1))
                expected = np.full(ROOM + 8, 7, dtype)
                expected[inner.start + by : inner.stop + by] = a[0] * (
                    left - 2 * middle + right
                ) / -4 + np.sqrt(middle)
                np.testing.assert_allclose(b, expected, rtol=16 * np.finfo(dtype).eps, atol=0)
                assert (b == 7).sum() >= b.size - max(0, count)


def test_elements_beside_are_read_from_vectors_and_none_outside_of_the_row() -> None:
    """The array ends where a page ends, or begins where one begins; a load past it would end the process."""
    behind, before = rows_of(numba.float64, behind_row), rows_of(numba.float64, before_row)
    pages, per_page = guarded(), mmap.PAGESIZE // 8
    pages[:] = np.random.default_rng(1).random(per_page)
    for size in range(16, 45):
        count = size - 7
        for a, row, first, near, far in (
            (pages[-size:], behind, 0, 3, 7),
            (pages[:size], before, 7, -1, -7),
        ):
            b = np.zeros(size)
            row(b, a, first, count, 0)
            expected = a[0] * a[first + far :][:count] + np.sign(far) * a[first + near :][:count]
            np.testing.assert_allclose(b[first : first + count], expected, rtol=1e-15)


def guarded() -> np.ndarray:
    """A page of numbers between two that must not be touched."""
    room = mmap.mmap(-1, 3 * mmap.PAGESIZE)
    every = np.frombuffer(room, np.uint8)
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    for page in (0, 2):
        place = ctypes.c_void_p(every.ctypes.data + page * mmap.PAGESIZE)
        assert protect(place, ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    return every[mmap.PAGESIZE : 2 * mmap.PAGESIZE].view(np.float64)


@pf.nest
def smooth(A: "f64[N, M]", w: "f64", B: "f64[N, M]"):
    for i in range(1, N - 1):
        for j in range(1, M - 1):
            B[i, j] = w * (A[i - 1, j] + A[i, j - 1] + A[i, j + 1] + A[i + 1, j]) / (1 + A[i, j] ** 2)


def test_a_stencil_runs_in_rows_of_lanes_and_computes_what_python_does() -> None:
    net = pf.compile(smooth, target="cpu")
    assert re.search(r"row_of_lanes(_ahead)?\(S_row, float64", in_one_line(net.source))
    for columns in (3, 9, 37):
        A = np.random.default_rng(columns).random((6, columns))
        B, C = np.zeros_like(A), np.zeros_like(A)
        net(A, 0.3, B)
        smooth.python(A, 0.3, C)
        np.testing.assert_allclose(B, C, rtol=1e-15)


def eliminated(z: "f64[N]", x: "f64[N, M]", y: "f64[N, M]", v: "f64[N, M]"):
    for i in range(z.shape[0]):
        for k in range(i + 1, z.shape[0]):
            factor = z[k] / z[i]
            y[k] = x[k] - np.float64(factor) * x[i] - np.float64(factor) * v[i]


def rounded(z: "f64[N]", x: "f64[N, M]", y: "f64[N, M]", v: "f64[N, M]"):
    for i in range(z.shape[0]):
        for k in range(i + 1, z.shape[0]):
            factor = z[k] / z[i]
            y[k] = x[k] - np.float32(factor) * x[i] - np.float32(factor) * v[i]


@pytest.mark.parametrize("function", [eliminated, rounded])
def test_a_conversion_to_the_type_of_lanes_is_none_and_another_keeps_the_loop(function) -> None:
    net = pf.compile(pf.nest(function), target="cpu")
    assert function is eliminated or "row_of_lanes" not in net.source
    rng = np.random.default_rng(0)
    z, arrays = 1.0 + rng.random(4), [rng.random((4, 37)) for _ in range(3)]
    expected = [array.copy() for array in arrays]
    function(z, *expected)
    net(z, *arrays)
    for found, wanted in zip(arrays, expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-13)


@pytest.fixture(scope="module")
def in_order():
    """The same stencil, one row after the other."""
    return pf.compile(smooth, schedule=pf.Schedule(smooth).vectorize("S0", "j"), target="cpu")


@pytest.mark.parametrize("inner", [1, 2, 3])
def test_two_rows_that_read_the_same_elements_go_side_by_side(in_order, inner) -> None:
    lines = [line for line in in_one_line(in_order.source).splitlines() if "row_of_lanes(" in line]
    assert [line.count("address(B") for line in lines] == [
        2,
        1,
    ]  # two rows, and the last one of an odd number
    A = np.random.default_rng(inner).random((inner + 2, 21))
    B, C = np.full_like(A, 7), np.full_like(A, 7)
    in_order(A, 0.3, B)
    smooth.python(A, 0.3, C)
    np.testing.assert_allclose(B, C, rtol=1e-15)


@pf.nest
def updated(A: "f64[N, M]"):
    for i in range(1, N - 1):
        for j in range(1, M - 1):
            A[i, j] = A[i - 1, j] + A[i, j] + A[i + 1, j]


def test_a_row_that_reads_what_the_one_before_stored_waits_for_it() -> None:
    net = pf.compile(updated, schedule=pf.Schedule(updated).vectorize("S0", "j"), target="cpu")
    A = np.arange(60.0).reshape(5, 12)
    B = A.copy()
    net(A)
    updated.python(B)
    assert "row_of_lanes(" in net.source
    assert "+ 1 <" not in net.source
    np.testing.assert_array_equal(A, B)


@pf.nest
def borrowed(A: "f64[N, M]", j_A: "f64[N, M]", B: "f64[N, M]"):
    for i in range(1, N - 1):
        for j in range(1, M - 1):
            B[i, j] = 2 * (A[i, j - 1] + A[i, j] + A[i, j + 1]) - j_A[i, j]


def test_an_array_with_the_name_of_an_address_keeps_it() -> None:
    A, j_A, B = np.tile(np.arange(20.0), (4, 1)), np.ones((4, 20)), np.zeros((4, 20))
    net = pf.compile(borrowed, target="cpu")
    net(A, j_A, B)
    assert re.search(r"row_of_lanes(_ahead)?\(S_row, float64", in_one_line(net.source))
    np.testing.assert_array_equal(B[1:-1, 1:-1], np.tile(6 * np.arange(1.0, 19) - 1, (2, 1)))


@pf.nest
def transposed(A: "f64[N, N]", B: "f64[N, N]"):
    for i in range(1, N - 1):
        for j in range(1, N - 1):
            B[i, j] = A[j - 1, i] + A[j, i] + A[j + 1, i]


@pf.nest
def averaged(A: "f64[N, M]", B: "f64[N, M]"):
    for i in range(1, N):
        for j in range(1, M):
            B[i, j] = 0.5 * (A[i, j - 1] + A[i, j])


@pf.nest
def curved(A: "f64[N, M]", B: "f64[N, M]"):
    for i in range(1, N - 1):
        for j in range(1, M - 1):
            B[i, j] = math.exp(A[i, j - 1] + A[i, j] + A[i, j + 1])


@pytest.mark.parametrize("nest", [transposed, averaged, curved])
def test_other_loops_stay_loops(nest) -> None:
    assert "row_of_lanes" not in pf.compile(nest, target="cpu").source


def test_a_row_that_asks_for_the_next_rows_of_a_window_computes_the_same() -> None:
    @pf.nest
    def blur(a: "f32[N, M]", b: "f32[N - 2, M]"):
        for i in range(N - 2):
            for j in range(M):
                b[i, j] = a[i, j] + a[i + 1, j] + a[i + 2, j]

    plain = pf.Schedule(blur).vectorize("S0", "j")
    net = pf.compile(blur, target="cpu", schedule=plain.prefetch("S0", "a", "i").prefetch("S0", "b", "i"))
    two, one = (line for line in in_one_line(net.source).splitlines() if "row_of_lanes_ahead(" in line)
    read, written = (
        "address(a, (i + 4, j)), address(a, (i + 5, j))",
        "address(b, (i + 2, j)), address(b, (i + 3, j))",
    )
    assert two.endswith(f"numbers=(), to_read=({read}), to_write=({written}))")
    assert one.endswith("to_read=(address(a, (i + 3, j)),), to_write=(address(b, (i + 1, j)),))")
    a = np.random.default_rng(0).random((9, 77), np.float32)
    b, expected = np.zeros((7, 77), np.float32), np.zeros((7, 77), np.float32)
    net(a, b)
    pf.compile(blur, target="cpu", schedule=plain)(a, expected)
    np.testing.assert_array_equal(b, expected)
    np.testing.assert_allclose(b, a[:-2] + a[1:-1] + a[2:], rtol=1e-6)

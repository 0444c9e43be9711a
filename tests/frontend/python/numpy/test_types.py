"""Types of numbers: what is computed with each is what NumPy computes, of the same type, on every target."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.ir.number_types import ITEMSIZE, joined, quotient_type, real_type, sum_type
from polyfuse.ir.scalar import CONVERSIONS, decode, encode, number, read
from polyfuse.rewrite.inline import why_not_inline
from polyfuse.runtime.cuda.runner import build_kernels
from tests.frontend.python.running import copies, defined

NATIVE = [dtype for dtype in ITEMSIZE if dtype != "bfloat16"]


def numbers_of(dtype: str, seed: int = 0, count: int = 24) -> Any:
    """Numbers of a type: the ends of its range, small ones, and any."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, count).astype(bool)
    if dtype.startswith("float"):
        return (rng.integers(-20, 21, count) / 4).astype(dtype)
    known = np.iinfo(dtype)
    found = rng.integers(known.min, known.max, count, dtype=dtype, endpoint=True)
    found[:5] = known.min, known.max, 0, 1, known.max
    found[8:18] = rng.integers(0, 9, 10)
    return rng.permutation(found)


def check(function: Any, *given: Any, **options: Any) -> None:
    """A compiled function returns and leaves what Python's does, of the same types."""
    ours, theirs = copies(dict(enumerate(given))), copies(dict(enumerate(given)))
    with np.errstate(all="ignore"):
        expected = function(*theirs.values())
    found = pf.compile(function, example=given, **options)(*ours.values())
    for mine, one in zip(np.atleast_1d(found) if found is None else found, expected, strict=True):
        assert mine.dtype == one.dtype
        np.testing.assert_array_equal(mine, one)
    for name, array in theirs.items():
        np.testing.assert_array_equal(ours[name], array)


def operations(x, y, m):  # type: ignore[no-untyped-def]
    z = np.where(m, x, y)
    z[m] *= y[m]
    x[1:] += y[:-1]
    s, t, u, v, w = z.sum(), x.max(), z.prod(), np.any(x > 5), m.sum()
    a, b, c, d = x + y, x - y, x * y, x // y
    return (
        *(a, b, c, d, s, t, u, v, w, x % y, -x, ~x, abs(x), x + 1, x << y, x >> y, x & y, x | y, x ^ y),
        *(x < y, x >= -1, m & (x > 3), ~m, m * x, (m + 1) * x, np.sign(x), x == y, x / y, z),
        *(x.astype(np.uint8), x.astype(np.int16), x.astype(np.float32)),
    )


@pytest.mark.parametrize("dtype", ["int8", "uint64"])
def test_operations_on_the_cpu(dtype: str) -> None:
    check(operations, numbers_of(dtype), numbers_of(dtype, 1), numbers_of("bool"), target="cpu")


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint16", "uint64"])
def test_operations_in_lock_step(dtype: str) -> None:
    given = numbers_of(dtype), numbers_of(dtype, 1), numbers_of("bool")
    check(operations, *given, target="cuda", device="lockstep")


def by_signed(small, long, signed, x):  # type: ignore[no-untyped-def]
    return small // signed, long // signed, small // x, long % signed, small.astype(np.uint16) // x


@pytest.mark.parametrize("options", [{"target": "cpu"}, {"target": "cuda", "device": "lockstep"}])
def test_unsigned_numbers_divided_by_minus_one_have_a_sign(options: dict[str, str]) -> None:
    signed = np.array([-1, -1, 3, -2, 0, -1], np.int32)
    small, long = np.array([5, 200, 7, 7, 7, 0], np.uint8), np.array([2**32 - 1, 1, 7, 7, 7, 0], np.uint32)
    check(by_signed, small, long, signed, signed.astype(np.int16), **options)


def turned(x, c):  # type: ignore[no-untyped-def]
    return x + (-c), -c + x, (-c) * x, x - (-c), -c + 1, -(c + c)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint64"])
@pytest.mark.parametrize("options", [{"target": "cpu"}, {"target": "cuda", "device": "lockstep"}])
def test_a_sign_is_taken_in_the_type_of_its_number(dtype: str, options: dict[str, str]) -> None:
    """The least integer is its own negative, so that x + (-c) is not x - c where x is a fraction."""
    known = np.iinfo(dtype)
    given = np.array([1.0, 2.5, -3.0]), np.array([known.min, known.max, 7], dtype)
    check(turned, *given, **options)


def signs(x):  # type: ignore[no-untyped-def]
    return 1 / np.rint(x), 1 / np.round(x), 1 / np.round(x, 1), 1 / np.trunc(x)


def test_numbers_that_are_rounded_to_zero_keep_their_sign() -> None:
    check(signs, np.array([-0.0, 0.0, -0.3, 0.3, -0.5, -1e-9, 0.5, -0.04]), target="cpu")


EDGES = (0.0, -0.0, 1.0, -1.0, 3.7, -0.5, 1e300, 5e-324, np.inf, -np.inf, np.nan, 0.1, -7.0)


def divided(x, y, k):  # type: ignore[no-untyped-def]
    for i in range(len(k)):
        k[i] //= 2.5
        k[i] = (k[i] % 3.0) // (i + 1) + i // 2 % 3
    return x // y, x % y, np.floor_divide(y, 2), np.mod(3, x), x // k[2]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("options", [{"target": "cpu"}, {"target": "cuda", "device": "lockstep"}], ids=str)
def test_floats_are_divided_as_pythons_are(dtype: str, options: dict[str, str]) -> None:
    with np.errstate(all="ignore"):
        x, y = (grid.ravel().astype(dtype) for grid in np.meshgrid(EDGES, EDGES))
    k = np.linspace(-9, 9, 13).astype(dtype)
    ours, theirs = k.copy(), k.copy()
    with np.errstate(all="ignore"):
        expected = divided(x, y, theirs)
    found = pf.compile(divided, example=(x, y, k), **options)(x, y, ours)
    for mine, one in zip([*found, ours], [*expected, theirs], strict=True):
        assert mine.dtype == one.dtype
        np.testing.assert_array_equal(mine, one)
        np.testing.assert_array_equal(np.signbit(mine)[one == 0], np.signbit(one)[one == 0])


def test_a_remainder_has_a_derivative() -> None:
    def rest(x, y, s):  # type: ignore[no-untyped-def]
        s[:] = x % y + x // y

    x, y = np.array([5.5, -5.5, 3.0]), np.array([2.0, 2.0, -0.7])
    gradient = pf.vjp(pf.nest(rest, example=(x, y, x)), ["x", "y"])
    given = [one for tensor in gradient.inputs for one in [{"x": x, "y": y}.get(tensor.name, np.ones(3))]]
    found = pf.interpret(gradient, given)
    slopes = [value for name, value in found.items() if "x" in name or "y" in name]
    np.testing.assert_array_equal(slopes, [np.ones(3), -(x // y)])


def test_operations_as_machine_code_of_a_gpu() -> None:
    given = numbers_of("uint8"), numbers_of("uint8", 1), numbers_of("bool")
    run = pf.compile(operations, example=given, target="cuda", device="none", machine="h200")
    assert all(cubin.code for cubin in build_kernels(run.program, (9, 0)).values())


@pytest.mark.parametrize(("left", "right"), [*itertools.combinations(NATIVE, 2)])
def test_common_types_are_numpys(left: Any, right: Any) -> None:
    assert joined([left, right]) == np.result_type(left, right)


@pytest.mark.parametrize("dtype", NATIVE)
def test_types_with_weak_numbers_are_numpys(dtype: Any) -> None:
    one = np.ones(1, dtype)
    assert joined([dtype, "integer"]) == (one + 1).dtype
    assert joined([dtype, "fraction"]) == (one + 0.5).dtype
    assert real_type(dtype) == np.sqrt(one).dtype
    assert quotient_type(dtype) == (one / one).dtype
    assert sum_type(dtype) == one.sum().dtype


def test_mixed_types_are_joined_before_they_are_combined() -> None:
    text = "\n    ".join(
        [
            '@pf.nest\ndef f(a: "u8[N]", b: "i8[N]", c: "i16[N]", d: "u64[N]", e: "f32[N]", t: "bool[N]"):',
            "p, q, r = a - b, c - a, d + b",
            "s, u, v = t + a, e * c, np.full(len(a), 0.1) * e",
            "w, x, y = -a + c, np.arange(len(a)) * e, t / a",
            "return p, q, r, s, u, v, w, x, y, a > b, np.uint8(200) + a, t & (a < 9), np.exp2(b)",
        ]
    )
    given = {
        name: numbers_of(dtype, k)
        for k, (name, dtype) in enumerate(
            {"a": "uint8", "b": "int8", "c": "int16", "d": "uint64", "e": "float32", "t": "bool"}.items()
        )
    }
    nest = defined(text)
    with np.errstate(all="ignore"):
        expected = nest.python(**given)
    compiled = pf.compile(nest, target="cpu")(*given.values())
    found = pf.interpret(nest, given)
    for tensor, one, mine in zip(nest.results, expected, compiled, strict=True):
        assert one.dtype == tensor.dtype == mine.dtype
        half = one.dtype == np.float16  # computed in float32
        np.testing.assert_allclose(found[tensor.name], one, rtol=2e-3 if half else 0)
        np.testing.assert_allclose(mine, one, rtol=2e-3 if half else 1e-7)


def test_loops_over_elements_have_truth_values_and_conversions() -> None:
    @pf.nest
    def f(x: f64[N], k: u8[N], m: bool[N], y: i8[N], n: bool[N]):  # type: ignore[name-defined]  # noqa: F821
        for i in range(N):  # type: ignore[name-defined]  # noqa: F821
            big = x[i] > 0.5
            n[i] = big and not m[i]
            if m[i]:
                y[i] = np.int8(x[i])
            k[i] += np.uint8(200)

    given = {t.name: numbers_of(t.dtype, 3) for t in f.inputs}
    mine = copies(given)
    with np.errstate(all="ignore"):
        f.python(**mine)
    found = pf.interpret(f, given)
    ours = copies(given)
    pf.compile(f, target="cpu")(**ours)
    for name in ("y", "n", "k"):
        np.testing.assert_array_equal(found[name], mine[name])
        np.testing.assert_array_equal(ours[name], mine[name])


@pytest.mark.parametrize(
    ("value", "dtype", "why"),
    [
        ("x + 300", "u8", "300 does not fit uint8"),
        ("x * -1", "u16", "-1 does not fit uint16"),
        ("128 - x", "i8", "128 does not fit int8"),
    ],
)
def test_numbers_that_do_not_fit_are_refused_as_by_numpy(value: str, dtype: str, why: str) -> None:
    with pytest.raises(pf.InvalidNest, match=why):
        defined(f"@pf.nest\ndef f(x: '{dtype}[N]'):\n    x[:] = {value}\n")


@pytest.mark.parametrize(("value", "dtype"), [(256, "u8"), (-1, "u64"), (2, "bool"), (1.5, "i16")])
def test_a_scalar_argument_has_to_fit(value: float, dtype: str) -> None:
    nest = defined(f"@pf.nest\ndef f(a: '{dtype}', x: 'f64[N]'):\n    x[:] = x * a\n")
    run = pf.compile(nest, target="cpu")
    with pytest.raises(pf.BadArgument, match="a: "):
        run(value, np.ones(3))
    x = np.ones(3)
    run(1, x)
    np.testing.assert_array_equal(x, 1)


def test_a_value_that_its_temporary_cuts_off_is_not_inlined() -> None:
    nest = defined(
        "@pf.nest\ndef f(x: 'i8[N]', y: 'i8[N]'):\n    t = np.empty(N, np.int8)\n    for i in range(N):\n"
        "        t[i] = x[i] * 0.5\n    for i in range(N):\n        y[i] = t[i] * 2\n"
    )
    assert "keeps a value of type float64 as int8" in str(why_not_inline(nest, nest.statements[0].name))


def test_conversions_are_written_and_read_as_json() -> None:
    for dtype, node in CONVERSIONS.items():
        body = node(read(0) + number(1), evaluate=False)
        assert decode(encode(body)) == body
        assert type(body).dtype == dtype

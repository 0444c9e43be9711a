"""Functions on vector lanes: how far they are from the true values, their special cases, and that LLVM widens them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import mpmath
import numba
import numpy as np
import numpy.typing as npt
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.codegen.cpu.intrinsics.parallel_parts import FASTMATH
from polyfuse.codegen.vector_math import vector_functions as vector_math
from polyfuse.codegen.vector_math.angles import COSINE, INVERSE_OF_TURN, PART_BITS, SINE
from polyfuse.codegen.vector_math.builder import DOUBLE, SINGLE
from polyfuse.codegen.vector_math.tables import LOG_OF_POWER, TABLES, TWO_THIRDS
from polyfuse.codegen.vector_math.vector_functions import VECTOR_FUNCTIONS

Array = npt.NDArray[Any]

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "15-vector-functions.md"
PRECISION = {"float32": 2**-24, "float64": 2**-53}
TYPES = sorted(PRECISION)
UNARY = ("exp", "log", "tanh", "erf", "sin", "cos")
BY_LIBM = {("sin", "float64"), ("cos", "float64")}
ON_LANES = [(n, dtype) for n in VECTOR_FUNCTIONS for dtype in TYPES if (n, dtype) not in BY_LIBM]


@cache
def in_a_loop(name: str) -> Callable[..., None]:
    """The function over arrays, compiled as kernels are."""
    function = getattr(vector_math, VECTOR_FUNCTIONS[name])

    def unary(x: Array, out: Array) -> None:
        for i in range(x.size):
            out[i] = function(x[i])

    def binary(x: Array, y: Array, out: Array) -> None:
        for i in range(x.size):
            out[i] = function(x[i], y[i])

    loop = binary if name == "pow" else unary
    compiled: Callable[..., None] = numba.njit(error_model="numpy", fastmath=FASTMATH)(loop)
    return compiled


def computed(name: str, *arguments: Array) -> Array:
    out = np.empty_like(arguments[0])
    in_a_loop(name)(*arguments, out)
    return out


def true_value(name: str, *arguments: float) -> mpmath.mpf:
    with mpmath.workprec(300):  # an angle of 2 ** 128 has lost 128 of them
        function = {"pow": mpmath.power}.get(name) or getattr(mpmath, name)
        return function(*map(mpmath.mpf, arguments))


def ulps(value: float, true: mpmath.mpf, dtype: str) -> float:
    """The distance in units of the last place that the true value has in this format."""
    limits = np.finfo(dtype)
    if abs(true) > mpmath.mpf(float(limits.max)) * (1 + mpmath.mpf(PRECISION[dtype])):
        return 0.0 if math.isinf(value) and (value > 0) == (true > 0) else math.inf
    if math.isinf(value):  # rounded up from within half a place of the largest number
        return float(
            (mpmath.mpf(2) ** limits.maxexp - abs(true)) / mpmath.mpf(2) ** (limits.maxexp - limits.nmant - 1)
        )
    exponent = max(mpmath.frexp(true)[1] - 1, limits.minexp) if true else limits.minexp
    return float(abs(mpmath.mpf(value) - true) / mpmath.mpf(2) ** int(exponent - limits.nmant))


def samples(name: str, dtype: str) -> tuple[Array, ...]:
    """Numbers with finite true values: all magnitudes, where results are ordinary, around 1, and at the far ends."""
    rng, limits = np.random.default_rng(0), np.finfo(dtype)
    largest = math.log(float(limits.max))
    smallest = math.log(float(limits.smallest_subnormal))
    spread = np.exp(rng.uniform(smallest, largest, 1500))
    if name == "log":
        return (
            np.concatenate([spread, rng.uniform(0.5, 2, 1500), 1 + rng.normal(0, 1e-3, 1000)]).astype(dtype),
        )
    if name == "pow":
        base = np.concatenate([spread, rng.uniform(0.01, 10, 1500)]).astype(dtype)
        power = rng.uniform(smallest, largest, base.size) / np.log(base.astype("float64"))
        return base, np.where(np.arange(base.size) % 2, power, rng.uniform(-4, 4, base.size)).astype(dtype)
    ends = rng.uniform(smallest - 2, largest + 2, 1000)
    near = [rng.uniform(-1, 1, 1500), rng.uniform(-6, 6, 1500)]
    signed = spread * rng.choice([-1, 1], spread.size)
    return (np.concatenate([*near, ends, signed]).astype(dtype),)


def worst(name: str, dtype: str) -> float:
    arguments = samples(name, dtype)
    results = computed(name, *arguments)
    return max(
        ulps(float(value), true_value(name, *map(float, given)), dtype)
        for value, *given in zip(results, *arguments, strict=True)
    )


def stated() -> dict[tuple[str, str], float]:
    """The errors of the guide's table, by function and type."""
    number = r"([\d.]+|libm's)"
    rows = re.findall(rf"^\| `(\w+)` \| {number} \| {number} \|", GUIDE.read_text(encoding="utf-8"), re.M)
    every = {(name, dtype): e for name, *errors in rows for dtype, e in zip(TYPES, errors, strict=True)}
    assert {key for key, error in every.items() if error == "libm's"} == BY_LIBM
    return {key: float(error) for key, error in every.items() if key not in BY_LIBM}


@pytest.mark.parametrize(("name", "dtype"), ON_LANES)
def test_errors_are_within_what_the_guide_states(name: str, dtype: str) -> None:
    assert worst(name, dtype) <= stated()[name, dtype] <= 2


@pytest.mark.parametrize("dtype", TYPES)
def test_powers_of_two_in_two_factors_give_the_same_bits(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (x,) = samples("exp", dtype)
    monkeypatch.setattr(vector_math, "_scales", lambda context: False)
    function = vector_math.intrinsic(lambda typingctx, x: vector_math._typed(vector_math.functions.exp, x))

    @numba.njit(error_model="numpy", fastmath=FASTMATH)
    def loop(x: Array, out: Array) -> None:
        for i in range(x.size):
            out[i] = function(x[i])

    by_factors = np.empty_like(x)
    loop(x, by_factors)
    monkeypatch.undo()
    np.testing.assert_array_equal(computed("exp", x), by_factors)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", UNARY)
def test_special_values_are_numpys(name: str, dtype: str) -> None:
    limits = np.finfo(dtype)
    tiny, huge = limits.smallest_subnormal, limits.max
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, tiny, -tiny, huge, -huge, -1.0], dtype)
    y = computed(name, x)
    with np.errstate(all="ignore"):
        expected = np.array([math.erf(v) for v in x], dtype) if name == "erf" else getattr(np, name)(x)
    np.testing.assert_allclose(y, expected, rtol=4 * PRECISION[dtype])
    np.testing.assert_array_equal(np.signbit(y[~np.isnan(y)]), np.signbit(expected[~np.isnan(y)]))


@pytest.mark.parametrize("dtype", TYPES)
def test_powers_of_special_values_are_numpys(dtype: str) -> None:
    limits = np.finfo(dtype)
    ends = [limits.max, limits.tiny, limits.smallest_subnormal, 1 + limits.eps, 1 - limits.epsneg]
    sizes = [0, 1, 2, 3, 0.5, 1.5, 2.0**limits.nmant, 2.0 ** (limits.nmant + 1) - 1, np.inf, np.nan, *ends]
    each = np.array([sign * size for size in sizes for sign in (1, -1)], dtype)
    x, y = (np.ravel(grid) for grid in np.meshgrid(each, each))
    z = computed("pow", x, y)
    with np.errstate(all="ignore"):
        expected = np.power(x, y)
    np.testing.assert_allclose(z, expected, rtol=8 * PRECISION[dtype])
    np.testing.assert_array_equal(np.signbit(z[~np.isnan(z)]), np.signbit(expected[~np.isnan(z)]))


@pytest.mark.parametrize(("name", "dtype"), ON_LANES)
def test_a_loop_over_each_is_put_on_vector_lanes(name: str, dtype: str) -> None:
    kind = {"float32": "float", "float64": "double"}[dtype]
    loop = in_a_loop(name)
    loop(*(np.ones(3, dtype) for _ in range(3 if name == "pow" else 2)))
    (code,) = (text for types, text in loop.inspect_llvm().items() if str(types[0].dtype) == dtype)
    assert re.search(r"<\d+ x (float|double)> @llvm\.fma\.v", code)
    assert re.search(rf"store <\d+ x {kind}>", code)
    assert not re.search(r"call [a-z ]*(float|double) @(?!llvm)", code)


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_angles_of_any_size(name: str) -> None:
    """Beside multiples of π / 2, where all but the last bits of a large angle are whole turns."""
    quarters = np.arange(1, 2000) * (np.pi / 2)
    around = [np.nextafter(quarters.astype(np.float32), np.float32(d)) for d in (-np.inf, np.inf)]
    far = np.ldexp(np.float32(16367173), np.arange(-20, 100)).astype(
        np.float32
    )  # 2 ** 72 of it: 1.6e-9 from one
    x = np.concatenate([quarters.astype(np.float32), *around, far, -far])
    results = computed(name, x)
    errors = (ulps(float(y), true_value(name, float(v)), "float32") for y, v in zip(results, x, strict=True))
    assert max(errors) <= stated()[name, "float32"]


def test_integers_are_computed_in_double_precision() -> None:
    @numba.njit
    def of_whole(n: int) -> float:
        return vector_math.vector_exp(n)

    assert of_whole(1) == pytest.approx(math.e, rel=1e-15)


@pytest.mark.parametrize(
    ("module", "function"),
    [
        (nn.Tanh(), np.tanh),
        (nn.Sigmoid(), lambda x: 1 / (1 + np.exp(-x))),
        (
            nn.Softmax(),
            lambda x: (
                np.exp(x - x.max(1, keepdims=True))
                / np.exp(x - x.max(1, keepdims=True)).sum(1, keepdims=True)
            ),
        ),
    ],
    ids=["tanh", "sigmoid", "softmax"],
)
def test_kernels_use_them(module: nn.Module, function: Callable[[Array], Array]) -> None:
    net = pf.compile(pf.lower(nn.Sequential(module), batch=3, features=37), target="cpu")
    assert "math.tanh" not in net.source
    assert "math.exp" not in net.source
    x = np.random.default_rng(0).standard_normal((3, 37), np.float32)
    np.testing.assert_allclose(net(x), function(x.astype(np.float64)), rtol=1e-6)


def fitted(function: Callable[[mpmath.mpf], mpmath.mpf], low: float, high: float, count: int) -> list[float]:
    with mpmath.workprec(200):
        found = mpmath.chebyfit(function, [mpmath.mpf(low), mpmath.mpf(high)], count)
    return [float(coefficient) for coefficient in reversed(found)]


def of_squares(function: Callable[[mpmath.mpf], mpmath.mpf], at_zero: Callable[[], mpmath.mpf]) -> Any:
    """A function of x², whose limit at zero is known."""
    return lambda z: function(mpmath.sqrt(z)) if z > mpmath.mpf("1e-20") else at_zero()


def expm1_rest(r: mpmath.mpf) -> mpmath.mpf:
    return (mpmath.expm1(r) - r) / r**2 if abs(r) > mpmath.mpf("1e-20") else mpmath.mpf(1) / 2


def artanh_rest(s: mpmath.mpf) -> mpmath.mpf:
    return (2 * mpmath.atanh(s) / s - 2) / s**2


LOG_FIT = of_squares(artanh_rest, lambda: mpmath.mpf(2) / 3)
POWER_FIT = of_squares(lambda s: (artanh_rest(s) - mpmath.mpf(2) / 3) / s**2, lambda: mpmath.mpf(2) / 5)
ERF_FIT = of_squares(lambda x: mpmath.erf(x) / x - 1, lambda: 2 / mpmath.sqrt(mpmath.pi) - 1)


@pytest.mark.parametrize(("format", "dtype"), [(SINGLE, np.float32), (DOUBLE, np.float64)])
def test_the_tables_are_chebyshev_interpolations(format: Any, dtype: type) -> None:
    tables = TABLES[format]
    for coefficients, function, low, high in (
        (tables.exp, expm1_rest, "-0.3466", "0.3466"),
        (tables.log, LOG_FIT, 0, "0.02944"),
        (tables.erf, ERF_FIT, 0, 1),
        (tables.erfc, lambda t: mpmath.log(mpmath.erfc(1 + t)), 0, tables.one_from - 1),
    ):
        again = fitted(function, low, high, len(coefficients))
        np.testing.assert_array_equal(np.array(coefficients, dtype), np.array(again, dtype))


def test_the_numbers_of_sine_and_cosine() -> None:
    def sine(r: mpmath.mpf) -> mpmath.mpf:
        return (mpmath.sin(r) / r - 1) / r**2

    def cosine(r: mpmath.mpf) -> mpmath.mpf:
        return (mpmath.cos(r) - 1) / r**2

    sine_fit = of_squares(sine, lambda: mpmath.mpf(-1) / 6)
    cosine_fit = of_squares(cosine, lambda: mpmath.mpf(-1) / 2)
    assert fitted(sine_fit, 0, "0.6175", len(SINE)) == list(SINE)
    assert fitted(cosine_fit, 0, "0.6175", len(COSINE)) == list(COSINE)
    with mpmath.workprec(400):
        left = 1 / (2 * mpmath.pi) - sum(map(mpmath.mpf, INVERSE_OF_TURN))
        assert 0 < left < mpmath.mpf(2) ** -196
    for part, number in enumerate(INVERSE_OF_TURN, 1):
        assert (number * 2.0 ** (PART_BITS * part)).is_integer(), "its product with 24 bits is exact"


def test_the_constants_in_two_numbers() -> None:
    with mpmath.workprec(200):
        for format, dtype in ((SINGLE, np.float32), (DOUBLE, np.float64)):
            tables = TABLES[format]
            assert dtype(tables.log_2_low) == dtype(float(mpmath.log(2) - tables.log_2_high))
            scaled = tables.log_2_high * 2 ** (
                format.fraction - 8 if format == SINGLE else format.fraction - 11
            )
            assert scaled == int(scaled), "the product with an exponent is exact"
            high, low = map(dtype, TWO_THIRDS[format])
            assert low == dtype(float(mpmath.mpf(2) / 3 - mpmath.mpf(float(high))))
    for format, dtype in ((SINGLE, np.float32), (DOUBLE, np.float64)):
        again = fitted(POWER_FIT, 0, "0.02944", len(LOG_OF_POWER[format]))
        np.testing.assert_array_equal(np.array(LOG_OF_POWER[format], dtype), np.array(again, dtype))

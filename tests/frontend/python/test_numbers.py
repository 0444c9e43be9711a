"""Operations on integers and functions of numbers are those of NumPy on all targets, at the ends of ranges too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.frontend.python.scope_names import FUNCTIONS
from polyfuse.ir.number_types import ITEMSIZE
from polyfuse.ir.scalar import OF_REAL
from tests.frontend.python.running import called, copies, defined


def integers(a: Any, b: Any, r: Any) -> None:
    for i in range(len(a)):
        r[0, i] = a[i] // b[i]
        r[1, i] = a[i] % b[i]
        r[2, i] = a[i] << b[i]
        r[3, i] = a[i] >> b[i]
        r[4, i] = (a[i] & b[i]) - (a[i] | b[i])
        r[5, i] = (a[i] ^ ~b[i]) // 7 % 3
        r[6, i] = (a[i] << 4) >> 2
        r[7, i] = a[i] // -1 + a[i] % -3
        r[8, i] = (a[i] // b[i]) // 2 + (a[i] << b[i]) // 4


@pytest.mark.parametrize("target", ["oracle", "cpu", "cuda"])
@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_operations_on_integers_are_those_of_numpy(target: str, dtype: str) -> None:
    bits, ends = 8 * ITEMSIZE[dtype], np.iinfo(dtype)
    numbers = np.array([0, 1, -1, 2, -2, 7, -7, bits - 1, bits, bits + 1, 100, ends.min, ends.max], dtype)
    a, b = (x.ravel().copy() for x in np.meshgrid(numbers, numbers))
    given = {"a": a, "b": b, "r": np.zeros((9, a.size), dtype)}
    expected = copies(given)
    with np.errstate(all="ignore"):
        integers(**expected)
    assert np.array_equal(
        run(pf.nest(integers, example=tuple(given.values())), given, target)["r"], expected["r"]
    )


def run(nest: pf.Nest, given: dict[str, Any], target: str) -> Any:
    if target == "oracle":
        return pf.interpret(nest, copies(given))
    options: dict[str, Any] = {"machine": "h200", "device": "lockstep"} if target == "cuda" else {}
    return called(pf.compile(nest, target=target, **options), given)  # type: ignore[arg-type]


PYTHONS = {
    name: next(f for f in objects if name in ("erf", "atan") or isinstance(f, np.ufunc))
    for name, objects in FUNCTIONS
    if name in OF_REAL
}
"""Each function of one number as NumPy has it, or Python where NumPy has none."""


@pytest.mark.parametrize("target", ["oracle", "cpu", "cuda"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_of_a_number_are_those_of_numpy(target: str, dtype: str) -> None:
    lines = [f"        r[{n}, i] = {name}(x[i])" for n, name in enumerate(PYTHONS)]
    note = dtype.replace("float", "f")
    head = f"@pf.nest\ndef f(x: '{note}[N]', r: '{note}[{len(lines)}, N]'):\n    for i in range(N):"
    nest = defined("\n".join([head, *lines]), **PYTHONS)
    x = np.array(
        [-3.75, -1.5, -1.0, -0.5, -1e-9, 0.0, 1e-9, 0.25, 0.5, 1.0, 2.5, 8.0, 20.0, np.inf, np.nan], dtype
    )
    with np.errstate(all="ignore"):
        expected = [_values(function, x) for function in PYTHONS.values()]
        found = run(nest, {"x": x, "r": np.zeros((len(lines), x.size), dtype)}, target)["r"]
    np.testing.assert_allclose(found, expected, rtol=1e-5 if dtype == "float32" else 1e-12)


def _values(function: Any, x: Any) -> Any:
    return (
        function(x) if isinstance(function, np.ufunc) else np.array([function(float(v)) for v in x], x.dtype)
    )


def test_a_rounding_of_integers_keeps_them() -> None:
    nest = pf.nest(_floor, types={"k": "i64[N]"})
    k = np.array([2**62 + 1, -5])
    assert np.array_equal(run(nest, {"k": k}, "cpu")[nest.results[0].name], k + 1)


def _floor(k: Any) -> Any:
    return np.floor(k) + 1

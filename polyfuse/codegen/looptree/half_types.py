"""Elements of float16, bfloat16 and bool in kernels: bits in memory, float32 or a truth value in every expression.

    y[i] = 2 * x[i]   ->   y[i] = to_float16(float32(2) * from_float16(x[i]))        x and y are arrays of uint16

    m[i] = x[i] > 0   ->   m[i] = uint8(x[i] > 0);  if m[i]   ->   if m[i] != 0      m is an array of uint8

Neither numba nor a CPU computes in halves; that a variable holds one is said by where it is read and assigned, so that
a value which fusion keeps in a register is rounded as one that goes through memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from polyfuse.ir.number_types import HALVES, NUMBER_TYPES, is_real
from polyfuse.ir.precision import PRECISIONS, STORED, Math, rounded

FROM: Mapping[str, str] = {half: f"from_{half}" for half in HALVES}
"""The operation that makes a float32 number of an element's bits."""

TO: Mapping[str, str] = {half: f"to_{half}" for half in HALVES}
"""The operation that rounds a number to nearest even and gives its bits."""

HALF_OPERATIONS = (*FROM.values(), *TO.values())

ROUND_TF32 = "to_tf32"
"""The operation that rounds a float32 number to tf32; a GPU's."""

CONVERSIONS = (*HALF_OPERATIONS, ROUND_TF32)
"""The conversions in a GPU's kernels."""

FORMATS: Mapping[str, Math] = {half: math for math, half in STORED.items() if half in HALVES}
"""The format of factors that a half is of."""

WIDENED: Mapping[str, str] = {half: f"widened_{math}" for half, math in FORMATS.items()}
"""The names of copies into shared memory that widen halves to float32."""

CONVERTED = (*(f"rounded_{math}" for math in PRECISIONS), *WIDENED.values())
"""The conversions of copies into shared memory: rounded_bf16 keeps bfloat16 numbers, and rounds float32 ones."""


def held_as(dtype: str) -> str:
    """The element type that a kernel's arrays and variables have.

    >>> held_as("bfloat16"), held_as("bool"), held_as("float64")
    ('uint16', 'uint8', 'float64')
    """
    return NUMBER_TYPES[dtype].held_as


def zero(dtype: str) -> str:
    """The zero of an element type, as source.

    >>> zero("float16"), zero("int32")
    ('to_float16(0.0)', 'int32(0)')
    """
    if dtype in HALVES:
        return f"{TO[dtype]}(0.0)"
    return f"{held_as(dtype)}({'0.0' if is_real(dtype) else '0'})"


def as_held(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A tensor's array as a kernel has it: the same memory."""
    return array.view(held_as(array.dtype.name))


def rounded_bits(math: Math, value: Any) -> Any:
    """A float32 number, or an array of them, as memory holds it rounded to a format of factors, by NumPy."""
    return converted(ROUND_TF32 if math == "tf32" else TO[STORED[math]], value)


def copied_bits(conversion: str, value: Any) -> Any:
    """The value that such a copy stores for a float32 number or a half's bits, or an array of them, by NumPy.

    >>> copied_bits("widened_bf16", np.uint16(0x3F80)), hex(copied_bits("rounded_bf16", np.uint16(0x3F80)))
    (np.float32(1.0), '0x3f80')
    """
    what, math = conversion.split("_")
    if what == "widened":
        return converted(FROM[next(half for half, name in WIDENED.items() if name == conversion)], value)
    if np.asarray(value).dtype == np.uint16:
        return value
    return rounded_bits(next(known for known in PRECISIONS if known == math), value)


def converted(operation: str, value: Any) -> Any:
    """The result of one of the operations, by NumPy.

    >>> hex(converted("to_bfloat16", np.float32(1 + 2**-8))), converted("from_float16", np.uint16(0x3C01))
    ('0x3f80', np.float32(1.0009766))
    """
    if operation == ROUND_TF32:
        return rounded("tf32", value)[()]
    half = np.dtype(operation.split("_")[1])
    if operation in TO.values():
        with np.errstate(over="ignore"):  # what is too large is infinite
            return np.asarray(value).astype(np.float32).astype(half).view(np.uint16)[()]
    return np.asarray(value).view(half).astype(np.float32)[()]

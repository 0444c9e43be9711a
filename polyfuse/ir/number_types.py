"""The types of numbers: one record each, and NumPy's rules for the type of an operation.

    int32 * int32   ->   int32, which wraps          float32 + 1.1     ->   float32
    int32 / int32   ->   float64                     float32 * int32   ->   float64
    int32 * 1.5     ->   float64                     float32 + float64 ->   float64
    uint8 + int8    ->   int16                       uint64 + int64    ->   float64
    bool + 1        ->   int64                       sqrt(int16)       ->   float32
    complex64 + int32  ->  complex128                float32 + 1j      ->   complex64

A literal is weak: it takes the type of the other operand, if that is of its kind or of a larger one (NEP 50).

Tensors have no complex elements. A complex number is two real ones beside each other (`Tensor.pairs`), and the complex
types are those of whole numbers, which frontends know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import ml_dtypes  # its import tells NumPy of bfloat16
import numpy as np

DType = Literal[
    "float32",
    "float64",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "bool",
    "int8",
    "int16",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]
"""The element types. float16 and bfloat16 are storage: see `computed_in`."""

Number = Literal["integer", "fraction"]
"""The kind of a literal without a type: 3, or 0.5."""

Type = DType | Number

COMPLEX: Mapping[str, DType] = {"complex64": "float32", "complex128": "float64"}
"""The types of complex numbers, with that of their real and imaginary parts."""

IMAGINARY = "imaginary"
"""The type of a complex literal, such as 2j."""

Kind = Literal["bool", "integer", "float", "complex"]
"""Truth values, whole numbers that wrap, numbers that are rounded, pairs of these."""


@dataclass(frozen=True)
class NumberType:
    """One type of numbers.

    Attributes:
        name: NumPy's name; "integer", "fraction" and "imaginary" are those of literals.
        kind: What its values are.
        bits: Bits of an element in memory; those of a literal are 0, as it has no memory.
        signed: True if there are negative values.
        computed_in: The type that values of a tensor have in a body; that of complex numbers' parts.
        held_as: The type of a kernel's arrays and variables: an integer of the same bits where numba and GPUs have no
            numbers of this type in memory.
        note: What annotations call it: "f64" in "f64[N]".
    """

    name: str
    kind: Kind
    bits: int
    signed: bool
    computed_in: DType
    held_as: str
    note: str

    @property
    def is_weak(self) -> bool:
        """True for the type of a literal."""
        return self.bits == 0

    @property
    def least(self) -> int:
        """The smallest integer, or the smaller truth value."""
        return -(2 ** (self.bits - 1)) if self.signed else 0

    @property
    def largest(self) -> int:
        """The largest integer, or the larger truth value."""
        return 1 if self.kind == "bool" else 2 ** (self.bits - self.signed) - 1


def _integer(name: DType, note: str) -> NumberType:
    bits = np.dtype(name).itemsize * 8
    return NumberType(name, "integer", bits, np.dtype(name).kind == "i", name, name, note)


NUMBER_TYPES: Mapping[str, NumberType] = {
    each.name: each
    for each in (
        NumberType("float32", "float", 32, True, "float32", "float32", "f32"),
        NumberType("float64", "float", 64, True, "float64", "float64", "f64"),
        _integer("int32", "i32"),
        _integer("int64", "i64"),
        NumberType("float16", "float", 16, True, "float32", "uint16", "f16"),
        NumberType("bfloat16", "float", 16, True, "float32", "uint16", "bf16"),
        NumberType("bool", "bool", 8, False, "bool", "uint8", "bool"),
        _integer("int8", "i8"),
        _integer("int16", "i16"),
        _integer("uint8", "u8"),
        _integer("uint16", "u16"),
        _integer("uint32", "u32"),
        _integer("uint64", "u64"),
        NumberType("integer", "integer", 0, True, "int64", "int64", ""),
        NumberType("fraction", "float", 0, True, "float64", "float64", ""),
        NumberType("complex64", "complex", 64, True, "float32", "float32", "c64"),
        NumberType("complex128", "complex", 128, True, "float64", "float64", "c128"),
        NumberType(IMAGINARY, "complex", 0, True, "float64", "float64", ""),
    )
}
"""Every type by its name: those of tensors, those of literals, those of pairs."""

COMPLEX_NOTES: Mapping[str, str] = {NUMBER_TYPES[dtype].note: dtype for dtype in COMPLEX}
"""The types of complex numbers by what annotations call them."""

_TYPES: Mapping[str, DType] = {dtype: dtype for dtype in get_args(DType)}
_WEAK: Mapping[str, Number] = {dtype: dtype for dtype in get_args(Number)}

ITEMSIZE: Mapping[str, int] = {dtype: NUMBER_TYPES[dtype].bits // 8 for dtype in _TYPES}
"""Bytes per element."""

HELD_TYPES = tuple(dict.fromkeys(NUMBER_TYPES[dtype].held_as for dtype in _TYPES))
"""The types of kernels' arrays and variables."""

HALVES = ("float16", "bfloat16")
"""Element types that are stored and not computed in: 11 digits up to 65504, and 8 digits with float32's exponents."""


def element_type(name: object) -> DType | None:
    """The element type of a name, or of what NumPy takes for a type; None if tensors have none such.

    >>> element_type("float32"), element_type(np.uint8), element_type("complex256x")
    ('float32', 'uint8', None)
    """
    try:
        return _TYPES.get(np.dtype(name).name)  # type: ignore[call-overload]  # whatever it may be
    except TypeError:
        return None


def computed_in(dtype: DType) -> DType:
    """The type that values of a tensor have in a body: float32 for a half, which an element is exactly.

    A value that is stored to a half is rounded to float32, as for a tensor of float32, and then once to nearest even.
    """
    return NUMBER_TYPES[dtype].computed_in


def relative_step(dtype: str) -> float:
    """The distance from 1 to the next number of a floating-point type: twice its unit of rounding.

    >>> [relative_step(dtype) for dtype in ("float16", "bfloat16")]
    [0.0009765625, 0.0078125]
    """
    return float(ml_dtypes.finfo(np.dtype(dtype)).eps)  # type: ignore[no-untyped-call]


def is_number(dtype: str) -> bool:
    """True for the type of a literal number, which adopts the type of the other operand."""
    return NUMBER_TYPES[dtype].is_weak


def is_integer(dtype: str) -> bool:
    """True for whole numbers, literals too; not for truth values.

    >>> [is_integer(dtype) for dtype in ("uint8", "integer", "bool", "float32")]
    [True, True, False, False]
    """
    return NUMBER_TYPES[dtype].kind == "integer"


def is_real(dtype: str) -> bool:
    """True for numbers that are rounded: floating-point types, halves too, and literals such as 0.5."""
    return NUMBER_TYPES[dtype].kind == "float"


def has(dtype: str, value: int) -> bool:
    """True if an integer type has a value.

    >>> has("uint8", 255), has("uint8", -1), has("int8", 128)
    (True, False, False)
    """
    known = NUMBER_TYPES[dtype]
    return known.least <= value <= known.largest


def is_complex(dtype: str) -> bool:
    """True for complex numbers, literals too.

    >>> is_complex("complex64"), is_complex("imaginary"), is_complex("float64")
    (True, True, False)
    """
    return NUMBER_TYPES[dtype].kind == "complex"


def part_type(dtype: str) -> Type:
    """The type of a complex number's real part, that of another number itself.

    >>> part_type("complex64"), part_type("imaginary"), part_type("int8")
    ('float32', 'fraction', 'int8')
    """
    return "fraction" if dtype == IMAGINARY else COMPLEX.get(dtype) or _TYPES.get(dtype) or _WEAK[dtype]


def with_parts(dtype: str) -> str:
    """The type of complex numbers that have such parts; halves, which have none, give complex64.

    >>> with_parts("float32"), with_parts("bfloat16"), with_parts("int32"), with_parts("fraction")
    ('complex64', 'complex64', 'complex128', 'imaginary')
    """
    if is_number(dtype):
        return IMAGINARY
    return "complex64" if dtype in ("float32", *HALVES) else "complex128"


def complex_type(types: Iterable[str]) -> str:
    """The type of an operation on numbers of which one is complex, by NumPy's rules.

    >>> complex_type(["complex64", "int16"]), complex_type(["complex64", "int32"]), complex_type(["bool", "imaginary"])
    ('complex64', 'complex128', 'complex128')
    >>> complex_type(["imaginary", "float32"]), complex_type(["imaginary", "integer"])
    ('complex64', 'imaginary')
    """
    every = [part_type(dtype) for dtype in types]
    return with_parts(joined([*every, "fraction"]))


def joined(types: Iterable[Type]) -> Type:
    """The type of an operation on values of these types.

    >>> joined(["int32", "integer"]), joined(["int32", "fraction"]), joined(["int32", "float32"])
    ('int32', 'float64', 'float64')
    >>> joined(["uint8", "int8"]), joined(["uint64", "int8"]), joined(["bool", "integer"])
    ('int16', 'float64', 'int64')
    """
    every = set(types)
    known = {dtype for dtype in every if not is_number(dtype)}
    if not known:
        return "fraction" if "fraction" in every else "integer"
    dtype: Type = next(iter(known)) if len(known) == 1 else _TYPES[str(np.result_type(*known))]
    if dtype == "bool" and "integer" in every:
        dtype = "int64"
    return quotient_type(dtype) if "fraction" in every else dtype


def quotient_type(dtype: Type) -> Type:
    """The type of a quotient of such values: integers and truth values give float64.

    >>> quotient_type("int8"), quotient_type("float32"), quotient_type("integer")
    ('float64', 'float32', 'fraction')
    """
    if is_real(dtype):
        return dtype
    return "fraction" if is_number(dtype) else "float64"


def real_type(dtype: Type) -> Type:
    """The type of a function of such a value, as NumPy's sqrt: a float with digits enough for all the integers.

    >>> real_type("bool"), real_type("int16"), real_type("uint32"), real_type("bfloat16")
    ('float16', 'float32', 'float64', 'bfloat16')
    """
    bits = NUMBER_TYPES[dtype].bits
    if is_real(dtype) or is_number(dtype) or bits > 16:
        return quotient_type(dtype)
    return "float16" if bits == 8 else "float32"


def computed_real(dtype: Type) -> Type:
    """The type that a function of such a value has in a body: float32 where NumPy has a half.

    >>> computed_real("int8"), computed_real("int64"), computed_real("integer")
    ('float32', 'float64', 'fraction')
    """
    found = real_type(dtype)
    return found if is_number(found) else computed_in(_TYPES[found])


def sum_type(dtype: Type) -> Type:
    """NumPy's type of a sum: integers of fewer bits, and truth values, are added in 64 bits.

    >>> sum_type("bool"), sum_type("int8"), sum_type("uint16"), sum_type("float32")
    ('int64', 'int64', 'uint64', 'float32')
    """
    if is_real(dtype) or is_number(dtype):
        return dtype
    return "uint64" if is_integer(dtype) and not NUMBER_TYPES[dtype].signed else "int64"

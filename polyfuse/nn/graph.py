"""The functional form: values as nodes of a graph.

    value ::= Input(name) | Constant(array) | operation(value*) | Further(name)(value)

A value is used any number of times; two values are the same only if they are the same object.
"""

from __future__ import annotations

import keyword
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from polyfuse.errors import BadArgument
from polyfuse.ir import DType
from polyfuse.nn.nest_writer import Array
from polyfuse.nn.operations import Linear, Matmul, Operation, Pointwise
from polyfuse.nn.shape.operations import View, sliced
from polyfuse.nn.sizes import GivenSize, Shape, all_sizes, is_negative

FLOATS: dict[str, DType] = {
    "float32": "float32",
    "float64": "float64",
    "float16": "float16",
    "bfloat16": "bfloat16",
}
"""The element types of layers. Values of the two halves are float16 or bfloat16, computed in float32."""

INTEGERS: tuple[DType, ...] = ("int32", "int64")
"""The element types of whole numbers: views, arithmetic, comparisons and sums take them, and what chooses rows."""


@dataclass(frozen=True)
class Input:
    """An argument of a call."""

    name: str


@dataclass(frozen=True, eq=False)
class Constant:
    """Weights, known at compile time: a reference to the array, not a copy.

    With a name, the nest's tensor is called so; without one, after what the operation that reads it calls it.
    """

    array: Array
    name: str | None = None


@dataclass(frozen=True)
class Further:
    """An additional result of the operand's operation, by name: an LSTM's cell state. No statement."""

    name: str


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor that is not computed yet: an input, a constant, or an operation on other values.

    Operators + - * / **, abs and unary minus act element by element and broadcast as in NumPy, with values, arrays and
    numbers; x @ w is a matrix product, batched if there are more axes; x[1, ::2] is a view.
    """

    source: Input | Constant | Operation | Further
    operands: tuple[Value, ...]
    shape: Shape
    dtype: DType

    __array_ufunc__ = None  # so that `array + value` asks the value

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def __add__(self, other: Operand) -> Value:
        return pointwise("add", "{0} + {1}", self, other, integers=True)

    def __radd__(self, other: Operand) -> Value:
        return pointwise("add", "{0} + {1}", other, self, integers=True)

    def __sub__(self, other: Operand) -> Value:
        return pointwise("sub", "{0} - {1}", self, other, integers=True)

    def __rsub__(self, other: Operand) -> Value:
        return pointwise("sub", "{0} - {1}", other, self, integers=True)

    def __mul__(self, other: Operand) -> Value:
        return pointwise("mul", "{0} * {1}", self, other, integers=True)

    def __rmul__(self, other: Operand) -> Value:
        return pointwise("mul", "{0} * {1}", other, self, integers=True)

    def __truediv__(self, other: Operand) -> Value:
        return pointwise("div", "{0} / {1}", self, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return pointwise("div", "{0} / {1}", other, self)

    def __matmul__(self, other: Value | Array) -> Value:
        return product(self, as_value(other, self.dtype))

    def __rmatmul__(self, other: Array) -> Value:
        return product(as_value(other, self.dtype), self)

    def __getitem__(self, key: object) -> Value:
        return apply(sliced(self.shape, key), (self,))

    __iter__ = None  # a value is not a sequence: `for row in x` would ask for rows without end

    def __abs__(self) -> Value:
        return pointwise("abs", "abs({0})", self, integers=True)

    def __pow__(self, other: Operand) -> Value:
        return pointwise("pow", "{0} ** {1}", self, other)

    def __neg__(self) -> Value:
        return pointwise("neg", "-{0}", self, integers=True)

    def __repr__(self) -> str:
        match self.source:
            case Input(name):
                what = f"input {name}"
            case Constant(_, name):
                what = "constant" if name is None else f"constant {name}"
            case Pointwise(kind) | View(kind) | Further(kind):
                what = kind
            case operation:
                what = type(operation).__name__.lower()
        return f"<{what}: {self.dtype}{list(self.shape)}>"


Operand = Value | Array | float


def dtype_of(dtype: object) -> DType:
    """The name of a floating-point type; BadArgument for any other."""
    try:
        name = np.dtype(dtype).name  # type: ignore[call-overload]  # any spelling NumPy reads
    except TypeError:
        name = repr(dtype)
    if name not in FLOATS:
        raise BadArgument(f"layers compute in {' or '.join(FLOATS)}, not in {name}")
    return FLOATS[name]


def element_type(dtype: object) -> DType:
    """The name of a type of values, floating-point or integer; BadArgument for any other."""
    kind = next((integer for integer in INTEGERS if dtype == integer), None)
    return kind or dtype_of(dtype)


RESERVED = (*keyword.kwlist, "inf")
"""Words that cannot be names in a statement."""


def check_name(what: str, name: str) -> None:
    """BadArgument for a name that no tensor can have."""
    if not (isinstance(name, str) and name.isascii() and name.isidentifier()) or name in RESERVED:
        raise BadArgument(
            f"{what} name {name!r} is not a free identifier; expected such as 'x' or '{what}_0'"
        )


def input(name: str, shape: Sequence[GivenSize], dtype: str = "float32") -> Value:
    """A tensor that a call will pass.

    Args:
        name: The argument's name.
        shape: The sizes: integers, or symbolic sizes as text ("N", "2*N + 1"), whose values each call's arrays give.
        dtype: A floating-point type; int32 or int64 for row numbers of an embedding.

    Returns:
        The value.

    Raises:
        BadArgument: if the name is not an identifier or is reserved in statements, or a size is negative or not affine.
    """
    sizes = all_sizes(f"input {name}: shape", shape)
    if any(map(is_negative, sizes)):
        raise BadArgument(f"input {name}: shape {sizes} has a negative size")
    check_name("input", name)
    return Value(Input(name), (), sizes, element_type(dtype))


def constant(array: Array, name: str | None = None) -> Value:
    """A known array as a value; the nest refers to this very array.

    Args:
        array: The array.
        name: The tensor's name in the nest; without one, the operation that reads it first names it.

    Returns:
        The value.

    Raises:
        BadArgument: if `array` is not an array, or the name is not an identifier or is reserved in statements.
    """
    if name is not None:
        check_name("constant", name)
    if not isinstance(array, np.ndarray | np.generic):
        raise BadArgument(
            f"constant: {array!r} is not an array; numpy.array(…, 'float32') makes one from numbers"
        )
    return Value(Constant(array, name), (), tuple(array.shape), element_type(array.dtype))


def check_value(operation: str, given: object) -> None:
    """BadArgument for an array, a layer or anything else that is not a value."""
    if not isinstance(given, Value):
        raise BadArgument(
            f"{operation}: {type(given).__name__} is not a value; make an argument with nn.input('x', (64, 512)), "
            "or a known array with nn.constant(array)"
        )


def apply(operation: Operation, operands: Sequence[Value]) -> Value:
    """The value of an operation; BadArgument if shapes or element types do not go together."""
    for value in operands:
        check_value(type(operation).__name__.lower(), value)
    types = list(dict.fromkeys(value.dtype for value in operands))
    if len(types) > 1:
        given = ", ".join(repr(value) for value in operands)
        raise BadArgument(
            f"element types {' and '.join(types)} cannot be mixed: {given}; nn.cast(value, {types[0]!r}) converts"
        )
    if set(types) & set(INTEGERS) and not operation.integers:
        given = ", ".join(repr(value) for value in operands)
        called = operation.stems[-1] if operation.stems else type(operation).__name__.lower()
        raise BadArgument(
            f"{called} computes in {' or '.join(FLOATS)}: {given}; nn.cast(value, 'float32') converts"
        )
    shape = operation.shape([value.shape for value in operands])
    return Value(operation, tuple(operands), shape, operation.dtype or types[0])


def product(x: Value, y: Value) -> Value:
    """x @ y: with one matrix for all of x, or batch by batch."""
    return apply(Linear(bias=False) if y.rank == 2 else Matmul(), (x, y))


def pointwise(kind: str, text: str, *operands: Operand, integers: bool | str = False) -> Value:
    """A scalar expression on broadcast operands; numbers become literals in the expression.

    `integers` says whether it is an expression of integers too, or which one takes its place for them. BadArgument if
    no operand is a Value, or a number is no integer where the values are.
    """
    dtype = next((value.dtype for value in operands if isinstance(value, Value)), None)
    if dtype is None:
        raise BadArgument(f"{kind} of {operands}: at least one operand must come from nn.input or a layer")
    whole = dtype in INTEGERS and integers is not False
    if whole and isinstance(integers, str):
        text = integers
    values: list[Value] = []
    leaves: list[str] = []
    for operand in operands:
        if isinstance(operand, int | float | np.number) and math.isfinite(operand):
            leaves.append(_literal(kind, operand, dtype) if whole else f"{float(operand)!r}")
            if operand < 0:
                leaves[-1] = f"({leaves[-1]})"
            continue
        leaves.append(f"{{{len(values)}}}")
        values.append(as_value(operand, dtype))
    return apply(Pointwise(kind, text.format(*leaves), of_integers=whole), values)


def _literal(kind: str, number: float, dtype: DType) -> str:
    if int(number) != number:
        raise BadArgument(
            f"{kind}: {number!r} beside values of {dtype}; nn.cast(value, 'float64') converts them"
        )
    return str(int(number))


def as_value(operand: Operand, dtype: DType) -> Value:
    """An operand as a value: arrays become constants; a number, an array without dimensions."""
    if isinstance(operand, Value):
        return operand
    if isinstance(operand, np.ndarray):
        return constant(operand)
    if isinstance(operand, int | float | np.number):
        return constant(np.array(operand, dtype))
    raise BadArgument(f"{operand!r} is neither a value, an array nor a number")


def in_order(outputs: Sequence[Value]) -> Iterator[Value]:
    """Every value the outputs need, each once, operands first, left to right."""
    seen: set[int] = set()
    stack = [(value, False) for value in reversed(outputs)]
    while stack:
        value, ready = stack.pop()
        if ready:
            yield value
        elif id(value) not in seen:
            seen.add(id(value))
            stack.append((value, True))
            stack.extend((operand, False) for operand in reversed(value.operands))

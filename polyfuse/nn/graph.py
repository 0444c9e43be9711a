"""The functional form: values as nodes of a graph.

    value ::= Input(name) | Constant(array) | operation(value*) | Further(name)(value)

A value is used any number of times; two values are the same only if they are the same object.
"""

from __future__ import annotations

import keyword
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn, get_args

import numpy as np

from polyfuse.errors import BadArgument, quantity
from polyfuse.ir import DType
from polyfuse.ir.number_types import ITEMSIZE, NUMBER_TYPES, has, is_integer
from polyfuse.ir.number_types import element_type as known_type
from polyfuse.ir.whole import all_whole, whole
from polyfuse.nn.nest_writer import Array
from polyfuse.nn.operations import EVERY, FLOAT, NUMBERS, Linear, Masked, Matmul, Operation, Pointwise, Reduce
from polyfuse.nn.shape.operations import View, reshaped, sliced
from polyfuse.nn.sizes import GivenSize, Product, Shape, all_sizes, is_negative
from polyfuse.nn.torch_names import torch_names

FLOATS: dict[str, DType] = {
    "float32": "float32",
    "float64": "float64",
    "float16": "float16",
    "bfloat16": "bfloat16",
}
"""The element types of layers. Values of the two halves are float16 or bfloat16, computed in float32."""

INTEGERS: tuple[DType, ...] = tuple(dtype for dtype in get_args(DType) if is_integer(dtype))
"""The element types of whole numbers: views, arithmetic, comparisons and sums take them, and what chooses rows.

Results have the operands' type, of which they keep the last bits: 200 + 100 is 44 in uint8.
"""


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
    numbers, and so do // and % (rounded down), < <= > >= (1 where it holds, else 0) and the methods eq and ne; == asks
    whether two values are one object. x @ w is a matrix product, batched if there are more axes; x[1, ::2] is a view.

    Attributes:
        source: Where it comes from: an input, a constant, or the operation that makes it.
        operands: The values that the operation takes.
        shape: The extents of its axes.
        dtype: The type of its elements.
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

    def __floordiv__(self, other: Operand) -> Value:
        return pointwise("div", "floor({0} / {1})", self, other, integers="{0} // {1}")

    def __rfloordiv__(self, other: Operand) -> Value:
        return pointwise("div", "floor({0} / {1})", other, self, integers="{0} // {1}")

    def __mod__(self, other: Operand) -> Value:
        return pointwise("remainder", REMAINDER, self, other, integers="{0} % {1}")

    def __rmod__(self, other: Operand) -> Value:
        return pointwise("remainder", REMAINDER, other, self, integers="{0} % {1}")

    def __lt__(self, other: Operand) -> Value:  # type: ignore[misc]  # reflected, it is the same comparison
        return compared("less", "<", self, other)

    def __le__(self, other: Operand) -> Value:  # type: ignore[misc]  # reflected, it is the same comparison
        return compared("less_equal", "<=", self, other)

    def __gt__(self, other: Operand) -> Value:  # type: ignore[misc]  # reflected, it is the same comparison
        return compared("greater", ">", self, other)

    def __ge__(self, other: Operand) -> Value:  # type: ignore[misc]  # reflected, it is the same comparison
        return compared("greater_equal", ">=", self, other)

    def __bool__(self) -> NoReturn:
        raise BadArgument(
            f"{self!r} is not computed yet, so no branch can depend on it; nn.where(condition, a, b) chooses elements"
        )

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
        return pointwise("pow", "{0} ** {1}", self, other, integers=True)

    def __rpow__(self, other: Operand) -> Value:
        return pointwise("pow", "{0} ** {1}", other, self, integers=True)

    def __neg__(self) -> Value:
        return pointwise("neg", "-{0}", self, integers=True)

    def abs(self) -> Value:
        """The absolute value, as `nn.abs`."""
        return abs(self)

    def eq(self, other: Operand) -> Value:
        """1 where this value equals another, else 0, as `nn.equal`.

        Args:
            other: A value, an array or a number.

        Returns:
            A value of the broadcast shape and the operands' type.

        Raises:
            BadArgument: if types differ, or shapes do not broadcast.
        """
        return compared("equal", "==", self, other)

    def ne(self, other: Operand) -> Value:
        """1 where this value differs from another or one is NaN, else 0, as `nn.not_equal`.

        Args:
            other: A value, an array or a number.

        Returns:
            A value of the broadcast shape and the operands' type.

        Raises:
            BadArgument: if types differ, or shapes do not broadcast.
        """
        return pointwise(
            "not_equal",
            "where({0} == {1}, 0.0, 1.0)",
            self,
            other,
            integers="where({0} == {1}, 0, 1)",
            truths=True,
        )

    @torch_names(dim="axis", keepdim="keepdims")
    def sum(self, axis: Axes = None, keepdims: bool = False) -> Value:
        """The sum over some axes, as `nn.sum`.

        Args:
            axis: The axes, or one of them; all by default.
            keepdims: True keeps them, with size 1.

        Returns:
            A value of the shape that is left.

        Raises:
            BadArgument: if an axis does not exist or is named twice.
        """
        return apply(Reduce("sum", axes_of("sum", self, axis), keepdims), (self,))

    @torch_names(dim="axis", keepdim="keepdims")
    def mean(self, axis: Axes = None, keepdims: bool = False) -> Value:
        """The mean over some axes, as `nn.mean`.

        Args:
            axis: The axes, or one of them; all by default.
            keepdims: True keeps them, with size 1.

        Returns:
            A value of the shape that is left.

        Raises:
            BadArgument: if an axis does not exist or is named twice.
        """
        return apply(Reduce("mean", axes_of("mean", self, axis), keepdims), (self,))

    @torch_names(dim="axis", keepdim="keepdims")
    def max(self, axis: Axes = None, keepdims: bool = False) -> Value:
        """The maximum over some axes, as `nn.max`.

        Args:
            axis: The axes, or one of them; all by default.
            keepdims: True keeps them, with size 1.

        Returns:
            A value of the shape that is left.

        Raises:
            BadArgument: if an axis does not exist or is named twice.
        """
        return apply(Reduce("max", axes_of("max", self, axis), keepdims), (self,))

    @torch_names(dim="axis", keepdim="keepdims")
    def min(self, axis: Axes = None, keepdims: bool = False) -> Value:
        """The minimum over some axes, as `nn.min`.

        Args:
            axis: The axes, or one of them; all by default.
            keepdims: True keeps them, with size 1.

        Returns:
            A value of the shape that is left.

        Raises:
            BadArgument: if an axis does not exist or is named twice.
        """
        return apply(Reduce("min", axes_of("min", self, axis), keepdims), (self,))

    def permute(self, *axes: int | Sequence[int]) -> Value:
        """Permute the axes, as `nn.permute`: x.permute(1, 0), or x.permute((1, 0)).

        Args:
            *axes: Each axis once, or one sequence of them.

        Returns:
            A view.

        Raises:
            BadArgument: if they are not a permutation.
        """
        given = axes[0] if len(axes) == 1 else axes
        order = tuple(axis_of("permute", self, axis) for axis in all_whole("permute: axes", given))
        if sorted(order) != list(range(self.rank)):
            raise BadArgument(f"permute: axes {tuple(order)} do not name each axis of {self!r} once")
        subscripts = tuple(f"{{{order.index(axis)}}}" for axis in range(self.rank))
        return viewed(self, "permute", tuple(self.shape[axis] for axis in order), subscripts)

    def transpose(self, first: int = -2, second: int = -1) -> Value:
        """Exchange two axes, as `nn.transpose`.

        Args:
            first: An axis.
            second: An axis.

        Returns:
            A view.

        Raises:
            BadArgument: if an axis does not exist.
        """
        a, b = axis_of("transpose", self, first), axis_of("transpose", self, second)
        order = list(range(self.rank))
        order[a], order[b] = b, a
        return self.permute(order)

    def reshape(self, *shape: GivenSize | Sequence[GivenSize]) -> Value:
        """Show the elements in another shape, as `nn.reshape`: x.reshape(8, -1), or x.reshape((8, -1)).

        Args:
            *shape: The sizes, or one sequence of them; one may be -1 and is then inferred.

        Returns:
            A view.

        Raises:
            BadArgument: if the number of elements differs, or an element's place is not affine in sizes.
        """
        given = shape[0] if len(shape) == 1 else shape
        sizes, elements = all_sizes("reshape: shape", given), Product.of(self.shape)
        if -1 in sizes:
            left = elements.over(Product.of(size for size in sizes if size != -1))
            if sizes.count(-1) > 1 or left is None:
                raise BadArgument(
                    f"reshape: no size in place of -1 in {sizes} fits {self!r}"
                    + (": a size is affine, and two symbolic axes cannot be one" if elements.symbols else "")
                )
            sizes = tuple(left if size == -1 else size for size in sizes)
        if any(map(is_negative, sizes)) or Product.of(sizes) != elements:
            count = quantity(elements if elements.symbols else elements.factor, "element")
            raise BadArgument(f"reshape: {self!r} has {count}, the shape {sizes} {Product.of(sizes)}")
        return viewed(self, "reshape", sizes, reshaped(self.shape, sizes))

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Value:
        """Make one axis of several in a row, as torch's flatten.

        Args:
            start_dim: The first of the axes.
            end_dim: The last of the axes.

        Returns:
            A view; a value without axes gets one of size 1.

        Raises:
            BadArgument: if an axis does not exist, or the last stands before the first.
        """
        if not self.rank:
            return self.reshape((1,))
        first, last = axis_of("flatten", self, start_dim), axis_of("flatten", self, end_dim)
        if last < first:
            raise BadArgument(f"flatten: axis {end_dim} of {self!r} stands before axis {start_dim}")
        count = Product.of(self.shape[first : last + 1]).over(Product.of(()))
        if count is None:
            raise BadArgument(f"flatten: {self!r}: two symbolic axes cannot be one")
        return self.reshape((*self.shape[:first], count, *self.shape[last + 1 :]))

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

Axes = int | Sequence[int] | None

REMAINDER = (
    "where(abs({0}) < abs({1}), "
    "where({1} < 0.0, where({0} > 0.0, {0} + {1}, {0}), where({0} < 0.0, {0} + {1}, {0})), "
    "{0} - {1} * floor({0} / {1}))"
)
"""The remainder of floating-point numbers, of the sign of the divisor."""


def dtype_of(dtype: object) -> DType:
    """The name of a floating-point type; BadArgument for any other."""
    name = known_type(dtype)
    if name not in FLOATS:
        raise BadArgument(f"layers compute in {' or '.join(FLOATS)}, not in {name or repr(dtype)}")
    return FLOATS[name]


def element_type(operation: str, dtype: object) -> DType:
    """The name of a type of values; BadArgument, with the operation that it is for, for anything else."""
    name = known_type(dtype)
    if name is None:
        raise BadArgument(f"{operation}: element type {dtype!r}; expected one of {', '.join(ITEMSIZE)}")
    return name


RESERVED = (*keyword.kwlist, "inf")
"""Words that cannot be names in a statement."""


def check_name(what: str, name: str) -> None:
    """BadArgument for a name that no tensor can have."""
    if not (isinstance(name, str) and name.isascii() and name.isidentifier()) or name in RESERVED:
        named = repr(name) if isinstance(name, str) else f"of type {type(name).__name__}"
        raise BadArgument(f"{what} name {named} is not a free identifier; expected such as 'x' or '{what}_0'")


def input(name: str, shape: Sequence[GivenSize], dtype: str = "float32") -> Value:
    """A tensor that a call will pass.

    Args:
        name: The argument's name.
        shape: The sizes: integers, or symbolic sizes as text ("N", "2*N + 1"), whose values each call's arrays give.
        dtype: A floating-point type, a type of integers, signed or not, of 8 to 64 bits, or bool.

    Returns:
        The value.

    Raises:
        BadArgument: if the name is not an identifier or is reserved in statements, or a size is negative or not affine.
    """
    sizes = all_sizes(f"input {name}: shape", shape)
    if any(map(is_negative, sizes)):
        raise BadArgument(f"input {name}: shape {sizes} has a negative size")
    check_name("input", name)
    return Value(Input(name), (), sizes, element_type(f"input {name}", dtype))


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
    return Value(Constant(array, name), (), tuple(array.shape), element_type("constant", array.dtype))


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
    alike = operands[1:] if isinstance(operation, Masked) else operands
    types = list(dict.fromkeys(value.dtype for value in alike))
    if len(types) > 1:
        given = ", ".join(repr(value) for value in operands)
        raise BadArgument(
            f"element types {' and '.join(types)} cannot be mixed: {given}; nn.cast(value, {types[0]!r}) converts"
        )
    if NUMBER_TYPES[types[0]].kind not in operation.kinds:
        given = ", ".join(repr(value) for value in operands)
        called = operation.stems[-1] if operation.stems else type(operation).__name__.lower()
        computed = [*FLOATS, *(["integers"] if "integer" in operation.kinds else [])]
        raise BadArgument(
            f"{called} computes in {' or '.join(computed)}: {given}; nn.cast(value, 'float32') converts"
        )
    shape = operation.shape([value.shape for value in operands])
    return Value(operation, tuple(operands), shape, operation.dtype or types[0])


def product(x: Value, y: Value) -> Value:
    """x @ y: with one matrix for all of x, or batch by batch."""
    return apply(Linear(bias=False) if y.rank == 2 else Matmul(), (x, y))


def pointwise(
    kind: str, text: str, *operands: Operand, integers: bool | str = False, truths: bool = False
) -> Value:
    """A scalar expression on broadcast operands; numbers become literals in the expression.

    `integers` says whether it is an expression of integers too, or which one takes its place for them; with `truths`
    that is one of truth values too. BadArgument if no operand is a Value, or a number is none of the values' integers.
    """
    dtype = next((value.dtype for value in operands if isinstance(value, Value)), None)
    if dtype is None:
        raise BadArgument(f"{kind} of {operands}: at least one operand must come from nn.input or a layer")
    if dtype not in FLOATS and isinstance(integers, str):
        text = integers
    leaves, values = _leaves(kind, operands, dtype, exact=integers is not False)
    of = FLOAT if integers is False else EVERY if truths else NUMBERS
    return apply(Pointwise(kind, text.format(*leaves), of=of), values)


def chosen(condition: Value, x: Operand, y: Operand) -> Value:
    """`x` where a truth value holds, else `y`, broadcast."""
    dtype = next((value.dtype for value in (x, y) if isinstance(value, Value)), None)
    if dtype is None:
        raise BadArgument(
            "where: one of the two has to be a value; nn.cast(condition, 'float32') makes numbers of it"
        )
    leaves, values = _leaves("where", (x, y), dtype, exact=True, first=1)
    text = f"where({{0}} == 0, {leaves[1]}, {leaves[0]})"
    return apply(Masked("where", text, of=EVERY), [condition, *values])


def _leaves(
    kind: str, operands: Sequence[Operand], dtype: DType, exact: bool, first: int = 0
) -> tuple[list[str], list[Value]]:
    """Texts for operands, numbers as they stand and {first}, … for values; and the values.

    Beside others than floats a number has to be one of their type if it is to be exact.
    """
    values: list[Value] = []
    leaves: list[str] = []
    for operand in operands:
        if isinstance(operand, int | float | np.number) and math.isfinite(operand):
            whole = exact and dtype not in FLOATS
            leaves.append(_literal(kind, operand, dtype) if whole else f"{float(operand)!r}")
            if operand < 0:
                leaves[-1] = f"({leaves[-1]})"
            continue
        leaves.append(f"{{{first + len(values)}}}")
        values.append(as_value(operand, dtype))
    return leaves, values


def compared(kind: str, sign: str, x: Operand, y: Operand) -> Value:
    """1 where a comparison holds, else 0, broadcast."""
    text = f"where({{0}} {sign} {{1}}, 1.0, 0.0)"
    return pointwise(kind, text, x, y, integers=text.replace(".0", ""), truths=True)


def viewed(x: Value, kind: str, shape: Shape, subscripts: tuple[str, ...], needed: Shape = ()) -> Value:
    """A view; x itself where it shows x as it is."""
    if shape == x.shape and subscripts == tuple(f"{{{d}}}" for d in range(x.rank)):
        return x
    return apply(View(kind, shape, subscripts, needed), [x])


def axis_of(operation: str, x: Value, axis: int) -> int:
    """An axis counted from the left; BadArgument if x has no such axis, or is not a value."""
    check_value(operation, x)
    at = whole(f"{operation}: axis", axis)
    if not -x.rank <= at < x.rank:
        raise BadArgument(f"{operation}: axis {at} of {x!r}, which has {quantity(x.rank, 'axis', 'axes')}")
    return at % x.rank


def axes_of(operation: str, x: Value, axis: Axes) -> tuple[int, ...]:
    """Axes counted from the left, sorted; BadArgument if x has no such axis or one is named twice."""
    check_value(operation, x)
    if axis is None:
        return tuple(range(x.rank))
    given = all_whole(f"{operation}: axis", axis)
    found = tuple(sorted(axis_of(operation, x, a) for a in given))
    if len(set(found)) < len(found):
        raise BadArgument(f"{operation}: axes {given} of {x!r} name an axis twice")
    return found


def _literal(kind: str, number: float, dtype: DType) -> str:
    if int(number) != number:
        raise BadArgument(
            f"{kind}: {number!r} beside values of {dtype}; nn.cast(value, 'float64') converts them"
        )
    if not has(dtype, int(number)):
        known = NUMBER_TYPES[dtype]
        raise BadArgument(
            f"{kind}: {int(number)} beside values of {dtype}, which are {known.least} to {known.largest}; "
            "nn.cast(value, 'int64') converts them"
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

"""Elements chosen by numbers that are computed, or lie along any axis: gather, take by data, scatter.

    out[i, k] += where(index[i, k] == j, x[j, k], 0)        over every j

A subscript is affine in a nest, so every element along the axis is read, and one of them is kept: the cost is that of
the whole axis for each result. `nn.embedding` reads rows of a table where they lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from polyfuse.errors import BadArgument
from polyfuse.ir import Tensor
from polyfuse.ir.number_types import NUMBER_TYPES
from polyfuse.nn.elementwise import less, where
from polyfuse.nn.functional import cast, maximum
from polyfuse.nn.graph import INTEGERS, Operand, Value, apply, as_value, axis_of, check_value
from polyfuse.nn.nest_writer import Emitter, element, extents
from polyfuse.nn.operations import NUMBERS, Kinds, Operation, initial
from polyfuse.nn.shape.functional import narrow, pad
from polyfuse.nn.sizes import Shape, Size, numbers


def _chosen(index: str, j: str, size: Size, value: str, neutral: str) -> str:
    """A value where an index is j, counted from either end; else a number that changes nothing."""
    return f"where({index} == {j}, {value}, where({index} == {j} - {size}, {value}, {neutral}))"


@dataclass(frozen=True)
class Choice(Operation):
    """One element along an axis for each result: by an index of the result's shape, or of the axis's place in it."""

    axis: int
    aligned: bool

    @property
    def stems(self) -> tuple[str, ...]:
        """An initial value, and the sum of which one term is not 0."""
        return ("chosen_init", "chosen")

    @property
    def result(self) -> str:
        """Chosen elements are an e."""
        return "e"

    @property
    def reduces(self) -> bool:
        """The sum is the result."""
        return True

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """The index's shape, or x's with it in place of the axis; BadArgument where they do not fit."""
        x, index = shapes
        if not self.aligned:
            return (*x[: self.axis], *index, *x[self.axis + 1 :])
        sizes = zip(x, index, strict=False)
        if len(x) != len(index) or any(b > a for d, (a, b) in enumerate(sizes) if d != self.axis):
            raise BadArgument(
                f"gather: the index {index} does not fit {x}: as many axes, and no larger sizes "
                f"but along axis {self.axis}"
            )
        return index

    def emit(self, to: Emitter, n: int, operands: Sequence[Tensor], out: Tensor) -> None:
        """`e = 0`, then `e += where(index == j, x, 0)`."""
        x, index = operands
        *names, j = to.dims(out.rank + 1)
        rest = self.axis + (1 if self.aligned else index.rank)
        at = names if self.aligned else names[self.axis : rest]
        size, place = extents(x)[self.axis], [*names[: self.axis], j, *names[rest:]]
        domain = dict(zip(names, extents(out), strict=True))
        target = element(out, names)
        to.assign(f"chosen_init{n}", domain, f"{target} = {initial('+=', out.dtype)}")
        value = _chosen(element(index, at), j, size, element(x, place), initial("+=", out.dtype))
        to.assign(f"chosen{n}", domain | {j: size}, f"{target} += {value}")


Reduction = Literal["add", "multiply", "max", "min"]

REDUCTIONS: dict[Reduction, str] = {"add": "+=", "multiply": "*=", "max": "max=", "min": "min="}


@dataclass(frozen=True)
class Scatter(Operation):
    """x, and combined with the element that each index chooses along an axis, an element of a source."""

    axis: int
    reduction: Reduction

    @property
    def stems(self) -> tuple[str, ...]:
        """x itself, and what is added."""
        return ("scatter_init", "scatter")

    @property
    def result(self) -> str:
        """A sum is an s."""
        return "s"

    @property
    def reduces(self) -> bool:
        """The sum is the result."""
        return True

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """x's shape; BadArgument where index and source do not fit."""
        x, index, source = shapes
        sizes = list(zip(x, index, source, strict=False))
        fits = len(x) == len(index) == len(source)
        if not fits or any(b > c or (b > a and d != self.axis) for d, (a, b, c) in enumerate(sizes)):
            raise BadArgument(
                f"scatter: index {index} and source {source} do not fit {x}: as many axes, an index no larger than the "
                f"source, and than x but along axis {self.axis}"
            )
        return x

    def emit(self, to: Emitter, n: int, operands: Sequence[Tensor], out: Tensor) -> None:
        """`s = x`, then `s[j] += where(index[i] == j, source[i], 0)`."""
        x, index, source = operands
        *names, j = to.dims(out.rank + 1)
        to.assign(
            f"scatter_init{n}",
            dict(zip(names, extents(out), strict=True)),
            f"{element(out, names)} = {element(x, names)}",
        )
        op = REDUCTIONS[self.reduction]
        size, place = extents(x)[self.axis], [*names[: self.axis], j, *names[self.axis + 1 :]]
        value = _chosen(element(index, names), j, size, element(source, names), initial(op, out.dtype))
        domain = dict(zip(names, extents(index), strict=True)) | {j: size}
        to.assign(f"scatter{n}", domain, f"{element(out, place)} {op} {value}")


@dataclass(frozen=True)
class LastPlace(Operation):
    """For each element along an axis of some size, the last place of an index that chooses it, or -1."""

    axis: int
    size: int

    @property
    def stems(self) -> tuple[str, ...]:
        """None, then the largest."""
        return ("last_init", "last")

    @property
    def result(self) -> str:
        """A place is an `at`."""
        return "at"

    @property
    def kinds(self) -> Kinds:
        """True: it compares."""
        return NUMBERS

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """The index's shape, with the size along the axis."""
        (index,) = shapes
        return (*index[: self.axis], self.size, *index[self.axis + 1 :])

    def emit(self, to: Emitter, n: int, operands: Sequence[Tensor], out: Tensor) -> None:
        """`at = -1`, then `at[j] max= where(index[i] == j, i, -1)`."""
        (index,) = operands
        *names, j = to.dims(out.rank + 1)
        place = [*names[: self.axis], j, *names[self.axis + 1 :]]
        to.assign(f"last_init{n}", dict(zip(names, extents(out), strict=True)), f"{element(out, names)} = -1")
        value = _chosen(element(index, names), j, self.size, names[self.axis], "-1")
        domain = dict(zip(names, extents(index), strict=True)) | {j: self.size}
        to.assign(f"last{n}", domain, f"{element(out, place)} max= {value}")


def gather(x: Value, axis: int, index: Value) -> Value:
    """The elements that an index chooses along an axis: out[i, k] = x[index[i, k], k] for axis 0. Tensor e.

    Every element along the axis is read for each result; `nn.embedding` and `nn.take` by known numbers read one.

    Args:
        x: The value.
        axis: The axis.
        index: Integers, with as many axes as x; negative ones count from the end, and others that the axis does not
            have give 0.

    Returns:
        A value of the shape of the index.

    Raises:
        BadArgument: if the index has no integers, or its shape does not fit.
    """
    return _choice("gather", x, axis, index, aligned=True)


def take_by(x: Value, index: Value, axis: int) -> Value:
    """The elements along an axis that an index of any shape chooses; its axes take the place of x's."""
    return _choice("take", x, axis, index, aligned=False)


def _choice(operation: str, x: Value, axis: int, index: Value, aligned: bool) -> Value:
    along = axis_of(operation, x, axis)
    index = _index(operation, index)
    made = Choice(along, aligned)
    return Value(made, (x, index), made.shape((x.shape, index.shape)), x.dtype)


def scatter_add(x: Value, axis: int, index: Value, source: Operand, reduction: Reduction = "add") -> Value:
    """x with elements of a source added where an index says: out[index[i, k], k] += source[i, k] for axis 0. Tensor s.

    Every element of the axis is compared with every index, so that the additions are a sum like any other.

    Args:
        x: The value.
        axis: The axis.
        index: Integers, with as many axes as x; negative ones count from the end, and others that the axis does not
            have add nothing.
        source: A value at least as large as the index.
        reduction: "add", or "multiply", "max" or "min" in its place.

    Returns:
        A value of the shape of x.

    Raises:
        BadArgument: if the index has no integers, the types differ, the shapes do not fit, or the reduction is unknown.
    """
    along = axis_of("scatter_add", x, axis)
    index = _index("scatter_add", index)
    value = as_value(source, x.dtype)
    if value.dtype != x.dtype:
        raise BadArgument(f"scatter_add: element types {x.dtype} and {value.dtype} cannot be mixed")
    if reduction not in REDUCTIONS:
        raise BadArgument(f"scatter_add: reduction is {reduction!r}, expected {', '.join(REDUCTIONS)}")
    made = Scatter(along, reduction)
    return Value(made, (x, index, value), made.shape((x.shape, index.shape, value.shape)), x.dtype)


def scatter(x: Value, axis: int, index: Value, source: Operand) -> Value:
    """x with elements of a source in place of those that an index chooses, the last where several choose one.

    out[index[i, k], k] = source[i, k] for axis 0, in the order of i. Tensors at, e, a.

    Args:
        x: The value.
        axis: The axis.
        index: As for `scatter_add`.
        source: A value at least as large as the index.

    Returns:
        A value of the shape of x.

    Raises:
        BadArgument: as for `scatter_add`.
    """
    along = axis_of("scatter", x, axis)
    index = _index("scatter", index)
    value = as_value(source, x.dtype)
    Scatter(along, "add").shape((x.shape, index.shape, value.shape))
    sizes, used = numbers("scatter", x.shape), numbers("scatter", index.shape)
    widths = [(0, 0 if d == along else a - b) for d, (a, b) in enumerate(zip(sizes, used, strict=True))]
    for each, size in enumerate(used):
        value = narrow(value, each, 0, size)
    chosen = pad(index, widths, sizes[along])  # a number that the axis does not have
    places = apply(LastPlace(along, sizes[along]), [chosen])
    kept = gather(pad(value, widths), along, maximum(places, 0))
    return where(cast(less(places, 0), x.dtype), x, kept)


def _index(operation: str, index: object) -> Value:
    """An index with a sign, as places are compared with it; BadArgument for one that holds no integers."""
    check_value(operation, index)
    assert isinstance(index, Value)
    if index.dtype not in INTEGERS:
        raise BadArgument(
            f"{operation}: the index {index!r} holds no integers; nn.cast(value, 'int64') converts"
        )
    return index if NUMBER_TYPES[index.dtype].signed else cast(index, "int64")

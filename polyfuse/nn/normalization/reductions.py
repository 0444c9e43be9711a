"""Reductions of several statements: variance, norms, logsumexp, argmax and argmin.

None of them leaves the device: a total without dimensions is a tensor like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from polyfuse.errors import BadArgument
from polyfuse.ir import DType, Tensor
from polyfuse.nn.graph import INTEGERS, Axes, Value, apply, axes_of, axis_of, pointwise
from polyfuse.nn.nest_writer import Emitter, element, extents
from polyfuse.nn.normalization.along_axes import corrected
from polyfuse.nn.operations import NUMBERS, Kinds, Operation, fold, kept
from polyfuse.nn.sizes import Product, Shape
from polyfuse.nn.torch_names import torch_names

_ROOT = "where({0} == 0.0, 0.0, sqrt({0}))"
"""The root of a sum of squares: where all of them are 0, its subgradient is 0, as torch's."""


@dataclass(frozen=True)
class Reduction(Operation):
    """An operation that reduces over some axes (counted from the left)."""

    axes: tuple[int, ...]
    keepdims: bool

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """The operand's shape without the axes, or with size 1 there; BadArgument where there is nothing to reduce."""
        (x,) = shapes
        if any(x[a] == 0 for a in self.axes):
            raise BadArgument(f"{type(self).__name__.lower()}: axes {self.axes} of {x} are empty")
        sizes = [1 if d in self.axes else size for d, size in enumerate(x)]
        return tuple(size for d, size in enumerate(sizes) if self.keepdims or d not in self.axes)

    def needed(self, shapes: Sequence[Shape]) -> Shape:
        """There is something to reduce."""
        return tuple(shapes[0][a] - 1 for a in self.axes)

    def count(self, x: Shape) -> Product:
        """The number of values that make one result."""
        return Product.of(x[a] for a in self.axes)


@dataclass(frozen=True)
class Variance(Reduction):
    """The sum of squares of x - mean(x), over the count less `correction`, by the corrected two-pass algorithm.

        mu = Σ x / n;  y = x - mu;  t = Σ y;  q = Σ y²;  variance = (q - t² / n) / (n - correction)

    mu is rounded, and so was the sum that it is made of: t makes up for that, in the pass that adds up the squares
    (Chan, Golub, LeVeque, "Algorithms for computing the sample variance", 1983, formula 1.7).

    With the unit of rounding u (2⁻²⁴ for float32), the longest chain of m additions in a sum (n one by one, n / 32 and
    fewer on vector lanes, in parts, on threads) and r = m u |mean| / deviation, the relative error is at most about
    3 m u (1 + r)². Without t it is r² + m u: mu is off by r deviations.
    """

    correction: int

    @property
    def stems(self) -> tuple[str, ...]:
        """mean: mu; apart: y; devsum: t; varsum: q; var."""
        sums = ("meansum_init", "meansum", "mean", "apart", "devsum_init", "devsum", "varsum_init", "varsum")
        return (*sums, "var")

    @property
    def result(self) -> str:
        """A variance is a v."""
        return "v"

    def emit(self, to: Emitter, n: int, operands: Sequence[Tensor], out: Tensor) -> None:
        """The sum, the mean, the differences from it, their sum and that of their squares, the quotient."""
        (x,) = operands
        every, count = to.dims(x.rank), self.count(extents(x))
        divisor = f"({count})" if count.symbols else str(float(count.factor))
        less = (
            f"({count} - {self.correction})" if count.symbols else str(float(count.factor - self.correction))
        )
        names, row = kept(every, extents(x), self.axes, self.keepdims)
        s, mu, t, q = (to.temporary(stem, n, extents(out), out.dtype) for stem in ("s", "mu", "t", "q"))
        y = to.temporary("y", n, extents(x), out.dtype)
        fold(to, (f"meansum_init{n}", f"meansum{n}"), "+=", x, self.axes, s, "{0}", self.keepdims)
        to.assign(f"mean{n}", names, f"{element(mu, row)} = {element(s, row)} / {divisor}")
        inside = {d: size for d, size in zip(every, extents(x), strict=True) if d not in names}
        value = f"{element(y, every)} = {element(x, every)} - {element(mu, row)}"
        to.assign(f"apart{n}", names | inside, value)  # results outside, as the loops of the sums are turned
        fold(to, (f"devsum_init{n}", f"devsum{n}"), "+=", y, self.axes, t, "{0}", self.keepdims)
        fold(to, (f"varsum_init{n}", f"varsum{n}"), "+=", y, self.axes, q, "{0} * {0}", self.keepdims)
        squares = corrected(element(q, row), element(t, row), divisor)
        to.assign(f"var{n}", names, f"{element(out, row)} = {squares} / {less}")


@dataclass(frozen=True)
class Norm(Reduction):
    """The sum of absolute values (1), the root of the sum of squares (2), the largest absolute value (inf)."""

    order: float

    @property
    def stems(self) -> tuple[str, ...]:
        """norm: the sum or maximum; root."""
        return ("norm_init", "norm", "root")

    @property
    def result(self) -> str:
        """A norm is an s."""
        return "s"

    @property
    def reduces(self) -> bool:
        """All but a root of a sum."""
        return self.order != 2

    def emit(self, to: Emitter, n: int, operands: Sequence[Tensor], out: Tensor) -> None:
        """The sum or the maximum, and for 2 its root."""
        (x,) = operands
        names = (f"norm_init{n}", f"norm{n}")
        if self.order != 2:
            op = "+=" if self.order == 1 else "max="
            fold(to, names, op, x, self.axes, out, "abs({0})", self.keepdims)
            return
        squares = to.temporary("q", n, extents(out), out.dtype)
        fold(to, names, "+=", x, self.axes, squares, "{0} * {0}", self.keepdims)
        outside, row = kept(to.dims(x.rank), extents(x), self.axes, self.keepdims)
        to.assign(f"root{n}", outside, f"{element(out, row)} = {_ROOT.format(element(squares, row))}")


@dataclass(frozen=True)
class LogSumExp(Reduction):
    """log(sum exp(x)), the maximum subtracted first and added last: no exponential overflows.

    An infinite maximum is the result itself: -inf where all values are, and inf where one is. Its differences to equal
    values are NaN, and so is their sum.
    """

    @property
    def stems(self) -> tuple[str, ...]:
        """rowmax: m; rowsum: s += exp(x - m); logsum: m + log(s), or an infinite m."""
        return ("rowmax_init", "rowmax", "rowsum_init", "rowsum", "logsum")

    @property
    def result(self) -> str:
        """A logarithm is an l."""
        return "l"

    def emit(self, to: Emitter, n: int, operands: Sequence[Tensor], out: Tensor) -> None:
        """The maximum, the sum of exponentials, its logarithm."""
        (x,) = operands
        outside, row = kept(to.dims(x.rank), extents(x), self.axes, self.keepdims)
        m, s = (to.temporary(stem, n, extents(out), out.dtype) for stem in ("m", "s"))
        fold(to, (f"rowmax_init{n}", f"rowmax{n}"), "max=", x, self.axes, m, "{0}", self.keepdims)
        exponential = "exp({0} - {1})"
        fold(to, (f"rowsum_init{n}", f"rowsum{n}"), "+=", x, self.axes, s, exponential, self.keepdims, (m,))
        maximum = element(m, row)
        value = f"where(abs({maximum}) < inf, {maximum} + log({element(s, row)}), {maximum})"
        to.assign(f"logsum{n}", outside, f"{element(out, row)} = {value}")


@dataclass(frozen=True)
class Place(Reduction):
    """The index of the largest or smallest value along one axis: the first one, or that of the first NaN.

    In two statements, both reductions that may go in any order:

        m max= x[i];    at min= i where x[i] >= m, or where x[i] is not a number; else N
    """

    kind: Literal["argmax", "argmin"]

    @property
    def stems(self) -> tuple[str, ...]:
        """extreme: the value; place: its index."""
        return ("extreme_init", "extreme", "place_init", "place")

    @property
    def result(self) -> str:
        """A place is an `at`."""
        return "at"

    @property
    def kinds(self) -> Kinds:
        """True: it compares."""
        return NUMBERS

    @property
    def dtype(self) -> DType:
        """int64, as in NumPy and torch."""
        return "int64"

    def emit(self, to: Emitter, n: int, operands: Sequence[Tensor], out: Tensor) -> None:
        """The extreme value, then the first place that has it."""
        (x,), (axis,) = operands, self.axes
        op, reaches = ("max=", ">=") if self.kind == "argmax" else ("min=", "<=")
        m = to.temporary("m", n, extents(out), x.dtype)
        fold(to, (f"extreme_init{n}", f"extreme{n}"), op, x, self.axes, m, "{0}", self.keepdims)
        every, none = to.dims(x.rank), extents(x)[axis]
        outside, row = kept(every, extents(x), self.axes, self.keepdims)
        to.assign(f"place_init{n}", outside, f"{element(out, row)} = {none}")
        value, i = element(x, every), every[axis]
        number = x.dtype in INTEGERS
        missed = (
            f"{none}" if number else f"where(abs({value}) >= 0, {none}, {i})"
        )  # no comparison holds for NaN
        place = f"where({value} {reaches} {element(m, row)}, {i}, {missed})"
        domain = dict(zip(every, extents(x), strict=True))
        to.assign(f"place{n}", domain, f"{element(out, row)} min= {place}")


@torch_names(dim="axis", keepdim="keepdims")
def var(x: Value, axis: Axes = None, correction: int = 0, keepdims: bool = False) -> Value:
    """The variance over some axes: the mean of the squares of x - mean(x).

    A mean much larger than the deviation costs no digits until a sum of the values is off by as much as the deviation
    (`reductions.Variance` has the bound).

    Args:
        x: The value.
        axis: An axis, several, or None for all.
        correction: Subtracted from the count in the divisor (NumPy's ddof): 0 here and in NumPy, 1 in torch. Where a
            symbolic count is not above it, the result is inf or NaN, as in NumPy.
        keepdims: True keeps the reduced axes with size 1.

    Returns:
        The variances.

    Raises:
        BadArgument: if the divisor would not be positive, or an axis does not exist.
    """
    operation = Variance(axes_of("var", x, axis), keepdims, correction)
    count = operation.count(x.shape)
    if not count.symbols and count.factor <= correction:
        raise BadArgument(
            f"var: {count} values of {x!r}, minus a correction of {correction}, leave no positive divisor"
        )
    return apply(operation, [x])


@torch_names(dim="axis", keepdim="keepdims")
def std(x: Value, axis: Axes = None, correction: int = 0, keepdims: bool = False) -> Value:
    """The standard deviation over some axes: the root of `var`.

    Args:
        x: The value.
        axis: An axis, several, or None for all.
        correction: As for `var`.
        keepdims: True keeps the reduced axes with size 1.

    Returns:
        The standard deviations.

    Raises:
        BadArgument: as for `var`.
    """
    return pointwise("std", _ROOT, var(x, axis, correction, keepdims))


@torch_names(dim="axis", keepdim="keepdims")
def norm(x: Value, axis: Axes = None, order: Literal[1, 2] | float = 2, keepdims: bool = False) -> Value:
    """The vector norm over some axes.

    Args:
        x: The value.
        axis: An axis, several, or None for all.
        order: 1, 2 or math.inf.
        keepdims: True keeps the reduced axes with size 1.

    Returns:
        The norms.

    Raises:
        BadArgument: if `order` is another number, or an axis does not exist.
    """
    if order not in (1, 2, np.inf):
        raise BadArgument(f"norm: order {order!r}, expected 1, 2 or math.inf")
    return apply(Norm(axes_of("norm", x, axis), keepdims, float(order)), [x])


@torch_names(dim="axis", keepdim="keepdims")
def logsumexp(x: Value, axis: Axes = None, keepdims: bool = False) -> Value:
    """log(sum exp(x)) over some axes, without overflow: -inf of -inf alone, inf with an inf, NaN with a NaN.

    Args:
        x: The value.
        axis: An axis, several, or None for all.
        keepdims: True keeps the reduced axes with size 1.

    Returns:
        The logarithms.

    Raises:
        BadArgument: if an axis does not exist, or is named twice.
    """
    return apply(LogSumExp(axes_of("logsumexp", x, axis), keepdims), [x])


@torch_names(dim="axis", keepdim="keepdims")
def argmax(x: Value, axis: int = -1, keepdims: bool = False) -> Value:
    """The index of the largest value along an axis: the first of several, or of the first NaN.

    Args:
        x: The value.
        axis: The axis.
        keepdims: True keeps the reduced axis with size 1.

    Returns:
        The indices, int64.

    Raises:
        BadArgument: if x has no such axis, or the axis is empty.
    """
    return apply(Place((axis_of("argmax", x, axis),), keepdims, "argmax"), [x])


@torch_names(dim="axis", keepdim="keepdims")
def argmin(x: Value, axis: int = -1, keepdims: bool = False) -> Value:
    """The index of the smallest value along an axis: the first of several, or of the first NaN.

    Args:
        x: The value.
        axis: The axis.
        keepdims: True keeps the reduced axis with size 1.

    Returns:
        The indices, int64.

    Raises:
        BadArgument: if x has no such axis, or the axis is empty.
    """
    return apply(Place((axis_of("argmin", x, axis),), keepdims, "argmin"), [x])

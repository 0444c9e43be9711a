"""Reductions over axes, and running sums."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence

import numpy as np

from polyfuse.frontend.python.numpy.complex_numbers import applied, chosen
from polyfuse.frontend.python.numpy.expressions import Call, Expressions
from polyfuse.frontend.python.numpy.functions.arguments import Arguments
from polyfuse.frontend.python.numpy.functions.calls import Calls
from polyfuse.frontend.python.numpy.functions.views import flat
from polyfuse.frontend.python.numpy.program import MAXIMUM, MINIMUM, PRODUCT, SUM, Reduction
from polyfuse.frontend.python.numpy.syntax import constant, minus, number, times
from polyfuse.frontend.python.numpy.values import (
    BOOL,
    Array,
    Index,
    Scalar,
    Value,
    as_number,
    reshaped,
)
from polyfuse.ir.number_types import (
    is_complex,
    is_real,
)

CALLS = Calls()


def _reduction(how: Reduction, stem: str) -> Call:
    def call(
        e: Expressions, node: ast.Call, args: list[Value], named: dict[str, Value], into: Array | None
    ) -> Value:
        a = Arguments(e, node, "a axis dtype out keepdims", args, named)
        value = a.either("a")
        if isinstance(value, Scalar):
            return value
        if how.begin is None and a.has("dtype"):
            a.refuse("the argument dtype")
        axes = a.axes("axis", value.rank)
        dtype = a.dtype(e.program.type_of_reduction(how, value.dtype))
        keeps = a.truth("keepdims")
        if value.mask is not None and a.has("axis"):
            a.refuse("an axis of the elements that a mask selects")
        made = e.program.reduced(how, value, axes, stem, dtype, None if keeps else into)
        return _with_kept(value, axes, made) if keeps else made

    return call


def _with_kept(value: Array, axes: Sequence[int], made: Array | Scalar) -> Array:
    """A reduction's result with extent 1 for each axis that is gone."""
    rest = [axis for axis in range(value.rank) if axis not in axes]
    shape = tuple(number(1) if axis in axes else value.shape[axis] for axis in range(value.rank))
    if isinstance(made, Scalar):
        node = made.node
        return Array(shape, made.dtype, lambda index: node)
    return reshaped(made, shape, lambda index: tuple(index[axis] for axis in rest))


CALLS.define(_reduction(SUM, "total"), np.sum, np.ndarray.sum, builtins.sum)
CALLS.define(_reduction(PRODUCT, "product"), np.prod, np.ndarray.prod)
CALLS.define(_reduction(MAXIMUM, "largest"), np.max, np.ndarray.max, np.amax)
CALLS.define(_reduction(MINIMUM, "smallest"), np.min, np.ndarray.min, np.amin)


def _truth(how: Reduction) -> Call:
    plain = _reduction(how, "truth")

    def call(
        e: Expressions, node: ast.Call, args: list[Value], named: dict[str, Value], into: Array | None
    ) -> Value:
        value = e.number_or_array(node, args[0])
        return plain(e, node, [e.program.converted(value, BOOL), *args[1:]], named, None)

    return call


CALLS.define(_truth(MINIMUM), np.all, np.ndarray.all)
CALLS.define(_truth(MAXIMUM), np.any, np.ndarray.any)


@CALLS.reads("a axis dtype out keepdims", np.mean, np.ndarray.mean)
def _mean(e: Expressions, a: Arguments) -> Value:
    value = a.array("a")
    axes = a.axes("axis", value.rank)
    made = _mean_of(e, value, axes, a.dtype(_mean_type(value)), 0)
    return _with_kept(value, axes, made) if a.truth("keepdims") else made


def _mean_type(value: Array) -> str:
    return value.dtype if is_real(value.dtype) or is_complex(value.dtype) else "float64"


def _mean_of(e: Expressions, value: Array, axes: Sequence[int], dtype: str, less: int) -> Array | Scalar:
    """The sum over some axes, divided by the number of elements, less some."""
    e.program.hint = None
    total = e.program.reduced(SUM, value, axes, "total", dtype)
    if value.mask is not None:
        ones = Array(value.shape, "int64", lambda index: number(1), mask=value.mask)
        count = e.program.reduced(SUM, ones, axes, "count", "int64")
    else:
        size: ast.expr = number(1)
        for axis in axes:
            size = size_product(size, value.shape[axis])
        count = Scalar(minus(size, number(less)), "integer")
    types = [dtype, count.dtype]
    return e.program.elementwise(lambda x, n: applied(ast.Div(), x, n, types), dtype, [total, count])


@CALLS.reads("a axis dtype out ddof keepdims", np.var, np.ndarray.var)
def _var(e: Expressions, a: Arguments) -> Value:
    value = a.array("a")
    if is_complex(value.dtype):
        a.refuse("complex numbers")
    axes, dtype = a.axes("axis", value.rank), a.dtype(_mean_type(value))
    mean = _with_kept(value, axes, _mean_of(e, value, axes, dtype, 0))
    mean = e.program.kept(mean, "mean") if len(axes) < value.rank else mean
    distance = e.operation(a.node, ast.Sub(), [value, mean])
    assert isinstance(distance, Array), "an array less its mean is an array"
    square = e.operation(a.node, ast.Mult(), [distance, distance])
    assert isinstance(square, Array), "a product of arrays is an array"
    made = _mean_of(e, square, axes, dtype, a.integer("ddof", 0))
    return _with_kept(value, axes, made) if a.truth("keepdims") else made


@CALLS.reads("a axis dtype out ddof keepdims", np.std, np.ndarray.std)
def _std(e: Expressions, a: Arguments) -> Value:
    made = _var(e, a)
    assert isinstance(made, Array | Scalar), "a variance is a number, or one each"
    return e.program.elementwise(lambda x: e.program.call("sqrt", x), made.dtype, [made])


def size_product(left: ast.expr, right: ast.expr) -> ast.expr:
    """A product of extents, as a value: it need not be affine."""
    return right if constant(left) == 1 else times(left, right)


@CALLS.reads("a axis dtype out", np.cumsum, np.ndarray.cumsum)
def _cumsum(e: Expressions, a: Arguments) -> Value:
    value = a.array("a")
    if value.rank > 1 and not a.has("axis"):
        value = flat(e, a, value)
    axis = a.integer("axis", 0) % value.rank
    made = e.program.array(value.shape, a.dtype(e.program.type_of_reduction(SUM, value.dtype)), "running")

    def at(index: Index) -> ast.expr:
        before = made.element((*index[:axis], minus(index[axis], number(1)), *index[axis + 1 :]))
        own = (
            value.element(index) if is_complex(value.dtype) else as_number(value.element(index), value.dtype)
        )
        first = ast.Compare(index[axis], [ast.GtE()], [number(1)])
        types = [made.dtype, value.dtype if value.dtype != BOOL else "integer"]
        return chosen(first, applied(ast.Add(), before, own, types), own, types)

    e.program.scan(made, Array(value.shape, made.dtype, at))
    return made


@CALLS.reads("a axis1 offset", np.trace, np.ndarray.trace)
def _trace(e: Expressions, a: Arguments) -> Value:
    array = a.array("a")
    line = reshaped(array, (array.shape[0],), lambda i: (i[0], i[0]))
    return e.program.reduced(SUM, line, [0], "trace")

"""Reductions over axes, and running sums."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from polyfuse.frontend.python.numpy.broadcasting import broadcast, converted, elementwise
from polyfuse.frontend.python.numpy.complex_numbers import applied, chosen
from polyfuse.frontend.python.numpy.expressions.calls import scalar_call
from polyfuse.frontend.python.numpy.expressions.evaluator import Call, Evaluator
from polyfuse.frontend.python.numpy.expressions.lists import number_or_array
from polyfuse.frontend.python.numpy.expressions.operators import operation
from polyfuse.frontend.python.numpy.functions import complex_functions, programs
from polyfuse.frontend.python.numpy.functions.arguments import Arguments
from polyfuse.frontend.python.numpy.functions.calls import Calls
from polyfuse.frontend.python.numpy.functions.views import diagonal, flat
from polyfuse.frontend.python.numpy.memory import new_array, new_variable
from polyfuse.frontend.python.numpy.reductions import (
    MAXIMUM,
    MINIMUM,
    PRODUCT,
    SUM,
    Reduction,
    reduced,
    type_of_reduction,
)
from polyfuse.frontend.python.numpy.stores import materialize, store, store_in_order
from polyfuse.frontend.python.numpy.syntax import constant, minus, number, stored, times
from polyfuse.frontend.python.numpy.values import (
    BOOL,
    Array,
    Index,
    Scalar,
    Static,
    Value,
    as_number,
    common_type,
    reshaped,
    stored_type,
)
from polyfuse.ir.number_types import (
    HALVES,
    is_complex,
    is_integer,
    is_real,
    part_type,
)

CALLS = Calls()


def _reduction(how: Reduction, stem: str, axis: int | None = None) -> Call:
    """A reduction over an axis, or over all of them."""

    def call(
        e: Evaluator, node: ast.Call, args: list[Value], named: dict[str, Value], into: Array | None
    ) -> Value:
        a = Arguments(e, node, "a|array axis dtype out keepdims initial where", args, named)
        value = a.either("a")
        if isinstance(value, Scalar):
            return value
        if axis is not None and "axis" not in a.given:
            a.given["axis"] = Scalar(number(axis), "integer")
        if how.begin is None and a.has("dtype"):
            a.refuse("the argument dtype")
        begin = a.either("initial") if a.has("initial") else None
        if a.has("where"):
            value = _taken(e, a, how, value, begin)
        axes = a.axes("axis", value.rank)
        dtype = a.dtype(type_of_reduction(how, value.dtype))
        keeps = a.truth("keepdims")
        if value.mask is not None and a.has("axis"):
            a.refuse("an axis of the elements that a mask selects")
        straight = not keeps and begin is None and not a.has("out")
        made = reduced(e.program, how, value, axes, stem, dtype, into if straight else None)
        if begin is not None:
            made = _joined(e, a, how, made, begin)
        made = _with_kept(value, axes, made) if keeps else made
        if not a.has("out"):
            return made
        out = a.array("out")
        if out.storage is None:
            a.refuse("out is not an array that can be stored to")
        store(e.program, out, made)
        return out

    return call


def _taken(e: Evaluator, a: Arguments, how: Reduction, value: Array, begin: Array | Scalar | None) -> Array:
    """The elements for which the argument `where` holds; in the place of the others what changes nothing."""
    neutral = Scalar(number(how.begin), "integer") if how.begin is not None else begin
    if neutral is None:
        a.refuse("where without initial")
    call = called_where(e)
    made = call(e, a.node, [a.either("where"), value, neutral], {}, None)
    assert isinstance(made, Array), "a choice of an array's elements is an array"
    return made


def called_where(e: Evaluator) -> Call:
    """Make the function that evaluates np.where."""
    call = e.calls(np.where)
    assert call is not None, "where is one of the calls"
    return call


def _joined(
    e: Evaluator, a: Arguments, how: Reduction, made: Array | Scalar, begin: Array | Scalar
) -> Array | Scalar:
    """A reduction's result and the value that it begins with."""
    if how in (SUM, PRODUCT):
        return operation(e, a.node, ast.Add() if how is SUM else ast.Mult(), [made, begin])
    dtype = common_type([made.dtype, begin.dtype])
    return elementwise(e.program, partial(e.program.call, how.name), dtype, [made, begin])


def _with_kept(value: Array, axes: Sequence[int], made: Array | Scalar) -> Array:
    """A reduction's result with extent 1 for each axis that is gone."""
    rest = [axis for axis in range(value.rank) if axis not in axes]
    shape = tuple(number(1) if axis in axes else value.shape[axis] for axis in range(value.rank))
    if isinstance(made, Scalar):
        node = made.node
        return Array(shape, made.dtype, lambda index: node)
    return reshaped(made, shape, lambda index: tuple(index[axis] for axis in rest))


CALLS.define(_reduction(SUM, "total"), np.sum, np.ndarray.sum)
CALLS.define(_reduction(PRODUCT, "product"), np.prod, np.ndarray.prod)
CALLS.define(_reduction(MAXIMUM, "largest"), np.max, np.ndarray.max, np.amax)
CALLS.define(_reduction(MINIMUM, "smallest"), np.min, np.ndarray.min, np.amin)

UFUNCS: Mapping[np.ufunc, Reduction] = {
    np.add: SUM,
    np.multiply: PRODUCT,
    np.maximum: MAXIMUM,
    np.minimum: MINIMUM,
}
"""Functions of two numbers that combine the elements of an array, by `reduce` and `accumulate`."""


def reduced_by(ufunc: np.ufunc) -> Call | None:
    """Make the function that evaluates np.add.reduce(x), by default over the first axis."""
    if ufunc in TRUTHS:
        return _truth(TRUTHS[ufunc], 0)
    return _reduction(UFUNCS[ufunc], "reduced", 0) if ufunc in UFUNCS else None


def accumulated_by(ufunc: np.ufunc) -> Call | None:
    """Make the function that evaluates np.maximum.accumulate(x), by default along the first axis."""
    return _running(UFUNCS[ufunc], 0) if ufunc in UFUNCS else None


def _of_elements(how: Reduction, stem: str, function: Callable[..., Any]) -> Call:
    """sum(x), max(x) and min(x) of an array: Python iterates over the first axis."""
    plain = _reduction(how, stem, 0)

    def call(
        e: Evaluator, node: ast.Call, args: list[Value], named: dict[str, Value], into: Array | None
    ) -> Value:
        first = args[0] if args else None
        values = first if isinstance(first, tuple) else (first,)
        if (
            named
            or len(args) != 1
            or (how is not SUM and any(isinstance(v, Array) and v.rank > 1 for v in values))
        ):
            e.refuse(node, f"{ast.unparse(node)}: these arguments", f"{function.__name__} of one vector")
        if isinstance(first, tuple) and all(isinstance(value, Scalar | Array) for value in first):
            known = _written_out(e, node, how, [v for v in first if isinstance(v, Scalar | Array)])
            if known is not None:
                return known
        if how is SUM and isinstance(first, Array) and is_integer(first.dtype):
            # Python adds one element after the other, in their type
            named = {"dtype": Static(np.dtype(first.dtype))}
        return plain(e, node, args, named, into)

    return call


def _written_out(
    e: Evaluator, node: ast.Call, how: Reduction, values: list[Scalar | Array]
) -> Scalar | Array | None:
    """sum((a, b)) as 0 + a + b, max((a, b)) of numbers as max(a, b); None for what has another form."""
    if how is SUM:
        total: Scalar | Array = Scalar(number(0), "integer")
        for value in values:
            total = operation(e, node, ast.Add(), [total, value])
        return total
    numbers = [value for value in values if isinstance(value, Scalar) and not is_complex(value.dtype)]
    if len(numbers) < len(values) or not numbers:
        return None
    return numbers[0] if len(numbers) == 1 else scalar_call(e, node, how.name, numbers)


for _how, _stem, _builtin in (
    (SUM, "total", builtins.sum),
    (MAXIMUM, "largest", builtins.max),
    (MINIMUM, "smallest", builtins.min),
):
    CALLS.define(_of_elements(_how, _stem, _builtin), _builtin)


def _truth(how: Reduction, axis: int | None = None) -> Call:
    plain = _reduction(how, "truth", axis)

    def call(
        e: Evaluator, node: ast.Call, args: list[Value], named: dict[str, Value], into: Array | None
    ) -> Value:
        given = args[0] if args else None
        if isinstance(given, tuple) and given and len(args) == 1 and not named:
            tests = [each.node for each in given if isinstance(each, Scalar) and each.dtype == BOOL]
            if len(tests) == len(given):
                joined = ast.BoolOp(ast.And() if how is MINIMUM else ast.Or(), tests)
                return Scalar(tests[0] if len(tests) == 1 else ast.copy_location(joined, node), BOOL)
        value = number_or_array(e, node, args[0])
        return plain(e, node, [converted(e.program, value, BOOL), *args[1:]], named, None)

    return call


TRUTHS: Mapping[np.ufunc, Reduction] = {np.logical_and: MINIMUM, np.logical_or: MAXIMUM}
"""Functions of two conditions that combine those of an array."""

CALLS.define(_truth(MINIMUM), np.all, np.ndarray.all)
CALLS.define(_truth(MAXIMUM), np.any, np.ndarray.any)
CALLS.define(_truth(MINIMUM, 0), builtins.all)
CALLS.define(_truth(MAXIMUM, 0), builtins.any)


@CALLS.reads("a axis dtype out keepdims where", np.mean, np.ndarray.mean)
def _mean(e: Evaluator, a: Arguments) -> Value:
    value = a.array("a")
    if a.has("where"):
        if a.has("axis"):
            a.refuse("an axis of the elements that a mask selects")
        value = replace(value, mask=broadcast(e.program, a.either("where"), value.shape))
    axes = a.axes("axis", value.rank)
    made = _mean_of(e, value, axes, a.dtype(_mean_type(value)), 0)
    return _with_kept(value, axes, made) if a.truth("keepdims") else made


def _mean_type(value: Array) -> str:
    return value.dtype if is_real(value.dtype) or is_complex(value.dtype) else "float64"


def _mean_of(e: Evaluator, value: Array, axes: Sequence[int], dtype: str, less: int) -> Array | Scalar:
    """The sum over some axes, divided by the number of elements, less some."""
    e.program.hint = None
    if dtype in HALVES:
        made = converted(e.program, _mean_of(e, value, axes, "float32", less), dtype)
        return new_variable(e.program, made, "mean") if isinstance(made, Scalar) else made
    total = reduced(e.program, SUM, value, axes, "total", dtype)
    if value.mask is not None:
        ones = Array(value.shape, "int64", lambda index: number(1), mask=value.mask)
        count = reduced(e.program, SUM, ones, axes, "count", "int64")
    else:
        size: ast.expr = number(1)
        for axis in axes:
            size = size_product(size, value.shape[axis])
        count = Scalar(minus(size, number(less)), "integer")
    types = [dtype, count.dtype]
    return elementwise(e.program, lambda x, n: applied(ast.Div(), x, n, types), dtype, [total, count])


@CALLS.reads("a axis dtype out ddof keepdims", np.var, np.ndarray.var)
def _var(e: Evaluator, a: Arguments) -> Value:
    value = a.array("a")
    axes, dtype = a.axes("axis", value.rank), a.dtype(_mean_type(value))
    if value.dtype in HALVES and not a.has("dtype"):
        wide = converted(e.program, value, "float32")
        assert isinstance(wide, Array), "a converted array is an array"
        value, dtype = wide, "float32"
    mean = _with_kept(value, axes, _mean_of(e, value, axes, dtype, 0))
    mean = materialize(e.program, mean, "mean") if len(axes) < value.rank else mean
    distance = operation(e, a.node, ast.Sub(), [value, mean])
    assert isinstance(distance, Array), "an array less its mean is an array"
    if is_complex(value.dtype):
        square = e.inlined(e, a.node, complex_functions.spread, [distance], {})
        dtype = part_type(dtype)
    else:
        square = operation(e, a.node, ast.Mult(), [distance, distance])
    assert isinstance(square, Array), "a product of arrays is an array"
    made = _mean_of(e, square, axes, dtype, a.integer("ddof", 0))
    made = _as_stored(e, made, _std_type(a))
    return _with_kept(value, axes, made) if a.truth("keepdims") else made


def _as_stored(e: Evaluator, made: Array | Scalar, dtype: str) -> Array | Scalar:
    """A result that was computed in float32, as a half."""
    if made.dtype == dtype or dtype not in HALVES:
        return made
    found = converted(e.program, made, dtype)
    return new_variable(e.program, found, "half") if isinstance(found, Scalar) else found


def _std_type(a: Arguments) -> str:
    """The type of a variance of halves: the array's."""
    own = a.array("a").dtype
    return own if own in HALVES and not a.has("dtype") else part_type(a.dtype(_mean_type(a.array("a"))))


@CALLS.reads("a axis dtype out ddof keepdims", np.std, np.ndarray.std)
def _std(e: Evaluator, a: Arguments) -> Value:
    made = _var(e, a)
    assert isinstance(made, Array | Scalar), "a variance is a number, or one each"
    root = elementwise(e.program, lambda x: e.program.call("sqrt", x), made.dtype, [made])
    return (
        new_variable(e.program, root, "half") if isinstance(root, Scalar) and root.dtype in HALVES else root
    )


def size_product(left: ast.expr, right: ast.expr) -> ast.expr:
    """A product of extents, as a value: it need not be affine."""
    return right if constant(left) == 1 else times(left, right)


def _running(how: Reduction, first: int | None = None) -> Call:
    """Every element combined with those before it along an axis."""

    def call(
        e: Evaluator, node: ast.Call, args: list[Value], named: dict[str, Value], into: Array | None
    ) -> Value:
        a = Arguments(e, node, "a|array axis dtype", args, named)
        if first is not None and not a.has("axis"):
            a.given["axis"] = Scalar(number(first), "integer")
        return _run(e, a, how)

    return call


def _run(e: Evaluator, a: Arguments, how: Reduction) -> Value:
    value = a.array("a")
    if value.rank > 1 and not a.has("axis"):
        value = flat(e, a, value)
    axis = a.integer("axis", 0) % value.rank
    dtype = a.dtype(type_of_reduction(how, value.dtype))
    made = new_array(e.program, value.shape, dtype, "running")

    def at(index: Index) -> ast.expr:
        before = made.element((*index[:axis], minus(index[axis], number(1)), *index[axis + 1 :]))
        own = (
            value.element(index) if is_complex(value.dtype) else as_number(value.element(index), value.dtype)
        )
        first = ast.Compare(index[axis], [ast.GtE()], [number(1)])
        types = [made.dtype, value.dtype if value.dtype != BOOL else "integer"]
        if how in (SUM, PRODUCT):
            combined = applied(ast.Add() if how is SUM else ast.Mult(), before, own, types)
        else:
            combined = e.program.call(how.name, before, own)
        return chosen(first, combined, own, types)

    store_in_order(e.program, made, Array(value.shape, made.dtype, at))
    return made


def histogram(e: Evaluator, a: Arguments) -> Value:
    """np.histogram(a, bins, range, weights): uniform bins, in two arrays: how many or how much, and where bins begin.

    place[i] = the bin of a[i]          counts[place[i]] += weights[i]

    The places are in range by their formula, which is NumPy's: the quotient, then one more or less where the bin's edge
    says so.
    """
    value = a.array("a")
    value = value if value.rank == 1 else flat(e, a, value)
    bins = a.shape("bins")[0] if a.has("bins") else number(10)
    weights = a.array("weights") if a.has("weights") else None
    if is_complex(value.dtype) or (weights is not None and is_complex(weights.dtype)):
        a.refuse("complex numbers")
    if weights is not None and weights.rank != 1:
        weights = flat(e, a, weights)
    if value.storage is None:
        value = materialize(e.program, value, "values")
    low, high = _ends(e, a, value)
    made = e.inlined(e, a.node, programs.bins_of, [value, low, high, Scalar(bins, "integer")], {})
    assert isinstance(made, tuple), "the program returns places and edges"
    place, edges = made
    assert isinstance(place, Array), "a place for each element"
    place = materialize(e.program, place, "bin")
    assert place.storage is not None, "kept arrays have memory"
    e.program.placed.add(place.storage)
    dtype = (
        "int64" if weights is None else "float64" if is_real(weights.dtype) else stored_type(weights.dtype)
    )
    counts = new_array(e.program, (bins,), dtype, "counts")
    zero = number(0.0 if is_real(dtype) else 0)
    store(e.program, counts, Scalar(zero, dtype))
    loops, index = e.program.loops("i", value.shape)
    amount = number(1) if weights is None else as_number(weights.element(index), weights.dtype)
    if a.has("range"):
        inside = e.inlined(e, a.node, programs.between, [value, low, high], {})
        assert isinstance(inside, Array), "a condition for each element"
        amount = ast.IfExp(inside.element(index), amount, number(0))
    target = counts.element((place.element(index),))
    e.program.emit_nest(loops, [ast.AugAssign(stored(target), ast.Add(), amount)])
    return counts, edges


CALLS.reads("a bins range weights", np.histogram)(histogram)


def _ends(e: Evaluator, a: Arguments, value: Array) -> tuple[Scalar, Scalar]:
    """The ends of all bins: those given, or the smallest and the largest element."""
    given = a.given.get("range")
    if isinstance(given, tuple):
        low, high = given
    else:
        axes = list(range(value.rank))
        low, high = (
            reduced(e.program, how, value, axes, stem)
            for how, stem in ((MINIMUM, "smallest"), (MAXIMUM, "largest"))
        )
    if not isinstance(low, Scalar) or not isinstance(high, Scalar):
        a.refuse("ends that are no numbers")
    return low, high


CALLS.define(_running(SUM), np.cumsum, np.ndarray.cumsum)
CALLS.define(_running(PRODUCT), np.cumprod, np.ndarray.cumprod)


@CALLS.reads("a offset axis1 axis2 dtype out", np.trace, np.ndarray.trace)
def _trace(e: Evaluator, a: Arguments) -> Value:
    array, k = a.array("a"), a.integer("offset", 0)
    if array.rank != 2 or a.has("axis1") or a.has("axis2"):
        a.refuse("other arrays than matrices")
    line = diagonal(e, a, array, k)
    return reduced(e.program, SUM, line, [0], "trace")

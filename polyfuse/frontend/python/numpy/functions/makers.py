"""New arrays: zeros, ones, full, eye, arange, linspace, and their `_like` forms."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import numpy as np

from polyfuse.frontend.python.numpy.broadcasting import broadcast, converted
from polyfuse.frontend.python.numpy.complex_numbers import as_complex, pair
from polyfuse.frontend.python.numpy.expressions.evaluator import Evaluator
from polyfuse.frontend.python.numpy.expressions.lists import stacked
from polyfuse.frontend.python.numpy.functions.arguments import Arguments, Shape
from polyfuse.frontend.python.numpy.functions.calls import Calls
from polyfuse.frontend.python.numpy.functions.views import diagonal
from polyfuse.frontend.python.numpy.memory import new_array
from polyfuse.frontend.python.numpy.stores import store
from polyfuse.frontend.python.numpy.syntax import minus, number, plus, quotient, times
from polyfuse.frontend.python.numpy.values import (
    BOOL,
    Array,
    Index,
    Scalar,
    Static,
    Value,
    common_type,
    stored_type,
)
from polyfuse.ir.number_types import (
    DType,
    is_complex,
    is_integer,
    is_number,
    is_real,
)

CALLS = Calls()


def _filled(value: float | None) -> Callable[[Evaluator, Arguments], Value]:
    def make(e: Evaluator, a: Arguments) -> Value:
        shape, dtype = a.shape("shape"), a.dtype("float64")
        return _constant(e, shape, dtype, value)

    return make


def _constant(e: Evaluator, shape: Shape, dtype: str, value: float | None) -> Array:
    if value is None:
        return new_array(e.program, shape, dtype, "empty_array")
    literal = number(float(value) if is_real(dtype) or is_complex(dtype) else int(value))
    if is_complex(dtype):
        literal = pair(literal, number(0.0))
    if dtype == BOOL:
        literal = ast.Compare(number(int(value)), [ast.NotEq()], [number(0)])
    return Array(shape, dtype, lambda index: literal)


def _filled_like(value: float | None) -> Callable[[Evaluator, Arguments], Value]:
    def make(e: Evaluator, a: Arguments) -> Value:
        array = a.array("a")
        shape = a.shape("shape") if a.has("shape") else array.shape
        return _constant(e, shape, a.dtype(array.dtype), value)

    return make


for _value, _plain, _like in (
    (0.0, np.zeros, np.zeros_like),
    (1.0, np.ones, np.ones_like),
    (None, np.empty, np.empty_like),
):
    CALLS.reads("shape dtype order", _plain)(_filled(_value))
    CALLS.reads("a dtype order subok shape", _like)(_filled_like(_value))
CALLS.reads("shape dtype", np.ndarray)(_filled(None))


@CALLS.reads("shape value|fill_value dtype order", np.full)
def _full(e: Evaluator, a: Arguments) -> Value:
    value = a.either("value")
    made = broadcast(e.program, value, a.shape("shape"))
    return _of_type(e, made, a.dtype(stored_type(value.dtype)))


@CALLS.reads("a value|fill_value dtype order subok shape", np.full_like)
def _full_like(e: Evaluator, a: Arguments) -> Value:
    array = a.array("a")
    made = broadcast(e.program, a.either("value"), array.shape)
    return _of_type(e, made, a.dtype(array.dtype))


def _of_type(e: Evaluator, made: Array, dtype: str) -> Array:
    """An array of a type. A literal is one of the type already where it is of that kind."""
    if is_number(made.dtype) and is_real(made.dtype) <= is_real(dtype) and dtype != BOOL:
        return Array(made.shape, dtype, made.element)
    if is_complex(made.dtype) and is_complex(dtype) and is_number(made.dtype):
        return Array(made.shape, dtype, made.element)
    found = converted(e.program, made, dtype)
    assert isinstance(found, Array), "a converted array is an array"
    return found


@CALLS.reads("N M k dtype order", np.eye)
def _eye(e: Evaluator, a: Arguments) -> Value:
    rows = a.shape("N")[0]
    columns = a.shape("M")[0] if a.has("M") else rows
    k = a.integer("k", 0)
    one, zero = (number(1.0), number(0.0))

    def at(index: Index) -> ast.expr:
        return ast.IfExp(ast.Compare(minus(index[1], index[0]), [ast.Eq()], [number(k)]), one, zero)

    dtype = a.dtype("float64")
    if is_complex(dtype):
        return Array((rows, columns), dtype, lambda index: as_complex(at(index), "float64"))
    return Array((rows, columns), dtype, at)


CALLS.define(
    lambda e, node, args, named, into: _eye(e, Arguments(e, node, "N dtype", args, named)),
    np.identity,
)


@CALLS.reads("start stop step dtype", np.arange)
def _arange(e: Evaluator, a: Arguments) -> Value:
    if not a.has("stop"):
        a.given["stop"] = a.given.pop("start")
    if any(isinstance(v, Scalar) and not is_integer(v.dtype) for v in a.given.values()):
        return _fractions(e, a)
    start = a.shape("start")[0] if a.has("start") else number(0)
    stop, step = a.shape("stop")[0], a.integer("step", 1)
    if step == 0:
        a.refuse("a step of 0")
    length = minus(stop, start) if step > 0 else minus(start, stop)
    extent = quotient(plus(length, number(abs(step) - 1)), abs(step))
    return Array((extent,), a.dtype("int64"), lambda i: plus(start, times(number(step), i[0])))


def _fractions(e: Evaluator, a: Arguments) -> Value:
    """np.arange of literal fractions: how many there are is known."""

    def literal(name: str, default: float) -> float:
        value = a.given.get(name, Scalar(number(default), "fraction"))
        try:
            return float(ast.literal_eval(value.node))  # type: ignore[union-attr]  # a number is a Scalar
        except (AttributeError, ValueError):
            return a.refuse("arange of other numbers than integers and literal fractions")

    start, stop, step = literal("start", 0.0), literal("stop", 0.0), literal("step", 1.0)
    count = math.ceil((stop - start) / step)
    second = (start + step) - start  # NumPy's distance of two elements
    return Array(
        (number(max(count, 0)),),
        a.dtype("float64"),
        lambda i: ast.BinOp(number(start), ast.Add(), ast.BinOp(i[0], ast.Mult(), number(second))),
    )


@CALLS.reads("start stop num endpoint retstep dtype axis", np.linspace)
def _linspace(e: Evaluator, a: Arguments) -> Value:
    start, stop = a.either("start"), a.either("stop")
    count = a.shape("num")[0] if a.has("num") else number(50)
    ends = a.truth("endpoint") if a.has("endpoint") else True
    if not (isinstance(start, Scalar) and isinstance(stop, Scalar)):
        a.refuse("between arrays")
    if is_complex(start.dtype) or is_complex(stop.dtype):
        a.refuse("between complex numbers")
    if a.truth("retstep"):
        a.refuse("the argument retstep")
    parts = minus(count, number(1)) if ends else count

    def at(index: Index) -> ast.expr:
        step = ast.BinOp(ast.BinOp(stop.node, ast.Sub(), start.node), ast.Div(), parts)
        return ast.BinOp(start.node, ast.Add(), ast.BinOp(index[0], ast.Mult(), step))

    return Array((count,), a.dtype("float64"), at)


# copies and other types


@CALLS.reads("N M k dtype", np.tri)
def _tri(e: Evaluator, a: Arguments) -> Value:
    rows = a.shape("N")[0]
    columns, k = a.shape("M")[0] if a.has("M") else rows, a.integer("k", 0)

    def at(index: Index) -> ast.expr:
        below = ast.Compare(minus(index[1], index[0]), [ast.LtE()], [number(k)])
        return ast.IfExp(below, number(1), number(0))

    return _of_type(e, Array((rows, columns), "integer", at), a.dtype("float64"))


@CALLS.reads("x y z", np.result_type)
def _result_type(e: Evaluator, a: Arguments) -> Value:
    """The common type of arrays and numbers."""
    values = [a.either(name) for name in ("x", "y", "z") if name in a.given]
    types = [value.dtype for value in values]
    return Static(np.dtype(stored_type(common_type(types))))


@CALLS.reads("dimensions dtype", np.indices)
def _indices(e: Evaluator, a: Arguments) -> Value:
    shape = a.shape("dimensions")
    rows = [Array(shape, "int64", _position(axis)) for axis in range(len(shape))]
    return stacked(e, a.node, tuple(rows))


def _position(axis: int) -> Callable[[Index], ast.expr]:
    return lambda index: index[axis]


@CALLS.reads("a value", np.ndarray.fill)
def _fill(e: Evaluator, a: Arguments) -> Value:
    store(e.program, _memory(a, "a"), a.either("value"))
    return Static(None)


@CALLS.reads("dst src casting where", np.copyto)
def _copyto(e: Evaluator, a: Arguments) -> Value:
    target = _memory(a, "dst")
    if a.has("where"):
        target = replace(target, mask=broadcast(e.program, a.either("where"), target.shape))
    store(e.program, target, a.either("src"))
    return Static(None)


@CALLS.reads("a val wrap", np.fill_diagonal)
def _fill_diagonal(e: Evaluator, a: Arguments) -> Value:
    array = _memory(a, "a")
    store(e.program, diagonal(e, a, array, 0), a.either("val"))
    return Static(None)


def _memory(a: Arguments, name: str) -> Array:
    """An argument that can be stored to."""
    array = a.array(name)
    return array if array.storage is not None else a.refuse(f"{name} is no array's memory")


@CALLS.reads("a order", np.copy, np.ndarray.copy)
def _copied(e: Evaluator, a: Arguments) -> Value:
    array = a.either("a")
    return (
        Array(array.shape, array.dtype, array.element, None, array.mask)
        if isinstance(array, Array)
        else array
    )


def _to_type(dtype: DType) -> Callable[[Evaluator, Arguments], Value]:
    return lambda e, a: converted(e.program, a.either("x"), dtype)


for _dtype in get_args(DType):
    CALLS.reads("x", np.dtype(_dtype).type)(_to_type(_dtype))


@CALLS.reads("a|x dtype order casting subok copy", np.ndarray.astype, np.astype)
def _astype_method(e: Evaluator, a: Arguments) -> Value:
    return _astype(e, a)


@CALLS.reads(
    "a|object dtype copy order subok ndmin", np.asarray, np.array, np.ascontiguousarray, np.asfortranarray
)
def _astype(e: Evaluator, a: Arguments) -> Value:
    array = a.either("a")
    wanted = a.dtype(array.dtype)
    if wanted == array.dtype:
        return _copied(e, a) if isinstance(array, Array) else array
    return converted(e.program, array, wanted)

"""Views: arrays whose elements are those of another at other subscripts."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from polyfuse.frontend.python.numpy.broadcasting import broadcast
from polyfuse.frontend.python.numpy.complex_numbers import chosen
from polyfuse.frontend.python.numpy.expressions.evaluator import Evaluator
from polyfuse.frontend.python.numpy.expressions.lists import stacked
from polyfuse.frontend.python.numpy.functions.arguments import Arguments, Shape
from polyfuse.frontend.python.numpy.functions.calls import Calls
from polyfuse.frontend.python.numpy.subscripts import Cut, subscripted
from polyfuse.frontend.python.numpy.syntax import constant, minus, number, plus, quotient, times
from polyfuse.frontend.python.numpy.values import (
    Array,
    Index,
    Scalar,
    Static,
    Value,
    as_number,
    reshaped,
    shape_text,
)
from polyfuse.ir.number_types import (
    is_complex,
)

CALLS = Calls()


@CALLS.reads("first second third", builtins.slice)
def _slice(e: Evaluator, a: Arguments) -> Value:
    """slice(stop), slice(start, stop, step): bounds with the values that they have here."""
    given = [a.given.get(name) for name in ("first", "second", "third")]
    start, stop = given[:2] if a.has("second") else (None, given[0])
    bounds: list[ast.expr | None] = []
    for bound in (start, stop):
        if bound is not None and not isinstance(bound, Scalar):
            a.refuse("a bound that is no integer", "slice(start, stop, step) of integers")
        bounds.append(None if bound is None else e.affine(e.program.aliases.written_out(bound.node)))
    step = a.integer("third", 1)
    return Static(Cut(bounds[0], bounds[1], step)) if step else a.refuse("the step 0", "another step")


@CALLS.reads("a axes a1 a2 a3", np.transpose, np.ndarray.transpose, np.permute_dims)
def _transpose(e: Evaluator, a: Arguments) -> Value:
    array = a.array("a")
    order = list(range(array.rank))[::-1]
    if a.has("axes"):
        given = a.given["axes"]
        rest = [a.given[name] for name in ("a1", "a2", "a3") if name in a.given]
        parts = given if isinstance(given, tuple) else (given, *rest)
        order = [constant(p.node) % array.rank for p in parts if isinstance(p, Scalar)]  # type: ignore[operator]
        if sorted(order) != list(range(array.rank)):
            a.refuse(f"axes of an array of rank {array.rank}")
    return permuted(array, order)


def permuted(array: Array, order: Sequence[int]) -> Array:
    """The array whose axis k is the given one's axis order[k]."""
    return reshaped(
        array,
        tuple(array.shape[axis] for axis in order),
        lambda index: tuple(index[order.index(axis)] for axis in range(array.rank)),
    )


@CALLS.reads("a axis1 axis2", np.swapaxes, np.ndarray.swapaxes)
def _swapaxes(e: Evaluator, a: Arguments) -> Value:
    array = a.array("a")
    order = list(range(array.rank))
    i, j = (a.integer(name) % array.rank for name in ("axis1", "axis2"))
    order[i], order[j] = order[j], order[i]
    return permuted(array, order)


@CALLS.reads("x", np.matrix_transpose, np.linalg.matrix_transpose)
def _matrix_transpose(e: Evaluator, a: Arguments) -> Value:
    array = a.array("x")
    if array.rank < 2:
        a.refuse("arrays of one dimension")
    *outer, i, j = range(array.rank)
    return permuted(array, [*outer, j, i])


@CALLS.reads("a source destination", np.moveaxis)
def _moveaxis(e: Evaluator, a: Arguments) -> Value:
    array = a.array("a")
    sources, places = (
        [axis % array.rank for axis in a.integers(name, 0)] for name in ("source", "destination")
    )
    order = [axis for axis in range(array.rank) if axis not in sources]
    for place, source in sorted(zip(places, sources, strict=True)):
        order.insert(place, source)
    return permuted(array, order)


@CALLS.reads("a shape", np.broadcast_to)
def _broadcast_to(e: Evaluator, a: Arguments) -> Value:
    return replace(broadcast(e.program, a.either("a"), a.shape("shape")), storage=None)


@CALLS.reads("a", np.atleast_1d)
def _atleast_1d(e: Evaluator, a: Arguments) -> Value:
    value = a.either("a")
    return stacked(e, a.node, (value,)) if isinstance(value, Scalar) else value


@CALLS.reads("a", np.atleast_2d)
def _atleast_2d(e: Evaluator, a: Arguments) -> Value:
    array = a.array("a")
    return array if array.rank > 1 else subscripted(e.program.geometry, array, [None])


@CALLS.reads("a axis", np.flip)
def _flip(e: Evaluator, a: Arguments) -> Value:
    array = a.array("a")
    axes = a.axes("axis", array.rank)
    parts = [Cut(None, None, -1 if axis in axes else 1) for axis in range(array.rank)]
    return subscripted(e.program.geometry, array, parts)


@CALLS.reads("a", np.flipud)
def _flipud(e: Evaluator, a: Arguments) -> Value:
    return subscripted(e.program.geometry, a.array("a"), [Cut(None, None, -1)])


@CALLS.reads("a", np.fliplr)
def _fliplr(e: Evaluator, a: Arguments) -> Value:
    return subscripted(e.program.geometry, a.array("a"), [Cut(None, None), Cut(None, None, -1)])


@CALLS.reads("a axis", np.expand_dims)
def _expand_dims(e: Evaluator, a: Arguments) -> Value:
    array, axes = a.array("a"), a.integers("axis", 0)
    rank = array.rank + len(axes)
    added = {axis % rank for axis in axes}
    parts: list[Cut | None] = [None if axis in added else Cut(None, None) for axis in range(rank)]
    return subscripted(e.program.geometry, array, parts)


@CALLS.reads("a axis", np.squeeze, np.ndarray.squeeze)
def _squeeze(e: Evaluator, a: Arguments) -> Value:
    array = a.array("a")
    ones = [axis for axis in range(array.rank) if constant(array.shape[axis]) == 1]
    axes = a.axes("axis", array.rank) if a.has("axis") else ones
    if not set(axes) <= set(ones):
        a.refuse("an axis that is not known to have extent 1")
    return _dropped(array, axes)


def _dropped(array: Array, axes: Sequence[int]) -> Array:
    """The array without some axes of extent 1."""
    rest = [axis for axis in range(array.rank) if axis not in axes]
    return reshaped(
        array,
        tuple(array.shape[axis] for axis in rest),
        lambda index: tuple(
            index[rest.index(axis)] if axis in rest else number(0) for axis in range(array.rank)
        ),
    )


@CALLS.reads("a order", np.ravel, np.ndarray.ravel)
def _ravel(e: Evaluator, a: Arguments) -> Value:
    a.in_rows()
    return flat(e, a, a.array("a"))


def flat(e: Evaluator, a: Arguments, array: Array) -> Array:
    """The elements in one dimension, row after row."""
    size: ast.expr = number(1)
    for extent in array.shape:
        size = times(size, extent)
    return array if array.rank == 1 else _in_shape(a, array, (size,), e)


@CALLS.reads("a order", np.ndarray.flatten)
def _flatten(e: Evaluator, a: Arguments) -> Value:
    a.in_rows()
    return replace(flat(e, a, a.array("a")), storage=None)


@CALLS.reads("a shape s1 s2 s3 s4 order", np.ndarray.reshape)
def _reshape_method(e: Evaluator, a: Arguments) -> Value:
    return _reshape(e, a)


@CALLS.reads("a shape order copy", np.reshape)
def _reshape(e: Evaluator, a: Arguments) -> Value:
    a.in_rows()
    array = a.array("a")
    rest = [a.given.pop(name) for name in ("s1", "s2", "s3", "s4") if name in a.given]
    if rest:
        a.given["shape"] = (a.given["shape"], *rest)
    shape = list(a.shape("shape"))
    for position, extent in enumerate(shape):
        if constant(extent) == -1:
            shape[position] = _missing(a, array.shape, shape[:position] + shape[position + 1 :])
    return _in_shape(a, array, tuple(shape), e)


def _missing(a: Arguments, own: Shape, others: Sequence[ast.expr]) -> ast.expr:
    """The extent that -1 stands for."""
    left = list(own)
    factor = 1
    for extent in others:
        match = next((p for p in left if a.e.program.geometry.same(p, extent)), None)
        if match is not None:
            left.remove(match)
        elif (value := constant(extent)) is not None:
            factor *= value
        else:
            a.refuse("the extent of -1 is not known")
    size: ast.expr = number(1)
    for extent in left:
        size = times(size, extent)
    value = constant(size)
    if factor == 1:
        return size
    return (
        number(value // factor) if value is not None and value % factor == 0 else a.refuse("the extent of -1")
    )


def _in_shape(a: Arguments, array: Array, shape: Shape, e: Evaluator) -> Array:
    """A reshape whose groups of axes have equal sizes; inside of a group all extents but the first are constants."""
    groups = _groups(a, array.shape, shape)

    def index(given: Index) -> Index:
        parts: dict[int, ast.expr] = {}
        for olds, news in groups:
            position: ast.expr = number(0)
            for new in news:
                position = plus(
                    times(position, shape[new]) if constant(position) != 0 else number(0), given[new]
                )
            step = 1
            for old in reversed(olds):
                extent = constant(array.shape[old])
                whole = quotient(position, step)
                first = old == olds[0]
                parts[old] = whole if first or extent is None else modulo(whole, extent)
                step *= extent or 1
        return tuple(parts.get(axis, number(0)) for axis in range(array.rank))

    return reshaped(array, shape, index)


def modulo(node: ast.expr, extent: int) -> ast.expr:
    """The remainder of a natural number by a positive constant."""
    if extent == 1:
        return number(0)
    value = constant(node)
    return number(value % extent) if value is not None else ast.BinOp(node, ast.Mod(), number(extent))


def _groups(a: Arguments, old: Shape, new: Shape) -> list[tuple[list[int], list[int]]]:
    """Axes before and after that hold the same elements. NotAffine where they are not known to."""
    same = a.e.program.geometry.same
    groups = []
    i = j = 0
    while i < len(old) or j < len(new):
        one_old = i < len(old) and constant(old[i]) == 1
        one_new = j < len(new) and constant(new[j]) == 1
        if one_old != one_new:  # an axis of extent 1 holds nothing: it comes and goes alone
            groups.append(([i], []) if one_old else ([], [j]))
            i, j = i + one_old, j + one_new
            continue
        olds, news = [], []
        left: ast.expr = number(1)
        right: ast.expr = number(1)
        if i < len(old):
            olds, left, i = [i], old[i], i + 1
        if j < len(new):
            news, right, j = [j], new[j], j + 1
        while not same(left, right):
            before = (i, j)
            a_size, b_size = constant(left), constant(right)
            shorter = a_size is not None and (b_size is None or a_size < b_size)
            if i < len(old) and (shorter or j == len(new)):
                left, olds, i = times(left, old[i]), [*olds, i], i + 1
            elif j < len(new):
                right, news, j = times(right, new[j]), [*news, j], j + 1
            if (i, j) == before and a.e.program.equal(left, right):
                break
            if (i, j) == before:
                a.refuse(
                    f"the shape {shape_text(old)} is not known to hold as many elements as {shape_text(new)}"
                )
        mixed = [
            extent for axes, shape in ((olds, old), (news, new)) for extent in (shape[x] for x in axes[1:])
        ]
        if any(constant(extent) is None for extent in mixed) and (len(olds) > 1 or len(news) > 1):
            a.refuse(
                f"from {shape_text(old)} to {shape_text(new)} a subscript is a product of sizes, which is not affine",
                "axes that stay apart, as in x[i, j] or x.sum(axis=(0, 1)); or all but one of these sizes as numbers",
            )
        groups.append((olds, news))
    return groups


@CALLS.reads("m k", np.triu)
def _triu(e: Evaluator, a: Arguments) -> Value:
    return _triangle(e, a, upper=True)


@CALLS.reads("m k", np.tril)
def _tril(e: Evaluator, a: Arguments) -> Value:
    return _triangle(e, a, upper=False)


def _triangle(e: Evaluator, a: Arguments, upper: bool) -> Array:
    array, k = a.array("m"), a.integer("k", 0)
    if array.rank == 1:  # as NumPy: the vector in every row
        array = subscripted(e.program.geometry, array, [None])
        array = broadcast(e.program, array, (array.shape[1], array.shape[1]))

    def at(index: Index) -> ast.expr:
        *_, i, j = index
        kept = ast.Compare(minus(j, i), [ast.GtE() if upper else ast.LtE()], [number(k)])
        own = array.element(index)
        if is_complex(array.dtype):
            return chosen(kept, own, number(0), [array.dtype, "integer"])
        return ast.IfExp(kept, as_number(own, array.dtype), number(0))

    return Array(array.shape, array.dtype, at)


@CALLS.reads("a offset", np.diagonal, np.ndarray.diagonal, np.linalg.diagonal)
def _diagonal(e: Evaluator, a: Arguments) -> Value:
    return diagonal(e, a, a.array("a"), a.integer("offset", 0))


def diagonal(e: Evaluator, a: Arguments, array: Array, k: int) -> Array:
    """The elements A[i, i + k] of a matrix."""
    if array.rank != 2:
        a.refuse("other arrays than matrices")
    rows, columns = (
        minus(extent, number(max(by, 0))) for extent, by in zip(array.shape, (-k, k), strict=True)
    )
    shorter = e.program.geometry.at_most(rows, columns)
    if not shorter and not e.program.geometry.at_most(columns, rows):
        a.refuse("whether the matrix has fewer rows than columns is not known; assert N <= M says so")
    return reshaped(
        array,
        (rows if shorter else columns,),
        lambda i: (plus(i[0], number(max(-k, 0))), plus(i[0], number(max(k, 0)))),
    )


@CALLS.reads("v|a k", np.diag)
def _diag(e: Evaluator, a: Arguments) -> Value:
    array, k = a.array("v"), a.integer("k", 0)
    if array.rank == 2:
        return diagonal(e, a, array, k)
    if array.rank != 1:
        a.refuse("other arrays than vectors and matrices")
    size = plus(array.shape[0], number(abs(k)))

    def at(index: Index) -> ast.expr:
        i, j = index
        own = array.element((minus(i, number(max(-k, 0))),))
        on = ast.Compare(minus(j, i), [ast.Eq()], [number(k)])
        return chosen(on, own, number(0), [array.dtype, "integer"])

    return Array((size, size), array.dtype, at)


@CALLS.reads("a", builtins.len)
def _len(e: Evaluator, a: Arguments) -> Value:
    value = a.given.get("a")
    if isinstance(value, tuple):
        return e.placed_scalar(number(len(value)), a.node)
    return e.placed_scalar(a.array("a").shape[0], a.node)


@CALLS.reads("a axis", np.shape)
def _shape(e: Evaluator, a: Arguments) -> Value:
    array = a.array("a")
    if a.has("axis"):
        return e.placed_scalar(array.shape[a.integer("axis")], a.node)
    return tuple(e.placed_scalar(extent, a.node) for extent in array.shape)


@CALLS.reads("a axis", np.size)
def _size(e: Evaluator, a: Arguments) -> Value:
    array = a.array("a")
    if a.has("axis"):
        return e.placed_scalar(array.shape[a.integer("axis")], a.node)
    size: ast.expr = number(1)
    for extent in array.shape:
        size = times(size, extent)
    return e.placed_scalar(size, a.node)


@CALLS.reads("a", np.ndim)
def _ndim(e: Evaluator, a: Arguments) -> Value:
    value = a.either("a")
    return e.placed_scalar(number(value.rank if isinstance(value, Array) else 0), a.node)

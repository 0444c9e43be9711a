"""Arrays made of several, or of one repeated: concatenate, stack, roll, tile, pad."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np

from polyfuse.frontend.python.numpy.complex_numbers import as_complex, chosen
from polyfuse.frontend.python.numpy.expressions import Expressions
from polyfuse.frontend.python.numpy.functions.arguments import Arguments
from polyfuse.frontend.python.numpy.functions.calls import Calls
from polyfuse.frontend.python.numpy.functions.views import modulo
from polyfuse.frontend.python.numpy.program import shape_text
from polyfuse.frontend.python.numpy.syntax import constant, minus, number, plus, quotient, times
from polyfuse.frontend.python.numpy.values import (
    Array,
    Index,
    Scalar,
    Static,
    Value,
    as_number,
    common_type,
    reshaped,
)
from polyfuse.ir.number_types import (
    is_complex,
)

CALLS = Calls()


@CALLS.reads("arrays axis", np.concatenate)
def _concatenate(e: Expressions, a: Arguments) -> Value:
    arrays = _list(e, a, "arrays")
    return _joined(e, a, arrays, a.integer("axis", 0) % arrays[0].rank)


@CALLS.reads("arrays", np.hstack)
def _hstack(e: Expressions, a: Arguments) -> Value:
    arrays = _list(e, a, "arrays")
    return _joined(e, a, arrays, 0 if arrays[0].rank == 1 else 1)


@CALLS.reads("arrays", np.vstack)
def _vstack(e: Expressions, a: Arguments) -> Value:
    arrays = [_with_axis(x, 0) if x.rank == 1 else x for x in _list(e, a, "arrays")]
    return _joined(e, a, arrays, 0)


@CALLS.reads("arrays axis", np.stack)
def _stack(e: Expressions, a: Arguments) -> Value:
    arrays = _list(e, a, "arrays")
    axis = a.integer("axis", 0) % (arrays[0].rank + 1)
    return _joined(e, a, [_with_axis(x, axis) for x in arrays], axis)


def _with_axis(array: Array, axis: int) -> Array:
    shape = (*array.shape[:axis], number(1), *array.shape[axis:])
    return reshaped(array, shape, lambda i: (*i[:axis], *i[axis + 1 :]))


def _list(e: Expressions, a: Arguments, name: str) -> list[Array]:
    values = a.given.get(name)
    parts = values if isinstance(values, tuple) else ()
    found = [part for part in parts if isinstance(part, Array)]
    if not found or len(found) != len(parts) or len({part.rank for part in found}) > 1:
        a.refuse("arrays of equal rank are expected")
    return found


def _joined(e: Expressions, a: Arguments, arrays: list[Array], axis: int) -> Array:
    """The arrays one after the other along an axis."""
    first, *rest = arrays
    for other in rest:
        for position, (x, y) in enumerate(zip(first.shape, other.shape, strict=True)):
            if position != axis and not e.program.geometry.same(x, y):
                a.refuse(
                    f"the shapes {shape_text(first.shape)} and {shape_text(other.shape)} are not known to fit"
                )
    ends, end = [], number(0)
    for array in arrays:
        end = plus(end, array.shape[axis])
        ends.append(end)
    shape = (*first.shape[:axis], end, *first.shape[axis + 1 :])
    dtype = common_type([array.dtype for array in arrays])

    def at(index: Index) -> ast.expr:
        made: ast.expr | None = None
        for array, stop in reversed(list(zip(arrays, ends, strict=True))):
            begin = minus(stop, array.shape[axis])
            own = array.element((*index[:axis], minus(index[axis], begin), *index[axis + 1 :]))
            own = as_complex(own, array.dtype) if is_complex(dtype) else as_number(own, array.dtype)
            test = ast.Compare(index[axis], [ast.Lt()], [stop])
            made = own if made is None else chosen(test, own, made, [dtype, dtype])
        assert made is not None, "there is at least one array"
        return made

    return Array(shape, dtype, at)


@CALLS.reads("a shift axis", np.roll)
def _roll(e: Expressions, a: Arguments) -> Value:
    array, shift = a.array("a"), a.integer("shift")
    if array.rank > 1 and not a.has("axis"):
        a.refuse("roll without an axis")
    axis = a.integer("axis", 0) % array.rank
    extent = array.shape[axis]
    if shift == 0:
        return array

    def at(index: Index) -> ast.expr:
        moved = minus(index[axis], number(shift))
        inside = array.element((*index[:axis], moved, *index[axis + 1 :]))
        wrapped = plus(moved, extent) if shift > 0 else minus(moved, extent)
        other = array.element((*index[:axis], wrapped, *index[axis + 1 :]))
        op = ast.GtE() if shift > 0 else ast.Lt()
        bound = number(0) if shift > 0 else extent
        return chosen(ast.Compare(moved, [op], [bound]), inside, other, [array.dtype] * 2)

    return Array(array.shape, array.dtype, at)


@CALLS.reads("a repeats axis", np.repeat, np.ndarray.repeat)
def _repeat(e: Expressions, a: Arguments) -> Value:
    array, repeats = a.array("a"), a.integer("repeats")
    if array.rank > 1 and not a.has("axis"):
        a.refuse("repeat without an axis")
    axis = a.integer("axis", 0) % array.rank
    shape = (*array.shape[:axis], times(array.shape[axis], number(repeats)), *array.shape[axis + 1 :])
    return reshaped(array, shape, lambda i: (*i[:axis], quotient(i[axis], repeats), *i[axis + 1 :]))


@CALLS.reads("a reps", np.tile)
def _tile(e: Expressions, a: Arguments) -> Value:
    array, given = a.array("a"), a.given.get("reps")
    counts = [
        constant(p.node) if isinstance(p, Scalar) else None
        for p in (given if isinstance(given, tuple) else (given,))
    ]
    known = [count for count in counts if count is not None]
    if len(known) < len(counts):
        a.refuse("reps are not constant integers")
    rank = max(array.rank, len(known))
    known = [1] * (rank - len(known)) + known
    shape = (*[number(1)] * (rank - array.rank), *array.shape)
    parts = list(range(rank - array.rank, rank))
    if any(
        count != 1 and constant(extent) is None
        for count, extent in zip(known[rank - array.rank :], array.shape, strict=True)
    ):
        a.refuse(
            "an axis is repeated whose extent is a size: its subscript would be modulo that, which is not affine"
        )
    return reshaped(
        array,
        tuple(times(extent, number(count)) for extent, count in zip(shape, known, strict=True)),
        lambda i: tuple(modulo(i[p], constant(shape[p]) or 1) if known[p] != 1 else i[p] for p in parts),
    )


@CALLS.reads("x y indexing", np.meshgrid)
def _meshgrid(e: Expressions, a: Arguments) -> Value:
    x, y = a.array("x"), a.array("y")
    indexing = a.given.get("indexing", Static("xy"))
    if x.rank != 1 or y.rank != 1 or not isinstance(indexing, Static) or indexing.value not in ("xy", "ij"):
        a.refuse("other grids than those of two vectors")
    first = 1 if indexing.value == "xy" else 0
    shape = (y.shape[0], x.shape[0]) if first else (x.shape[0], y.shape[0])
    return (
        reshaped(x, shape, lambda i: (i[first],)),
        reshaped(y, shape, lambda i: (i[1 - first],)),
    )


@CALLS.reads("a width mode constant_values", np.pad)
def _pad(e: Expressions, a: Arguments) -> Value:
    array = a.array("a")
    mode = a.given.get("mode")
    if isinstance(mode, Static) and mode.value != "constant":
        a.refuse("another mode than 'constant'")
    fill = a.either("constant_values") if a.has("constant_values") else Scalar(number(0), "integer")
    widths = _widths(a, array.rank)
    extents = [
        plus(extent, number(before + after))
        for extent, (before, after) in zip(array.shape, widths, strict=True)
    ]

    def at(index: Index) -> ast.expr:
        inside: list[ast.expr] = []
        moved = []
        for i, extent, (before, after) in zip(index, array.shape, widths, strict=True):
            position = minus(i, number(before))
            moved.append(position)
            if before:
                inside.append(ast.Compare(position, [ast.GtE()], [number(0)]))
            if after:
                inside.append(ast.Compare(position, [ast.Lt()], [extent]))
        own = array.element(tuple(moved))
        if not inside:
            return own
        test = inside[0] if len(inside) == 1 else ast.BoolOp(ast.And(), inside)
        value = fill if isinstance(fill, Scalar) else Scalar(number(0), "integer")
        return chosen(test, own, value.node, [array.dtype, value.dtype])

    return Array(tuple(extents), array.dtype, at)


def _widths(a: Arguments, rank: int) -> list[tuple[int, int]]:
    def integers(value: Value | None) -> Any:
        if isinstance(value, tuple):
            return [integers(part) for part in value]
        found = constant(value.node) if isinstance(value, Scalar) else None
        return a.refuse("widths that are no constants") if found is None else found

    found = integers(a.given.get("width"))
    pairs: list[tuple[int, int]] = [tuple(pair) for pair in np.broadcast_to(found, (rank, 2)).tolist()]
    return pairs

"""Arrays made of several, or of one repeated: concatenate, stack, roll, tile, pad."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from polyfuse.frontend.python.numpy.complex_numbers import as_complex, chosen
from polyfuse.frontend.python.numpy.expressions.evaluator import Evaluator
from polyfuse.frontend.python.numpy.expressions.lists import number_or_array, stacked
from polyfuse.frontend.python.numpy.functions.arguments import Arguments, Shape
from polyfuse.frontend.python.numpy.functions.calls import Calls
from polyfuse.frontend.python.numpy.functions.views import flat, modulo
from polyfuse.frontend.python.numpy.syntax import constant, minus, number, plus, quotient, times
from polyfuse.frontend.python.numpy.values import (
    Array,
    Index,
    Scalar,
    Value,
    as_number,
    common_type,
    reshaped,
    shape_text,
)
from polyfuse.ir.number_types import (
    is_complex,
)

CALLS = Calls()


@CALLS.reads("arrays axis", np.concatenate, np.concat)
def _concatenate(e: Evaluator, a: Arguments) -> Value:
    arrays = _list(e, a, "arrays")
    if "axis" in a.given and not a.has("axis"):
        return _joined(e, a, [flat(e, a, x) for x in arrays], 0)
    return _joined(e, a, arrays, a.integer("axis", 0) % arrays[0].rank)


@CALLS.reads("arrays", np.hstack)
def _hstack(e: Evaluator, a: Arguments) -> Value:
    arrays = _list(e, a, "arrays")
    return _joined(e, a, arrays, 0 if arrays[0].rank == 1 else 1)


@CALLS.reads("arrays", np.vstack)
def _vstack(e: Evaluator, a: Arguments) -> Value:
    arrays = [_with_axis(x, 0) if x.rank == 1 else x for x in _list(e, a, "arrays")]
    return _joined(e, a, arrays, 0)


@CALLS.reads("arrays axis", np.stack)
def _stack(e: Evaluator, a: Arguments) -> Value:
    arrays = _list(e, a, "arrays")
    axis = a.integer("axis", 0) % (arrays[0].rank + 1)
    return _joined(e, a, [_with_axis(x, axis) for x in arrays], axis)


@CALLS.reads("arrays", np.column_stack)
def _column_stack(e: Evaluator, a: Arguments) -> Value:
    return _joined(e, a, [_with_axis(x, 1) if x.rank == 1 else x for x in _list(e, a, "arrays")], 1)


@CALLS.reads("arrays", np.dstack)
def _dstack(e: Evaluator, a: Arguments) -> Value:
    arrays = [_with_axis(x, 0) if x.rank == 1 else x for x in _list(e, a, "arrays")]
    return _joined(e, a, [_with_axis(x, 2) if x.rank == 2 else x for x in arrays], 2)


@CALLS.reads("arr values axis", np.append)
def _append(e: Evaluator, a: Arguments) -> Value:
    arrays = [number_or_array(e, a.node, a.given[name]) for name in ("arr", "values") if name in a.given]
    found = [stacked(e, a.node, (x,)) if isinstance(x, Scalar) else x for x in arrays]
    if a.has("axis"):
        return _joined(e, a, found, a.integer("axis") % found[0].rank)
    return _joined(e, a, [flat(e, a, x) for x in found], 0)


def _with_axis(array: Array, axis: int) -> Array:
    shape = (*array.shape[:axis], number(1), *array.shape[axis:])
    return reshaped(array, shape, lambda i: (*i[:axis], *i[axis + 1 :]))


def _list(e: Evaluator, a: Arguments, name: str) -> list[Array]:
    values = a.given.get(name)
    parts = values if isinstance(values, tuple) else ()
    found = [stacked(e, a.node, part) if isinstance(part, tuple) else part for part in parts]
    found = [part for part in found if isinstance(part, Array)]
    if not found or len(found) != len(parts) or len({part.rank for part in found}) > 1:
        a.refuse("arrays of equal rank are expected")
    return found


def _joined(e: Evaluator, a: Arguments, arrays: list[Array], axis: int) -> Array:
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
def _roll(e: Evaluator, a: Arguments) -> Value:
    array, shifts = a.array("a"), a.integers("shift", 0)
    if array.rank > 1 and not a.has("axis"):
        a.refuse("roll without an axis")
    axes = [axis % array.rank for axis in a.integers("axis", 0)]
    if len(axes) > 1 and len(shifts) == 1:
        shifts = shifts * len(axes)
    if len(axes) != len(shifts):
        a.refuse("as many shifts as axes are expected")
    for axis, shift in zip(axes, shifts, strict=True):
        array = rolled(array, shift, axis)
    return array


def rolled(array: Array, shift: int, axis: int) -> Array:
    """The array whose element i is the given one's element i - shift, counted round."""
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
def _repeat(e: Evaluator, a: Arguments) -> Value:
    array, repeats = a.array("a"), a.integer("repeats")
    if not a.has("axis"):
        array = flat(e, a, array)
    axis = a.integer("axis", 0) % array.rank
    shape = (*array.shape[:axis], times(array.shape[axis], number(repeats)), *array.shape[axis + 1 :])
    return reshaped(array, shape, lambda i: (*i[:axis], quotient(i[axis], repeats), *i[axis + 1 :]))


@CALLS.reads("a reps", np.tile)
def _tile(e: Evaluator, a: Arguments) -> Value:
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
    for axis, (count, extent) in enumerate(zip(known[rank - array.rank :], array.shape, strict=True)):
        if count > 1 and constant(extent) is None:  # modulo a size is not affine, but the copies are
            array = _joined(e, a, [array] * count, axis)
            known[rank - array.rank + axis] = 1
    shape = (*[number(1)] * (rank - array.rank), *array.shape)
    return reshaped(
        array,
        tuple(times(extent, number(count)) for extent, count in zip(shape, known, strict=True)),
        lambda i: tuple(modulo(i[p], constant(shape[p]) or 1) if known[p] != 1 else i[p] for p in parts),
    )


@CALLS.reads("x y z w indexing sparse copy", np.meshgrid)
def _meshgrid(e: Evaluator, a: Arguments) -> Value:
    vectors = [a.array(name) for name in ("x", "y", "z", "w") if name in a.given]
    indexing = a.text("indexing", "xy")
    if any(v.rank != 1 for v in vectors) or indexing not in ("xy", "ij"):
        a.refuse("other grids than those of vectors")
    order = list(range(len(vectors)))
    if indexing == "xy" and len(vectors) > 1:
        order[:2] = [1, 0]
    shape = tuple(vectors[k].shape[0] for k in order)
    one = number(1)
    found = []
    for k, vector in enumerate(vectors):
        axis = order.index(k)
        own = tuple(extent if d == axis else one for d, extent in enumerate(shape))
        found.append(_along(vector, own if a.truth("sparse") else shape, axis))
    return tuple(found)


def _along(vector: Array, shape: Shape, axis: int) -> Array:
    return reshaped(vector, shape, lambda i: (i[axis],))


@CALLS.reads("a|array width|pad_width mode constant_values", np.pad)
def _pad(e: Evaluator, a: Arguments) -> Value:
    array = a.array("a")
    mode = a.text("mode", "constant")
    if mode in INSIDE:
        return _padded_with_itself(a, array, mode)
    if mode != "constant":
        a.refuse(f"the mode {mode!r}: 'constant', {', '.join(map(repr, INSIDE))} are read")
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


INSIDE: Mapping[str, Callable[[ast.expr, ast.expr], tuple[ast.expr, ast.expr]]] = {
    "edge": lambda i, n: (number(0), minus(n, number(1))),
    "reflect": lambda i, n: (minus(number(0), i), minus(minus(times(number(2), n), number(2)), i)),
    "symmetric": lambda i, n: (minus(number(-1), i), minus(minus(times(number(2), n), number(1)), i)),
    "wrap": lambda i, n: (plus(i, n), minus(i, n)),
}
"""The positions that stand for position i before, and behind, an axis of n elements, by the mode of np.pad."""


def _padded_with_itself(a: Arguments, array: Array, mode: str) -> Array:
    """np.pad of elements of the array; a width may not exceed the extent."""
    widths = _widths(a, array.rank)

    def at(index: Index) -> Index:
        found = []
        for i, extent, (before, after) in zip(index, array.shape, widths, strict=True):
            position = minus(i, number(before))
            lower, upper = INSIDE[mode](position, extent)
            made = position
            if after:
                made = ast.IfExp(ast.Compare(position, [ast.Lt()], [extent]), made, upper)
            if before:
                made = ast.IfExp(ast.Compare(position, [ast.GtE()], [number(0)]), made, lower)
            found.append(made)
        return tuple(found)

    extents = [
        plus(extent, number(before + after))
        for extent, (before, after) in zip(array.shape, widths, strict=True)
    ]
    return replace(reshaped(array, tuple(extents), at), storage=None)


def _widths(a: Arguments, rank: int) -> list[tuple[int, int]]:
    def integers(value: Value | None) -> Any:
        if isinstance(value, tuple):
            return [integers(part) for part in value]
        found = constant(value.node) if isinstance(value, Scalar) else None
        return a.refuse("widths that are no constants") if found is None else found

    found = integers(a.given.get("width"))
    pairs: list[tuple[int, int]] = [tuple(pair) for pair in np.broadcast_to(found, (rank, 2)).tolist()]
    return pairs

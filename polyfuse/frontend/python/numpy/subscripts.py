"""Subscripts of arrays as views: integers, slices, None and ... in NumPy's meaning.

    x[1:-1]     element i  ->  x[i + 1]         shape (N - 2,)
    x[::-1]     element i  ->  x[N - 1 - i]     shape (N,)
    A[i, None]  element a, b  ->  A[i, b]       shape (1, M)
    x[-1]       x[N - 1]

A bound that may lie on either side of 0 counts from the end where it is negative: x[:k] stops at k if k >= 0 else
N + k. A bound behind the end is the end, as in NumPy: x[:K] stops at K if K <= N else N. A number, or a bound that
depends on a loop's index, is not clipped where it is behind the end for some sizes alone: the element that would be
missing is out of bounds.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from polyfuse.frontend.python.numpy.geometry import Geometry
from polyfuse.frontend.python.numpy.syntax import constant, cut_at, minus, number, plus, quotient, times
from polyfuse.frontend.python.numpy.values import Array, Index, reshaped


@dataclass(frozen=True)
class Cut:
    """A slice with bounds that are known to be affine, or missing; the step is a constant."""

    start: ast.expr | None
    stop: ast.expr | None
    step: int = 1


Part = ast.expr | Cut | None
"""An integer, a slice, or None for a new dimension."""


def from_start(geometry: Geometry, position: ast.expr, extent: ast.expr) -> ast.expr:
    """A subscript or bound that may count from the end, counted from the start."""
    if geometry.is_natural(position):
        return position
    shifted = plus(extent, position)
    if geometry.is_negative(position):
        return shifted
    if not geometry.is_affine(position):
        return position
    return ast.IfExp(ast.Compare(position, [ast.GtE()], [number(0)]), position, shifted)


def subscripted(geometry: Geometry, array: Array, parts: Sequence[Part]) -> Array:
    """The view of an array at some subscripts, at most one a dimension; dimensions without one are whole."""
    shape: list[ast.expr] = []
    sources: list[Callable[[Index], ast.expr]] = []
    axis = 0
    for part in parts:
        if part is None:
            shape.append(number(1))
            continue
        extent = array.shape[axis]
        axis += 1
        if isinstance(part, Cut):
            start, length = _bounds(geometry, part, extent)
            sources.append(_at(len(shape), start, part.step))
            shape.append(length)
        else:
            sources.append(_fixed(from_start(geometry, part, extent)))
    for extent in array.shape[axis:]:
        sources.append(_at(len(shape), number(0), 1))
        shape.append(extent)
    return reshaped(array, tuple(shape), lambda index: tuple(source(index) for source in sources))


def _bounds(geometry: Geometry, cut: Cut, extent: ast.expr) -> tuple[ast.expr, ast.expr]:
    """(the first position, the number of positions) of a slice."""
    step = cut.step
    if step > 0:
        start = number(0) if cut.start is None else from_start(geometry, cut.start, extent)
        stop = extent if cut.stop is None else from_start(geometry, cut.stop, extent)
        if stop is cut.stop:
            stop = _up_to(geometry, stop, extent)
        return start, quotient(plus(minus(stop, start), number(step - 1)), step)
    last = minus(extent, number(1))
    start = last if cut.start is None else from_start(geometry, cut.start, extent)
    stop = number(-1) if cut.stop is None else from_start(geometry, cut.stop, extent)
    return start, quotient(plus(minus(start, stop), number(-step - 1)), -step)


def _up_to(geometry: Geometry, stop: ast.expr, extent: ast.expr) -> ast.expr:
    """The end of a slice whose bound counts from the start: the bound, or the array's end if that comes first."""
    if geometry.at_most(extent, stop):
        return extent
    sizes = constant(stop) is None and geometry.is_of_sizes(stop) and geometry.is_of_sizes(extent)
    if not sizes or geometry.at_most(stop, extent):
        return stop
    return cut_at(stop, extent)


def _at(position: int, start: ast.expr, step: int) -> Callable[[Index], ast.expr]:
    if step == 1:
        return lambda index: plus(index[position], start)
    return lambda index: plus(times(number(step), index[position]), start)


def _fixed(value: ast.expr) -> Callable[[Index], ast.expr]:
    return lambda index: value

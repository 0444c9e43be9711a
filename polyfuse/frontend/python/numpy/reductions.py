"""Reductions over axes as loops.

s = np.sum(A, axis=1)     ->   for i0 …: s[i0] = 0.0; for r0 …: s[i0] += A[i0, r0]
"""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from dataclasses import dataclass

from polyfuse.frontend.python.numpy.broadcasting import converted
from polyfuse.frontend.python.numpy.complex_numbers import applied, chosen, pair
from polyfuse.frontend.python.numpy.memory import new_array, new_variable
from polyfuse.frontend.python.numpy.program import Program
from polyfuse.frontend.python.numpy.stores import as_stored, assignments, reads_of, updates
from polyfuse.frontend.python.numpy.syntax import data_bounds, number, stored
from polyfuse.frontend.python.numpy.values import BOOL, Array, Scalar, as_test, common_type, stored_type
from polyfuse.ir.number_types import HALVES, NUMBER_TYPES, is_complex, is_real, sum_type


@dataclass(frozen=True)
class Reduction:
    """How values become one: the operator, and the number it begins with (None: the first value)."""

    name: str
    begin: int | None


SUM, PRODUCT = Reduction("+", 0), Reduction("*", 1)


MAXIMUM, MINIMUM = Reduction("max", None), Reduction("min", None)


def reduced(
    program: Program,
    how: Reduction,
    value: Array,
    axes: Sequence[int],
    stem: str,
    dtype: str | None = None,
    into: Array | None = None,
) -> Array | Scalar:
    """The array without some axes, over which its elements are combined; a number if none is left."""
    dtype = dtype or type_of_reduction(how, value.dtype)
    if dtype in HALVES:  # NumPy rounds the result, not each step
        made = converted(program, reduced(program, how, value, axes, stem, "float32"), dtype)
        return new_variable(program, made, stem) if isinstance(made, Scalar) else made
    if dtype == BOOL and how.begin is not None:
        program.refuse("a sum or product of conditions as one condition", "np.any, np.all; .astype(np.int64)")
    rest = [axis for axis in range(value.rank) if axis not in axes]
    outer, kept = program.loops("i", [value.shape[axis] for axis in rest])
    inner, gone = program.loops("r", [value.shape[axis] for axis in axes])

    def at(reduced_index: Sequence[ast.expr]) -> ast.expr:
        places = dict(zip((*rest, *axes), (*kept, *reduced_index), strict=True))
        index = tuple(places[axis] for axis in range(value.rank))
        node = value.element(index)
        node = as_stored(program, node, value.dtype, dtype)
        if value.mask is None:
            return node
        test = as_test(value.mask.element(index), BOOL)
        return chosen(test, node, _neutral(program, how, dtype), [dtype, "integer"])

    if is_complex(value.dtype) and how not in (SUM, PRODUCT):
        program.refuse("an order of complex numbers", "sum, prod and mean; of x.real, abs(x)")
    if how.begin is not None or any(data_bounds(value.shape[axis]) for axis in axes):
        begin = _neutral(program, how, dtype)
    else:
        begin = at([number(0)] * len(axes))
    if how.begin is not None and (is_real(dtype) or is_complex(dtype)):
        begin = number(float(how.begin))
    if is_complex(dtype):
        begin = pair(begin, number(0.0))
    if not rest:
        program.hint = None
        total = new_variable(program, Scalar(begin, dtype), stem)
        program.emit_nest(inner, _combined(program, how, total.node, at(gone)))
        return total
    shape = tuple(value.shape[axis] for axis in rest)
    whole = at(gone)
    free = into is not None and not reads_of(program, ast.Tuple([whole, begin]), into.storage)
    fits = free and into is not None and into.mask is None and _same_shape(program, into.shape, shape)
    fits = fits and into is not None and (not into.adds or how is SUM)
    target = (
        into if fits and into is not None and into.dtype == dtype else new_array(program, shape, dtype, stem)
    )
    place = target.element(kept)
    body: list[ast.stmt] = [] if target.adds else assignments(program, place, begin)
    for statement in program.nested(inner, _combined(program, how, place, whole)):
        body.append(statement)
    program.emit_nest(outer, body)
    return target


def _neutral(program: Program, how: Reduction, dtype: str) -> ast.expr:
    """The value that changes no result. A maximum of no elements is this value, where NumPy raises an error."""
    if how.begin is not None:
        return number(how.begin)
    known = NUMBER_TYPES[dtype]
    least = how is MAXIMUM
    if is_real(dtype):
        return number(-math.inf if least else math.inf)
    if dtype == BOOL:
        return number(int(not least))
    return number(known.least if least else known.largest)


def _combined(program: Program, how: Reduction, target: ast.expr, value: ast.expr) -> list[ast.stmt]:
    if how.name in ("max", "min"):
        return [ast.Assign([stored(target)], program.call(how.name, target, value))]
    if how is PRODUCT and isinstance(target, ast.Tuple):
        types = ["complex128", "complex128"]
        return assignments(program, target, applied(ast.Mult(), target, value, types))
    return updates(program, target, ast.Add() if how.name == "+" else ast.Mult(), value)


def _same_shape(program: Program, left: Sequence[ast.expr], right: Sequence[ast.expr]) -> bool:
    return len(left) == len(right) and all(map(program.geometry.same, left, right))


def type_of_reduction(how: Reduction, dtype: str) -> str:
    """NumPy's type of a sum: integers and conditions are added in 64 bits."""
    found = common_type([stored_type(dtype)])
    if is_complex(found):
        return found
    return sum_type(found) if how.begin is not None else found  # type: ignore[arg-type]  # a type of nests

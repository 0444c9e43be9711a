"""Lists and tuples as arrays: [a, b, c] of numbers, or of arrays of one shape."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from polyfuse.frontend.python.numpy.complex_numbers import as_complex, chosen
from polyfuse.frontend.python.numpy.expressions.evaluator import ALLOWED, Evaluator
from polyfuse.frontend.python.numpy.syntax import constant, number
from polyfuse.frontend.python.numpy.values import Array, Scalar, Static, Value, common_type
from polyfuse.ir.number_types import is_complex


def number_or_array(e: Evaluator, node: ast.expr, value: Value) -> Scalar | Array:
    """A value that has elements. NotAffine for others."""
    if isinstance(value, tuple):
        return stacked(e, node, value)
    if isinstance(value, Static):
        e.refuse(node, f"{ast.unparse(node)} is no number and no array", ALLOWED)
    return value


def stacked(e: Evaluator, node: ast.expr, values: tuple[Value, ...]) -> Array:
    """A list of numbers, or of arrays of one shape, as an array."""
    values = tuple(stacked(e, node, part) if isinstance(part, tuple) else part for part in values)
    rows = [part for part in values if isinstance(part, Array) and part.mask is None]
    if rows and len(rows) == len(values) and len({row.rank for row in rows}) == 1:
        return _stacked_arrays(e, node, rows)
    parts = [part for part in values if isinstance(part, Scalar)]
    if len(parts) != len(values) or not parts:
        e.refuse(node, f"{ast.unparse(node)} as an array", "lists of numbers, or of arrays of one shape")
    dtype = common_type([part.dtype for part in parts])

    def at(index: tuple[ast.expr, ...]) -> ast.expr:
        *rest, last = parts
        made = as_complex(last.node, last.dtype) if is_complex(dtype) else last.node
        for position in range(len(rest) - 1, -1, -1):
            test = ast.Compare(index[0], [ast.Eq()], [number(position)])
            made = chosen(test, rest[position].node, made, [rest[position].dtype, dtype])
        return made

    return Array((number(len(parts)),), dtype, at)


def _stacked_arrays(e: Evaluator, node: ast.expr, rows: Sequence[Array]) -> Array:
    """Arrays of one shape as the rows of one array."""
    first = rows[0]
    for row in rows[1:]:
        if not all(map(e.program.geometry.same, first.shape, row.shape)):
            e.refuse(node, f"{ast.unparse(node)} as an array", "arrays that are known to have one shape")
    dtype = common_type([row.dtype for row in rows])

    def at(index: tuple[ast.expr, ...]) -> ast.expr:
        made: ast.expr | None = None
        known = constant(index[0])
        for position in range(len(rows) - 1, -1, -1):
            own = rows[position].element(index[1:])
            if known == position:
                return own
            test = ast.Compare(index[0], [ast.Eq()], [number(position)])
            made = own if made is None else chosen(test, own, made, [rows[position].dtype, dtype])
        assert made is not None, "there is at least one array"
        return made

    return Array((number(len(rows)), *first.shape), dtype, at)

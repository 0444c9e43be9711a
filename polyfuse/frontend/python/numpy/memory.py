"""New arrays and variables of a lowered function."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from copy import deepcopy

from polyfuse.frontend.python.numpy.complex_numbers import pair, parts
from polyfuse.frontend.python.numpy.program import Program
from polyfuse.frontend.python.numpy.syntax import element, end_of_cut, name, number
from polyfuse.frontend.python.numpy.values import Array, Index, Scalar, stored_type
from polyfuse.frontend.python.parameters import DTYPES
from polyfuse.ir.number_types import is_complex, part_type

NOTES = {dtype: note for note, dtype in DTYPES.items()}


def new_array(program: Program, shape: Sequence[ast.expr], dtype: str, stem: str) -> Array:
    """A new array without values. One whose shape depends on indices of loops gets its largest shape's memory.

    One as long as x[:K] gets the memory of x, and is known as `longer` than its shape.
    """
    dtype = stored_type(dtype)
    tensor = program.named(stem)
    program.storages.add(tensor)
    extents = [_largest_extent(program, part) for part in shape]
    if any(_is_cut(part) for part in shape):
        program.longer.add(tensor)
    if is_complex(dtype):
        program.pairs.add(tensor)
        extents.append(number(2))
    shapes = ast.Tuple(extents, ast.Load())
    program.emit(
        ast.Assign(
            [ast.Name(tensor, ast.Store())],
            ast.Call(program.function("empty"), [shapes, ast.Constant(part_type(dtype))], []),
        )
    )
    return stored_array(tensor, shape, dtype)


def _largest_extent(program: Program, extent: ast.expr) -> ast.expr:
    found = {part.id for part in ast.walk(extent) if isinstance(part, ast.Name)}
    if found <= set(program.names.sizes):
        uncut = _Uncut().visit(deepcopy(extent)) if _is_cut(extent) else extent
        assert isinstance(uncut, ast.expr), "an expression stays one"
        return program.settled(uncut)
    largest = program.geometry.largest(extent)
    if largest is None:
        program.refuse(
            f"the extent {ast.unparse(extent)} of a temporary array has no affine largest value",
            "shapes that are affine in sizes and indices",
        )
    return largest


def _is_cut(extent: ast.expr) -> bool:
    """True for the extent of a slice that may end with its array, before its bound."""
    return any(isinstance(part, ast.IfExp) and end_of_cut(part) is not None for part in ast.walk(extent))


class _Uncut(ast.NodeTransformer):
    """K if K <= N else N, as N."""

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        end = end_of_cut(node)
        return self.generic_visit(node) if end is None else end


def new_variable(program: Program, value: Scalar, stem: str) -> Scalar:
    """A variable with the value of an expression now."""
    if is_complex(value.dtype):
        own = [program.fresh(f"{stem}_{part}") for part in ("real", "imag")]
        for variable, part in zip(own, parts(value.node), strict=True):
            set_variable(program, variable, part, part_type(value.dtype))
        return Scalar(pair(*map(name, own)), value.dtype)
    found = program.fresh(stem)
    set_variable(program, found, value.node, value.dtype)
    return Scalar(name(found), value.dtype)


def set_variable(program: Program, variable: str, value: ast.expr, dtype: str) -> None:
    """variable = value, with a declared type where the type is not weak."""
    target = ast.Name(variable, ast.Store())
    if dtype in NOTES:
        program.emit(ast.AnnAssign(target, ast.Constant(NOTES[dtype]), value, 1))
    else:
        program.emit(ast.Assign([target], value))


def stored_array(tensor: str, shape: Sequence[ast.expr], dtype: str) -> Array:
    """The whole of an array in memory. Complex numbers are pairs along a last axis."""

    def at(index: Index) -> ast.expr:
        if is_complex(dtype):
            return pair(*(element(tensor, (*index, number(part))) for part in (0, 1)))
        return element(tensor, index)

    return Array(tuple(shape), dtype, at, tensor)

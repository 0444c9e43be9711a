"""Values of names and attributes: variables, Python objects outside of the function, x.T, x.shape."""

from __future__ import annotations

import ast
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np

from polyfuse.frontend.python.numpy.complex_numbers import as_complex, pair, parts
from polyfuse.frontend.python.numpy.expressions.evaluator import ALLOWED, Evaluator
from polyfuse.frontend.python.numpy.memory import new_array
from polyfuse.frontend.python.numpy.stores import assignments
from polyfuse.frontend.python.numpy.syntax import number, placed, times
from polyfuse.frontend.python.numpy.values import Array, Scalar, Static, Value, weak_type
from polyfuse.frontend.python.scope_names import MISSING
from polyfuse.ir.number_types import ITEMSIZE, is_complex, part_type

LARGEST_CONSTANT = 256
"""Elements of a constant array from outside, which becomes one statement each."""


def named_value(e: Evaluator, node: ast.Name) -> Value:
    """A variable, or what the name is outside of the function."""
    found = e.frame.found(node.id)
    if found is not None:
        return Scalar(node, found.dtype) if isinstance(found, Scalar) and _is(found.node, node.id) else found
    if node.id in e.frame.over:
        index = e.frame.over[node.id]
        e.refuse(
            node,
            f"{node.id} is a slice, a view or an array of one iteration of the loop over {index}, which is over",
            ALLOWED,
        )
    if node.id in e.frame.divided:
        test = e.frame.divided[node.id]
        e.refuse(
            node,
            f"{node.id} is another array or object if {test} than if not, and which one is not known here",
            "arrays of the branches' own, of one shape: .copy()",
        )
    return from_outside(e, node, e.frame.outside(node.id))


def is_local(e: Evaluator, node: ast.expr) -> bool:
    """True for a module that the function imports itself: other readers do not know its name."""
    return isinstance(node, ast.Name) and e.frame.found(node.id) is not None


def from_outside(e: Evaluator, node: ast.expr, outside: object) -> Value:
    """A Python object as a value: a number keeps its name in the decorated function."""
    dtype = weak_type(outside)
    if dtype is not None and is_complex(dtype):
        assert isinstance(outside, complex | np.complexfloating), "weak_type knows numbers"
        return Scalar(placed(_literals(outside), node), dtype)
    if dtype is not None:
        assert isinstance(outside, int | float | np.generic), "weak_type knows numbers"
        literal = outside.item() if isinstance(outside, np.generic) else outside
        return Scalar(node if e.frame.is_first else ast.copy_location(number(literal), node), dtype)
    if isinstance(outside, np.ndarray) and outside.ndim and weak_type(outside.flat[0] if outside.size else 0):
        return constant_array(e, node, outside)
    if outside is MISSING:
        return e.unread(node)
    return Static(outside)


def constant_array(e: Evaluator, node: ast.expr, outside: np.ndarray[Any, Any]) -> Array:
    """A module's array: its elements now, one statement each."""
    known = e.constants.get(id(outside))
    if known is not None:
        return known
    if outside.size > LARGEST_CONSTANT:
        e.refuse(
            node, f"{ast.unparse(node)} is an array of {outside.size} elements from outside", "parameters"
        )
    program = e.program
    made = new_array(
        program, [number(n) for n in outside.shape], outside.dtype.name, ast.unparse(node).split(".")[-1]
    )
    for index in np.ndindex(*outside.shape):
        target = made.element(tuple(number(i) for i in index))
        value = outside[index].item()
        literal = _literals(value) if isinstance(value, complex) else number(value)
        for statement in assignments(program, target, literal):
            program.emit(statement)
    e.constants[id(outside)] = made
    return made


def attribute(e: Evaluator, node: ast.Attribute) -> Value:
    """x.T, x.shape, x.size, x.ndim, x.dtype, or a name in a module."""
    inner = e.value(node.value)
    if isinstance(inner, Array):
        match node.attr:
            case "T":
                call = e.calls(np.transpose)
                assert call is not None, "transpose is one of the calls"
                return call(e, ast.copy_location(ast.Call(node, [], []), node), [inner], {}, None)
            case "shape":
                return tuple(e.placed_scalar(extent, node) for extent in inner.shape)
            case "size":
                size: ast.expr = number(1)
                for extent in inner.shape:
                    size = times(size, extent)
                return e.placed_scalar(size, node)
            case "mT":
                call = e.calls(np.matrix_transpose)
                assert call is not None, "matrix_transpose is one of the calls"
                return call(e, ast.copy_location(ast.Call(node, [], []), node), [inner], {}, None)
            case "itemsize" | "nbytes":
                size = number(np.dtype(inner.dtype).itemsize)
                for extent in inner.shape if node.attr == "nbytes" else ():
                    size = times(size, extent)
                return e.placed_scalar(size, node)
            case "ndim":
                return e.placed_scalar(number(inner.rank), node)
            case "dtype":
                return Static(np.dtype(inner.dtype))
            case "real" | "imag":
                return part_of(inner, node.attr)
        e.refuse(node, f"{ast.unparse(node)} of an array", ".T .shape .size .ndim .dtype and NumPy's methods")
    if isinstance(inner, Static):
        found = getattr(inner.value, node.attr, MISSING)
        if isinstance(inner.value, np.finfo | np.iinfo) and weak_type(found) is not None:
            assert isinstance(found, int | float | np.generic), "weak_type knows numbers"
            plain = found.item() if isinstance(found, np.generic) else found
            return Scalar(placed(number(plain), node), weak_type(found) or "integer")
        if isinstance(inner.value, ModuleType):
            dtype = weak_type(found)
            if is_local(e, node.value) and dtype is not None and not is_complex(dtype):
                assert isinstance(found, int | float | np.generic), "weak_type knows numbers"
                literal = number(found.item() if isinstance(found, np.generic) else found)
                return Scalar(ast.copy_location(literal, node), dtype)
            return from_outside(e, node, found)
        if found is not MISSING:
            return Static(found)
    if isinstance(inner, Scalar) and is_complex(inner.dtype) and node.attr in ("real", "imag"):
        return part_of(inner, node.attr)
    if isinstance(inner, Scalar) and node.attr == "dtype" and inner.dtype in ITEMSIZE:
        return Static(np.dtype(inner.dtype))
    return e.unread(node)


def part_of(value: Array | Scalar, which: str) -> Array | Scalar:
    """x.real or x.imag: of an array in memory a view."""
    position, dtype = ("real", "imag").index(which), part_type(value.dtype)
    if isinstance(value, Scalar):
        return Scalar(parts(as_complex(value.node, value.dtype))[position], dtype)
    if not is_complex(value.dtype):
        return value if not position else replace(value, element=lambda index: number(0), storage=None)
    return replace(value, dtype=dtype, element=lambda index: parts(value.element(index))[position])


def _literals(value: complex | np.complexfloating[Any, Any]) -> ast.expr:
    return pair(number(float(value.real)), number(float(value.imag)))


def _is(node: ast.expr, variable: str) -> bool:
    return isinstance(node, ast.Name) and node.id == variable

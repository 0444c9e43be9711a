"""Arrays seen in a common shape, and functions of their elements."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace

from polyfuse.frontend.python.numpy.complex_numbers import as_complex, pair, parts
from polyfuse.frontend.python.numpy.program import Program
from polyfuse.frontend.python.numpy.syntax import constant, number
from polyfuse.frontend.python.numpy.values import (
    BOOL,
    Array,
    Scalar,
    as_test,
    common_type,
    reshaped,
    shape_text,
)
from polyfuse.ir.number_types import is_complex, is_integer, is_number, is_real, part_type


def _cast(program: Program, node: ast.expr, dtype: str) -> ast.expr:
    """An element converted to a type."""
    if is_complex(dtype):
        return pair(*(_cast(program, part, part_type(dtype)) for part in parts(node)))
    return program.call(dtype, node)


def converted(program: Program, value: Array | Scalar, dtype: str) -> Array | Scalar:
    """A value converted to a type, element by element."""
    if value.dtype == dtype:
        return value
    if dtype == BOOL:
        return elementwise(program, lambda x: as_test(x, value.dtype), BOOL, [value])
    if is_complex(value.dtype) and not is_complex(dtype):
        program.refuse(f"complex numbers as {dtype}", "x.real, abs(x)")
    if is_complex(dtype):
        return elementwise(
            program, lambda x: _cast(program, as_complex(x, value.dtype), dtype), dtype, [value]
        )
    return elementwise(program, lambda x: _cast(program, x, dtype), dtype, [value])


def broadcast(program: Program, value: Array | Scalar, shape: tuple[ast.expr, ...]) -> Array:
    """A value seen in a larger shape: dimensions of extent 1 and missing ones repeat."""
    if isinstance(value, Scalar):
        node, dtype = value.node, value.dtype
        return Array(shape, dtype, lambda index: node)
    kept = value
    if value.rank > len(shape) and all(constant(e) == 1 for e in value.shape[: value.rank - len(shape)]):
        extra = value.rank - len(shape)
        kept = reshaped(value, value.shape[extra:], lambda index: (number(0),) * extra + index)
    if kept.rank > len(shape):
        program.refuse(_unlike(value.shape, shape), "arrays that broadcast: equal extents, or 1")
    missing = len(shape) - kept.rank
    repeats = []
    for own, wanted in zip(kept.shape, shape[missing:], strict=True):
        repeats.append(constant(own) == 1 and constant(wanted) != 1)
        if not repeats[-1] and not program.alike(own, wanted):
            program.refuse(
                _unlike(value.shape, shape), "arrays that broadcast: equal extents, or 1; assert N == M"
            )
    return reshaped(
        kept,
        shape,
        lambda index: tuple(
            number(0) if repeat else part for part, repeat in zip(index[missing:], repeats, strict=True)
        ),
    )


def common_shape(program: Program, values: Sequence[Array | Scalar]) -> tuple[ast.expr, ...]:
    """The shape to which arrays broadcast. Raises NotAffine if two extents may differ."""
    shape: list[ast.expr] = []
    for value in values:
        if isinstance(value, Scalar):
            continue
        shape = [number(1)] * (value.rank - len(shape)) + shape
        for position, own in enumerate(value.shape, len(shape) - value.rank):
            known = shape[position]
            if constant(known) == 1:
                shape[position] = own
            elif constant(own) != 1 and not program.alike(own, known):
                shapes = [v.shape for v in values if isinstance(v, Array)]
                program.refuse(
                    " and ".join(shape_text(one) for one in shapes)
                    + ": these shapes are not known to broadcast",
                    "arrays that broadcast: equal extents, or 1; assert N == M says that two sizes are equal",
                )
    return tuple(shape)


def elementwise(
    program: Program, make: Callable[..., ast.expr], dtype: str, values: Sequence[Array | Scalar]
) -> Array | Scalar:
    """A function of elements, for arrays that broadcast; a number if all are numbers."""
    arrays = [value for value in values if isinstance(value, Array)]
    values = in_parts(program, values)
    if not arrays:
        numbers = _distinct(program, values)
        return Scalar(make(*(value.node for value in numbers if isinstance(value, Scalar))), dtype)
    shape = common_shape(program, values)
    mask = _common_mask(program, arrays)
    seen = [broadcast(program, value, shape) for value in _distinct(program, values)]
    return Array(shape, dtype, lambda index: make(*(one.element(index) for one in seen)), mask=mask)


def _distinct(program: Program, values: Sequence[Array | Scalar]) -> Sequence[Array | Scalar]:
    """Operands of several types, or integers: what is written as weak numbers is converted to the type it has.

    np.full(N, 0.1) * y with y: float32     ->   float64(0.1) * y[i]
    k * np.arange(N) with k: int64          ->   k[i] * int64(i)          an index alone has the target's type
    """
    strong = [value.dtype for value in values if value.dtype != BOOL and not is_number(value.dtype)]
    same = len(set(strong)) < 2 and all(map(is_real, strong))
    return values if same or len(strong) < 2 else [_strong(program, value) for value in values]


def in_parts(program: Program, values: Sequence[Array | Scalar]) -> Sequence[Array | Scalar]:
    """Operands of which one is complex: integers become numbers of its parts' type, which do not wrap."""
    if not any(is_complex(value.dtype) for value in values):
        return values
    dtype = part_type(common_type([value.dtype for value in values]))
    dtype = "float64" if is_number(dtype) else dtype
    return [
        converted(program, value, dtype) if is_integer(value.dtype) and not is_number(value.dtype) else value
        for value in values
    ]


def _strong(program: Program, value: Array | Scalar) -> Array | Scalar:
    if value.dtype == BOOL or is_number(value.dtype):
        return value

    def typed(node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Tuple):
            return pair(*(part if constant(part) == 0 else typed(part) for part in parts(node)))
        known = any(isinstance(part, ast.Subscript | ast.Call) for part in ast.walk(node))
        return node if known else _cast(program, node, part_type(value.dtype))

    if isinstance(value, Scalar):
        return Scalar(typed(value.node), value.dtype)
    return replace(value, element=lambda index: typed(value.element(index)))


def _common_mask(program: Program, arrays: Sequence[Array]) -> Array | None:
    """The mask of the arrays that have one. Raises NotAffine for two masks."""
    masks = {mask_text(program, array): array.mask for array in arrays}
    if len(masks) > 1:
        if "" in masks and len(masks) == 2 and all(a.mask or not a.rank for a in arrays):
            masks.pop("")
        else:
            program.refuse("arrays of elements that different masks select", "one mask in an expression")
    return next(iter(masks.values()))


def mask_text(program: Program, array: Array) -> str:
    """A mask as text, which is equal for equal masks; empty without one."""
    if array.mask is None:
        return ""
    _, index = program.loops("i", array.mask.shape)
    return ast.unparse(array.mask.element(index))


def _unlike(own: Sequence[ast.expr], wanted: Sequence[ast.expr]) -> str:
    return f"an array of shape {shape_text(own)} is not known to broadcast to {shape_text(wanted)}"

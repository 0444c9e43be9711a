"""Values of operators: -x, x + y, of numbers and of arrays, with NumPy's types."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

import numpy as np

from polyfuse.frontend.python.numpy import complex_numbers
from polyfuse.frontend.python.numpy.broadcasting import converted, elementwise, in_parts
from polyfuse.frontend.python.numpy.complex_numbers import applied
from polyfuse.frontend.python.numpy.expressions.constants import known_integer
from polyfuse.frontend.python.numpy.expressions.evaluator import ALLOWED, Evaluator, rebuilt
from polyfuse.frontend.python.numpy.expressions.lists import number_or_array
from polyfuse.frontend.python.numpy.syntax import number, placed
from polyfuse.frontend.python.numpy.values import (
    BOOL,
    Array,
    Scalar,
    Static,
    Value,
    as_number,
    as_test,
    common_type,
)
from polyfuse.ir.expression import OPERATORS
from polyfuse.ir.number_types import NUMBER_TYPES, is_complex, is_integer, is_number, is_real

COMPLEX_OPERATIONS = (
    "+ - * / == !=, ** of constant integers, np.exp abs conj real imag sum mean matmul einsum"
)


def operands(e: Evaluator, nodes: Sequence[ast.expr]) -> list[Scalar | Array] | None:
    """The operands of an operation; None if one of them has no elements."""
    values = [e.value(node) for node in nodes]
    if any(isinstance(value, Static) for value in values):
        return None
    if any(isinstance(value, tuple) for value in values) and not any(isinstance(v, Array) for v in values):
        return None
    return [number_or_array(e, node, value) for node, value in zip(nodes, values, strict=True)]


def unary(e: Evaluator, node: ast.UnaryOp) -> Value:
    """-x, +x, not x, ~x."""
    values = operands(e, [node.operand])
    if values is None:
        known = e.value(node.operand)
        if isinstance(node.op, ast.Not) and isinstance(known, Static):
            return Static(not known.value)
        e.refuse(node, f"{ast.unparse(node)} is no number", ALLOWED)
    value = values[0]
    if is_complex(value.dtype) and isinstance(node.op, ast.USub | ast.UAdd):
        return elementwise(
            e.program,
            complex_numbers.minus if isinstance(node.op, ast.USub) else lambda a: a,
            value.dtype,
            values,
        )
    if isinstance(node.op, ast.Invert) and value.dtype != BOOL:
        return inverted(e, node, value)
    if isinstance(node.op, ast.USub) and value.dtype == BOOL:
        e.refuse(node, f"{ast.unparse(node)} of conditions", "~")
    if isinstance(node.op, ast.USub) and is_integer(value.dtype) and value.dtype != "integer":
        # the sign of a term is read as a difference, which has the type of both operands: -x has that of x
        return operation(e, node, ast.Sub(), [Scalar(number(0), "integer"), value])
    if isinstance(value, Scalar):
        dtype = BOOL if isinstance(node.op, ast.Not | ast.Invert) else value.dtype
        if isinstance(node.op, ast.Invert):
            return Scalar(ast.copy_location(ast.UnaryOp(ast.Not(), value.node), node), BOOL)
        return Scalar(rebuilt(node, operand=as_condition(value)), dtype)
    if isinstance(node.op, ast.Invert | ast.Not):
        if value.dtype != BOOL or isinstance(node.op, ast.Not):
            e.refuse(node, f"{ast.unparse(node)} of an array", "~ of a condition")
        return elementwise(e.program, lambda a: ast.UnaryOp(ast.Not(), a), BOOL, values)
    dtype = value.dtype
    return elementwise(
        e.program, lambda a: ast.UnaryOp(node.op, as_number(a, dtype)), common_type([dtype]), values
    )


def inverted(e: Evaluator, node: ast.expr, value: Scalar | Array) -> Scalar | Array:
    """~x of integers: -1 - x, or the largest number less x where none is negative."""
    refuse_fractions(e, node, [value.dtype])
    known = NUMBER_TYPES[value.dtype]
    ones = Scalar(number(-1 if known.signed else known.largest), "integer")
    return operation(e, node, ast.Sub(), [ones, value])


def binary(e: Evaluator, node: ast.BinOp) -> Value:
    """x op y."""
    values = operands(e, [node.left, node.right])
    if values is None:
        left, right = e.value(node.left), e.value(node.right)
        if isinstance(left, tuple) and isinstance(right, tuple) and isinstance(node.op, ast.Add):
            return (*left, *right)
        count = _times(e, left, right) if isinstance(node.op, ast.Mult) else None
        if count is not None:
            return count
        e.refuse(node, f"{ast.unparse(node)} is no operation on numbers", ALLOWED)
    return operation(e, node, node.op, values)


def _times(e: Evaluator, left: Value, right: Value) -> Value | None:
    """(a, b) * 2 of a tuple and a known integer; None for others."""
    given, number_ = (left, right) if isinstance(left, tuple) else (right, left)
    count = known_integer(e, number_.node) if isinstance(number_, Scalar) else None
    return given * count if isinstance(given, tuple) and count is not None else None


def operation(e: Evaluator, node: ast.expr, op: ast.operator, values: list[Scalar | Array]) -> Scalar | Array:
    """An operator of two values."""
    types = [value.dtype for value in values]
    if any(map(is_complex, types)) and isinstance(op, ast.Pow):
        call = e.calls(np.power)
        assert call is not None, "power is one of the calls"
        made = call(e, node, list(values), {}, None)  # type: ignore[arg-type]  # for messages only
        assert isinstance(made, Array | Scalar), "a power is a number"
        return made
    if any(map(is_complex, types)):
        return of_complex(
            e, node, common_type(types), lambda kinds: lambda a, b: applied(op, a, b, kinds), values
        )
    logical = {ast.BitAnd: ast.And, ast.BitOr: ast.Or, ast.Mult: ast.And, ast.Add: ast.Or}
    if type(op) in logical and types == [BOOL, BOOL]:
        join = logical[type(op)]()
        return elementwise(e.program, lambda a, b: ast.BoolOp(join, [a, b]), BOOL, values)
    if isinstance(op, ast.BitXor) and types == [BOOL, BOOL]:
        return compared(e, ast.NotEq(), values, node)
    if (
        isinstance(op, ast.Pow | ast.LShift | ast.RShift)
        and types[0] == BOOL
        and types[1] in (BOOL, "integer")
    ):
        small = [
            converted(e.program, value, "int8") if t == BOOL else value
            for value, t in zip(values, types, strict=True)
        ]
        return operation(e, node, op, small)
    if types == [BOOL, BOOL] and not isinstance(op, ast.Div):
        e.refuse(node, f"{ast.unparse(node)}: this operator on conditions", "+ * / & | ^ ~; .astype(np.int8)")
    dtype = common_type(types, divides=isinstance(op, ast.Div))
    if isinstance(op, ast.Pow) and dtype == "integer" and all(isinstance(v, Scalar) for v in values):
        base, exponent = (value.node for value in values if isinstance(value, Scalar))
        whole = known_integer(e, ast.BinOp(base, op, exponent))
        if whole is not None:
            return Scalar(placed(number(whole), node), dtype)
    if isinstance(op, ast.FloorDiv | ast.Mod) and is_real(dtype):
        function = "floor_divide" if isinstance(op, ast.FloorDiv) else "remainder"
        return elementwise(
            e.program,
            lambda a, b: placed(
                e.program.call(function, as_number(a, types[0]), as_number(b, types[1])), node
            ),
            dtype,
            values,
        )
    if type(op) in OPERATORS.values():
        refuse_fractions(e, node, types)
    if BOOL in types and all(known == BOOL or is_number(known) for known in types):
        values = [converted(e.program, v, "int64") if v.dtype == BOOL else v for v in values]
        types = [value.dtype for value in values]
    if all(isinstance(value, Scalar) for value in values):
        left, right = (as_number(value.node, value.dtype) for value in values if isinstance(value, Scalar))
        if isinstance(node, ast.BinOp):
            return Scalar(rebuilt(node, left=left, right=right), dtype)
        return Scalar(ast.copy_location(ast.BinOp(left, op, right), node), dtype)

    def make(a: ast.expr, b: ast.expr) -> ast.expr:
        return ast.BinOp(as_number(a, types[0]), op, as_number(b, types[1]))

    return elementwise(e.program, make, dtype, values)


def compared(e: Evaluator, op: ast.cmpop, values: list[Scalar | Array], node: ast.expr) -> Scalar | Array:
    """One comparison, element by element."""
    types = [value.dtype for value in values]
    if any(map(is_complex, types)):
        return of_complex(
            e, node, BOOL, lambda kinds: lambda a, b: complex_numbers.compared(op, a, b, kinds), values
        )
    return elementwise(
        e.program,
        lambda a, b: ast.Compare(as_number(a, types[0]), [op], [as_number(b, types[1])]),
        BOOL,
        values,
    )


def of_complex(
    e: Evaluator,
    node: ast.expr,
    dtype: str,
    formula: Callable[[list[str]], Callable[..., ast.expr]],
    values: Sequence[Scalar | Array],
) -> Scalar | Array:
    """An operation of which one operand is complex, as a formula on numbers of some types."""
    values = in_parts(e.program, values)
    make = formula([value.dtype for value in values])
    index = tuple(number(0) for _ in range(max(v.rank if isinstance(v, Array) else 0 for v in values)))
    try:
        make(*(v.node if isinstance(v, Scalar) else v.element(index[: v.rank]) for v in values))
    except ValueError as error:
        e.refuse(node, f"{ast.unparse(node)}: {error}", f"{COMPLEX_OPERATIONS} of complex numbers")
    return elementwise(e.program, make, dtype, values)


def refuse_fractions(e: Evaluator, node: ast.expr, types: Sequence[str]) -> None:
    """Refuse an operation of integers on other numbers."""
    other = next((t for t in [*types, common_type(types)] if is_real(t)), None)
    if other is not None:
        what = "fractions" if other == "fraction" else f"{other} numbers"
        e.refuse(node, f"{ast.unparse(node)}: an operation of integers on {what}", "np.floor, or integers")


def as_condition(value: Scalar) -> ast.expr:
    """A number as a condition: a complex one is true if it is not 0."""
    return as_test(value.node, value.dtype) if is_complex(value.dtype) else value.node

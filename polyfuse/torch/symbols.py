"""The values that torch's symbols have in a call, and what expressions in them are."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import sympy
import torch

from polyfuse.frontend.torch.aten.registry import ReadSize, expression_size, number_of
from polyfuse.nn.sizes import Size

Values = Mapping[sympy.Symbol, Any]


def values_of(metas: Iterable[Any], args: Iterable[Any]) -> Values:
    """Return the values of the symbols that an argument, or an axis of one, is by itself.

    Args:
        metas: What is known of the arguments of a graph: tensors and sizes, symbolic ones among them.
        args: The arguments of a call.

    Returns:
        Values by symbol.
    """
    return {
        size.node.expr: value
        for meta, arg in zip(metas, args, strict=True)
        for size, value in _pairs(meta, arg)
        if isinstance(size, torch.SymInt) and isinstance(size.node.expr, sympy.Symbol)
    }


def _pairs(meta: Any, arg: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(meta, torch.Tensor):
        yield from zip(meta.shape, arg.shape, strict=True)
    else:
        yield meta, arg


def number(size: Any, values: Values) -> int:
    """Return a size as a number.

    Args:
        size: A number, or a symbolic size.
        values: The values of its symbols.

    Returns:
        The number.
    """
    return int(_replaced(size, values)) if isinstance(size, torch.SymInt) else int(size)


def _replaced(size: torch.SymInt, values: Values) -> sympy.Expr:
    return size.node.expr.xreplace({symbol: sympy.Integer(n) for symbol, n in values.items()})


def reader(fixed: Values) -> ReadSize:
    """Return a function that reads sizes, with numbers in place of some symbols."""

    def read(size: Any) -> Size:
        if not isinstance(size, torch.SymInt):
            return int(size)
        expression = _replaced(size, fixed)
        return int(expression) if expression.is_Integer else expression_size(str(expression), {})

    return read


def last_axes(metas: Iterable[Any]) -> Values:
    """Return the symbols that are the last axis of a tensor, with the values they had when the graph was made.

    These are features in most models. `dynamic=True` makes symbols of them too, and torch does not relate them to the
    weights of operators that it keeps whole.
    """
    ends = (meta.shape[-1] for meta in metas if isinstance(meta, torch.Tensor) and meta.ndim > 1)
    return {
        size.node.expr: number_of(size)
        for size in ends
        if isinstance(size, torch.SymInt) and isinstance(size.node.expr, sympy.Symbol)
    }


def extent_in(size: int | str, sizes: Mapping[str, Any]) -> Any:
    """Return a tensor's extent at sizes that may be symbols of torch's; a negative one is 0.

    Args:
        size: The extent: a number, or affine in sizes, such as "floor((N)/2) + 1".
        sizes: The sizes by name.

    Returns:
        A number, or a symbol of torch's.
    """
    if isinstance(size, int):
        return size
    if size in sizes:
        return sizes[size]
    found = _evaluated(ast.parse(size, mode="eval").body, sizes)
    return torch.sym_max(found, 0) if isinstance(found, torch.SymInt) else max(found, 0)


def _evaluated(node: ast.expr, sizes: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return sizes[name]
        case ast.UnaryOp(operand=inner):
            return -_evaluated(inner, sizes)
        case ast.Call(args=[ast.BinOp(left=left, right=right)]):  # floor(left / right)
            return _evaluated(left, sizes) // _evaluated(right, sizes)
        case ast.BinOp(left=left, op=operation, right=right):
            a, b = _evaluated(left, sizes), _evaluated(right, sizes)
            return (
                a * b
                if isinstance(operation, ast.Mult)
                else a - b
                if isinstance(operation, ast.Sub)
                else a + b
            )
    raise AssertionError(f"{ast.unparse(node)} is part of no extent")

"""A microkernel's loops as one line of source: tile_mac(…)."""

from __future__ import annotations

import ast

from polyfuse.codegen.index import binary, plus
from polyfuse.codegen.looptree import Element, For, Store


def tile_product(top: For) -> ast.expr | None:
    """The call for the loops steps, rows and columns around a store; None if rows or columns are not constant here.

    for k: for r: for c: y[r, c] += x[8*i + r, k] * w[k, 32*j + c]
    ->  tile_mac(8, 32, y, (0, 0), 0, x, (8 * i, 0), 0, 1, w, (0, 32 * j), 0, n)
    """
    inner, innermost, store = _nest(top)
    last = len(store.target.subscripts) - 1
    columns, rows = (inner, innermost) if _axis(store.target, inner.variable) == last else (innermost, inner)
    left, right = store.reads if _axis(store.reads[0], columns.variable) is None else reversed(store.reads)
    sizes = _size(rows), _size(columns)
    if None in sizes:
        return None
    first = {loop.variable: loop.low for loop in (top, rows, columns)}
    arguments: list[ast.expr] = [
        *(ast.Constant(size) for size in sizes),
        ast.Name(store.target.array),
        _corner(store.target, first),
        ast.Constant(_axis(store.target, rows.variable)),
        ast.Name(left.array),
        _corner(left, first),
        ast.Constant(_axis(left, rows.variable)),
        ast.Constant(_axis(left, top.variable)),
        ast.Name(right.array),
        _corner(right, first),
        ast.Constant(_axis(right, top.variable)),
        binary(ast.Sub(), top.high, top.low),
    ]
    return ast.Call(ast.Name("tile_mac"), arguments, [])


def _size(loop: For) -> int | None:
    extent = binary(ast.Sub(), loop.high, loop.low)
    return extent.value if isinstance(extent, ast.Constant) and isinstance(extent.value, int) else None


def _nest(top: For) -> tuple[For, For, Store]:
    inner = top.body
    assert isinstance(inner, For), "the verb checked that three loops are perfectly nested"
    innermost = inner.body
    assert isinstance(innermost, For), "the verb checked that three loops are perfectly nested"
    store = innermost.body
    assert isinstance(store, Store), "the verb checked that they hold one statement"
    return inner, innermost, store


def _axis(element: Element, variable: str) -> int | None:
    """The subscript that a loop variable is part of."""
    found = [
        position
        for position, subscript in enumerate(element.subscripts)
        if any(isinstance(node, ast.Name) and node.id == variable for node in ast.walk(subscript))
    ]
    return found[0] if found else None


def _corner(element: Element, first: dict[str, ast.expr]) -> ast.expr:
    """The subscripts where the loops begin, as a tuple."""
    return ast.Tuple([_substituted(subscript, first) for subscript in element.subscripts])


def _substituted(node: ast.expr, values: dict[str, ast.expr]) -> ast.expr:
    """An index expression with variables replaced, constants folded."""
    match node:
        case ast.Name(id=name):
            return values.get(name, node)
        case ast.BinOp(left=left, op=op, right=ast.Constant(value=int(amount))) if isinstance(op, ast.Add):
            return plus(_substituted(left, values), amount)
        case ast.BinOp(left=left, op=op, right=right):
            return binary(op, _substituted(left, values), _substituted(right, values))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return ast.UnaryOp(ast.USub(), _substituted(operand, values))
        case ast.Call(func=func, args=args):
            return ast.Call(func, [_substituted(arg, values) for arg in args], [])
    return node

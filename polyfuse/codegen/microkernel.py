"""A microkernel's loops as one line of source: tile_mac(…), with the loops themselves for tiles that are not whole."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from polyfuse.codegen.index import binary, is_number, plus
from polyfuse.codegen.looptree import Element, For, Store


@dataclass(frozen=True)
class TileProduct:
    """What `tile_mac` needs to know; `whole` is the condition under which the tile has all its rows and columns."""

    rows: int
    columns: int
    call: ast.expr
    whole: ast.expr | None


def tile_product(top: For, shape: tuple[int, ...]) -> TileProduct:
    """The call for the loops steps, rows and columns around a store into a buffer of this shape.

    for k: for r: for c: y[r, c] += x[8*i + r, k] * w[k, 32*j + c]
    ->  tile_mac(8, 32, y, x, (8 * i, 0), 0, 1, w, (0, 32 * j), 0, n)
    """
    inner, innermost, store = _nest(top)
    rows, columns = shape
    by_name = {inner.variable: inner, innermost.variable: innermost}
    row_name, column_name = (_variable(subscript) for subscript in store.target.subscripts)
    left, right = store.reads if _axis(store.reads[0], column_name) is None else reversed(store.reads)
    first = {top.variable: top.low, row_name: ast.Constant(0), column_name: ast.Constant(0)}
    arguments: list[ast.expr] = [
        ast.Constant(rows),
        ast.Constant(columns),
        ast.Name(store.target.array),
        ast.Name(left.array),
        _corner(left, first),
        ast.Constant(_axis(left, row_name)),
        ast.Constant(_axis(left, top.variable)),
        ast.Name(right.array),
        _corner(right, first),
        ast.Constant(_axis(right, top.variable)),
        binary(ast.Sub(), top.high, top.low),
    ]
    checks = [
        ast.Compare(by_name[name].high, [ast.Eq()], [ast.Constant(size)])
        for name, size in ((row_name, rows), (column_name, columns))
        if not is_number(by_name[name].high, size)
    ]
    whole = None if not checks else checks[0] if len(checks) == 1 else ast.BoolOp(ast.And(), list(checks))
    return TileProduct(rows, columns, ast.Call(ast.Name("tile_mac"), arguments, []), whole)


def product_target(top: For) -> str:
    """The buffer that a microkernel's loops add to."""
    return _nest(top)[2].target.array


def _nest(top: For) -> tuple[For, For, Store]:
    inner = top.body
    assert isinstance(inner, For), "the verb checked that three loops are perfectly nested"
    innermost = inner.body
    assert isinstance(innermost, For), "the verb checked that three loops are perfectly nested"
    store = innermost.body
    assert isinstance(store, Store), "the verb checked that they hold one statement"
    return inner, innermost, store


def _variable(subscript: ast.expr) -> str:
    assert isinstance(subscript, ast.Name), "a buffer's subscripts are the loops inside its tile"
    return subscript.id


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

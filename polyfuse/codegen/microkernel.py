"""A microkernel's loops as one line of source: tile_mac(…)."""

from __future__ import annotations

import ast

from polyfuse.codegen.index import binary, is_number, plus
from polyfuse.codegen.looptree import Element, For, Store
from polyfuse.schedule.microkernel import padded


def tile_product(top: For) -> ast.expr | None:
    """The call for the loops steps, rows and columns around a store; None if no number bounds rows or columns.

    for k: for r: for c: y[r, c] += a[r, k] * b[k, c]   ->   for r < 8, c < 32 in all:

    x[8*i + r, k] * w[k, 32*j + c]   ->   tile_mac(8, 32, y, (0, 0), 0, x, (8 * i, 0), 0, 1, w, (0, 32 * j), 0, n)
    where r < min(8, m - 8*i)        ->   tile_mac_cut(8, 32, min(8, m - 8 * i), 32, y, (0, 0), …)
    """
    inner, innermost, store = _nest(top)
    last = len(store.target.subscripts) - 1
    columns, rows = (inner, innermost) if _axis(store.target, inner.variable) == last else (innermost, inner)
    left, right = store.reads if _axis(store.reads[0], columns.variable) is None else reversed(store.reads)
    most_rows, most_columns = _most(rows), _most(columns)
    if (
        most_rows is None
        or most_columns is None
        or _depends(rows, columns, top)
        or _depends(columns, rows, top)
    ):
        return None
    width = padded(most_columns, int(store.target.dtype.removeprefix("float")) // 8)
    first = {loop.variable: loop.low for loop in (top, rows, columns)}
    here = [binary(ast.Sub(), loop.high, loop.low) for loop in (rows, columns)]
    whole = is_number(here[0], most_rows) and is_number(here[1], width)
    arguments: list[ast.expr] = [
        ast.Constant(most_rows),
        ast.Constant(width),
        *([] if whole else here),
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
    return ast.Call(ast.Name("tile_mac" if whole else "tile_mac_cut"), arguments, [])


def _most(loop: For) -> int | None:
    """How many values a loop has at most, if numbers bound it: 8 for 0 … 8 and for max(0, a) … min(8, b)."""
    low, high = _numbers(loop.low, "max"), _numbers(loop.high, "min")
    return min(high) - max(low) if low and high and min(high) > max(low) else None


def _numbers(bound: ast.expr, of: str) -> list[int]:
    """The numbers of which a bound is the largest or the smallest, with others that are not known."""
    if isinstance(bound, ast.Constant) and isinstance(bound.value, int):
        return [bound.value]
    if isinstance(bound, ast.Call) and isinstance(bound.func, ast.Name) and bound.func.id == of:
        return [number for part in bound.args for number in _numbers(part, of)]
    return []


def _depends(loop: For, *others: For) -> bool:
    """Whether a loop's bounds change with other loops."""
    names = {other.variable for other in others}
    return any(
        isinstance(node, ast.Name) and node.id in names
        for bound in (loop.low, loop.high)
        for node in ast.walk(bound)
    )


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

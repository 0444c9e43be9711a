"""A microkernel's loops as one line of source: tile_mac(…)."""

from __future__ import annotations

import ast

from polyfuse.codegen.index import binary, is_number, mentions, substituted
from polyfuse.codegen.looptree import Element, For, Store
from polyfuse.schedule.microkernel import padded


def tile_product(top: For) -> ast.expr | None:
    """The call for the loops steps, rows and columns around a store; None where they are no whole tile.

    for k: for r: for c: y[r, c] += a[r, k] * b[k, c]   ->   for r < 8, c < 32 in all:

    x[8*i + r, k] * w[k, 32*j + c]   ->   tile_mac(8, 32, y, (0, 0), 0, x, (8 * i, 0), 0, 1, w, (0, 32 * j), 0, n)
    where r < min(8, m - 8*i)        ->   tile_mac_cut(8, 32, min(8, m - 8 * i), 32, y, (0, 0), …)
    """
    found = _nest(top)
    if found is None:
        return None
    inner, innermost, store = found
    across = mentions(store.target.subscripts[-1], inner.variable)
    columns, rows = (inner, innermost) if across else (innermost, inner)
    left, right = store.reads if not _moves(store.reads[0], columns) else reversed(store.reads)
    most_rows, most_columns = _most(rows), _most(columns)
    if (
        most_rows is None
        or most_columns is None
        or _depends(rows, columns, top)
        or _depends(columns, rows, top)
    ):
        return None
    axes = [
        _axis(element, loop)
        for element, loop in (
            (store.target, rows), (left, rows), (left, top), (right, top), (right, columns), (store.target, columns),
        )
    ]  # fmt: skip
    if None in axes:
        return None
    sums_row, left_row, left_step, right_step, *_ = axes
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
        ast.Constant(sums_row),
        ast.Name(left.array),
        _corner(left, first),
        ast.Constant(left_row),
        ast.Constant(left_step),
        ast.Name(right.array),
        _corner(right, first),
        ast.Constant(right_step),
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
    return any(mentions(bound, other.variable) for bound in (loop.low, loop.high) for other in others)


def _nest(top: For) -> tuple[For, For, Store] | None:
    """Two loops and their store inside a loop; None where isl put a condition between them."""
    match top.body:
        case For(body=For(body=Store() as store) as innermost) as inner:
            return inner, innermost, store
    return None


def _axis(element: Element, loop: For) -> int | None:
    """The one subscript that steps with a loop; None if none does, or not one alone.

    (8*i + r) // 16, k, (8*i + r) % 16 steps with r < 8 in the last: eight values from a multiple of 8 on stay in one
    panel of 16.
    """
    moved = [
        position
        for position, subscript in enumerate(element.subscripts)
        if mentions(subscript, loop.variable) and not _stays(subscript, loop)
    ]
    return moved[0] if len(moved) == 1 else None


def _moves(element: Element, loop: For) -> bool:
    return any(mentions(subscript, loop.variable) for subscript in element.subscripts)


def _stays(subscript: ast.expr, loop: For) -> bool:
    """Whether a panel's number, (8*i + r) // 16, is the same for all values of a loop over r."""
    most = _most(loop)
    match subscript:
        case ast.BinOp(
            ast.BinOp(base, ast.Add(), ast.Name(id=name)), ast.FloorDiv(), ast.Constant(int(width))
        ):
            starts = isinstance(loop.low, ast.Constant) and loop.low.value == 0
            whole = most is not None and width % most == 0 and _is_multiple(base, most)
            return name == loop.variable and starts and whole
    return False


def _is_multiple(value: ast.expr, of: int) -> bool:
    """Whether a sum of products of numbers is surely a multiple of a number."""
    match value:
        case ast.Constant(int(number)):
            return number % of == 0
        case ast.BinOp(left, ast.Add() | ast.Sub(), right):
            return _is_multiple(left, of) and _is_multiple(right, of)
        case ast.BinOp(left, ast.Mult(), right):
            return _is_multiple(left, of) or _is_multiple(right, of)
    return False


def _corner(element: Element, first: dict[str, ast.expr]) -> ast.expr:
    """The subscripts where the loops begin, as a tuple."""
    return ast.Tuple([substituted(subscript, first) for subscript in element.subscripts])

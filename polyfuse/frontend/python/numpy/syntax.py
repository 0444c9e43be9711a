"""Build Python's syntax trees: integer arithmetic that stays short, subscripts, loops.

plus(N - 1, 1)   ->   N          minus(2 * i + 3, i)   ->   i + 3
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import TypeVar

Node = TypeVar("Node", bound=ast.AST)

BITS = 64
"""Powers of integers are computed here up to so many bits."""

Linear = Mapping[str, int]
"""Coefficients by variable; the constant's key is ""."""


def number(value: float | bool) -> ast.expr:
    """A literal; a negative one is the negation of a positive one, as in parsed source."""
    if not isinstance(value, bool) and value < 0:
        return ast.UnaryOp(ast.USub(), ast.Constant(-value))
    return ast.Constant(value)


def name(text: str) -> ast.expr:
    """A variable that is read."""
    return ast.Name(text, ast.Load())


def linear(node: ast.expr) -> dict[str, int] | None:
    """The coefficients of an expression of + - and products by constants; None for another expression."""
    match node:
        case ast.Constant(value=bool()):
            return None
        case ast.Constant(value=int() as value):
            return {"": value}
        case ast.Name(id=variable):
            return {variable: 1}
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return _scaled(linear(inner), -1)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
            return _added(linear(left), _scaled(linear(right), 1 if isinstance(node.op, ast.Add) else -1))
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            a, b = linear(left), linear(right)
            if a is None or b is None:
                return None
            if not set(a) - {""}:
                return _scaled(b, a.get("", 0))
            return _scaled(a, b.get("", 0)) if not set(b) - {""} else None
        case ast.BinOp(left=left, op=ast.FloorDiv() | ast.Pow(), right=right):
            a, b = linear(left), linear(right)
            if a is None or b is None or {*a, *b} - {""}:
                return None
            over, by = a.get("", 0), b.get("", 0)
            if isinstance(node.op, ast.FloorDiv):
                return {"": over // by} if by else None
            return {"": over**by} if by >= 0 and over.bit_length() * by <= BITS else None
    return None


def constant(node: ast.expr) -> int | None:
    """The integer that an expression is everywhere; None if it has variables."""
    found = linear(node)
    return None if found is None or any(found[key] for key in found if key) else found.get("", 0)


def plus(left: ast.expr, right: ast.expr) -> ast.expr:
    """The sum of two integers; i - row[j] and row[j] are i."""
    match left:
        case ast.BinOp(left=index, op=ast.Sub(), right=ast.Subscript() as start):
            if ast.unparse(start) == ast.unparse(right):
                return index
    return _simple(ast.BinOp(left, ast.Add(), right), _added(linear(left), linear(right)), left, right, 0)


def data_bounds(extent: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """(start, stop) of a number of elements between two elements of arrays: row[i + 1] - row[i]; None for others."""
    match extent:
        case ast.Subscript(value=ast.Name()):
            return number(0), extent
        case ast.BinOp(left=stop, op=ast.Sub(), right=start):
            if any(isinstance(bound, ast.Subscript) for bound in (start, stop)):
                return start, stop
    return None


def minus(left: ast.expr, right: ast.expr) -> ast.expr:
    """The difference of two integers."""
    found = _added(linear(left), _scaled(linear(right), -1))
    return _simple(ast.BinOp(left, ast.Sub(), right), found, left, right, 0)


def times(left: ast.expr, right: ast.expr) -> ast.expr:
    """The product of two integers."""
    whole = ast.BinOp(left, ast.Mult(), right)
    return _simple(whole, linear(whole), left, right, 1)


def quotient(left: ast.expr, divisor: int) -> ast.expr:
    """The quotient by a positive constant, rounded down."""
    if divisor == 1:
        return left
    value = constant(left)
    return number(value // divisor) if value is not None else ast.BinOp(left, ast.FloorDiv(), number(divisor))


def element(tensor: str, index: Sequence[ast.expr]) -> ast.expr:
    """An element of a tensor, which is read."""
    if not index:
        return name(tensor)
    part = index[0] if len(index) == 1 else ast.Tuple(list(index), ast.Load())
    return ast.Subscript(name(tensor), part, ast.Load())


def stored(target: ast.expr) -> ast.Name | ast.Subscript:
    """The same variable or element as the target of an assignment."""
    if isinstance(target, ast.Name):
        return ast.copy_location(ast.Name(target.id, ast.Store()), target)
    assert isinstance(target, ast.Subscript), "only variables and elements are assigned"
    return ast.copy_location(ast.Subscript(target.value, target.slice, ast.Store()), target)


def loop(variable: str, extent: ast.expr, body: list[ast.stmt], backwards: bool = False) -> ast.For:
    """`for variable in range(extent)`, or from its last value to its first; between bounds that are data from those."""
    bounds = data_bounds(extent)
    if bounds is not None:
        return ast.For(ast.Name(variable, ast.Store()), ast.Call(name("range"), list(bounds), []), body, [])
    args = [minus(extent, number(1)), number(-1), number(-1)] if backwards else [extent]
    return ast.For(ast.Name(variable, ast.Store()), ast.Call(name("range"), args, []), body, [])


def placed(node: Node, where: ast.AST) -> Node:
    """The same tree; its new parts get the place of `where`."""
    for part in ast.walk(node):
        if "lineno" in part._attributes and not hasattr(part, "lineno"):
            ast.copy_location(part, where)
    return node


def _scaled(found: Linear | None, by: int) -> dict[str, int] | None:
    return None if found is None else {key: value * by for key, value in found.items()}


def _added(left: Linear | None, right: Linear | None) -> dict[str, int] | None:
    if left is None or right is None:
        return None
    return {key: left.get(key, 0) + right.get(key, 0) for key in dict.fromkeys((*left, *right))}


def _simple(whole: ast.expr, found: Linear | None, left: ast.expr, right: ast.expr, neutral: int) -> ast.expr:
    """A sum of products, written short; the whole as it stands where it is none."""
    if found is None:
        return left if constant(right) == neutral else whole
    made: ast.expr | None = None
    terms = [(key, value) for key, value in found.items() if value and key]
    terms.sort(key=lambda term: term[1] < 0)  # N - i, not -i + N
    for key, value in terms:
        factor = name(key) if abs(value) == 1 else ast.BinOp(number(abs(value)), ast.Mult(), name(key))
        if made is None:
            made = factor if value > 0 else ast.UnaryOp(ast.USub(), factor)
        else:
            made = ast.BinOp(made, ast.Add() if value > 0 else ast.Sub(), factor)
    rest = found.get("", 0)
    if made is None:
        return number(rest)
    if rest:
        made = ast.BinOp(made, ast.Add() if rest > 0 else ast.Sub(), number(abs(rest)))
    return made


def cut_at(stop: ast.expr, end: ast.expr) -> ast.expr:
    """The end of a slice that may be behind the array's: stop if stop <= end else end."""
    return ast.IfExp(ast.Compare(stop, [ast.LtE()], [end]), stop, end)


def end_of_cut(node: ast.IfExp) -> ast.expr | None:
    """The array's end in a `cut_at`; None for another choice."""
    match node.test:
        case ast.Compare(left=stop, ops=[ast.LtE()], comparators=[end]):
            same = ast.unparse(stop) == ast.unparse(node.body) and ast.unparse(end) == ast.unparse(
                node.orelse
            )
            return end if same else None
    return None

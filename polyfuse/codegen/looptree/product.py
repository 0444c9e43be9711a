"""Recognise the loops of a product in the loop tree, and how its elements move with them."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

from polyfuse.codegen.looptree.index import binary, is_number, mentions, substituted
from polyfuse.codegen.looptree.nodes import Element, For, Node, Store
from polyfuse.ir.number_types import ITEMSIZE


@dataclass(frozen=True)
class ProductLoops:
    """The loops of a product and its elements: target[rows, columns] += left[rows, steps] * right[steps, columns]."""

    steps: tuple[For, ...]
    rows: For
    columns: For
    store: Store
    left: Element
    right: Element

    @property
    def itemsize(self) -> int:
        """Bytes of a number."""
        return ITEMSIZE[self.store.target.dtype]


def tile_of(top: For) -> ProductLoops | None:
    """The loops below one loop and what they are to the store; None if they are not those of a product.

    isl may have put a condition between them, or cut a loop of steps short where another one ends: which loops are
    rows, columns and steps is seen again in what moves with them.
    """
    chain: list[For] = []
    node: Node = top
    while isinstance(node, For):
        chain.append(node)
        node = node.body
    if not isinstance(node, Store) or len(chain) < 3 or any(loop.step != 1 for loop in chain):
        return None
    *steps, inner, innermost = chain
    across = mentions(node.target.subscripts[-1], inner.variable)
    columns, rows = (inner, innermost) if across else (innermost, inner)
    left, right = node.reads if not moves(node.reads[0], columns) else reversed(node.reads)
    of_sums = [moves(node.target, loop) for loop in (*steps, rows, columns)]
    if of_sums != [*(False for _ in steps), True, True] or moves(left, columns) or moves(right, rows):
        return None
    return ProductLoops(tuple(steps), rows, columns, node, left, right)


def from_next_step(node: Node) -> Node:
    """Return a product's loops with the microkernel at the outermost one, where the loop around them has one value.

    for i < 1 (microkernel): for j: for r: for c: y[r, c] += a[i, j, r] * b[i, j, c]   ->   at j

    isl makes no loop of one value. Loops that are not those of a product stay as they are.
    """
    inside: Node = node
    while isinstance(inside, For) and inside.bind is None:
        inside = inside.body
    if not isinstance(node, For) or not isinstance(inside, Store) or moves(inside.target, node):
        return node
    return replace(node, bind="microkernel")


def most_of(loop: For) -> int | None:
    """The largest extent of a loop, if numbers bound it: 8 for 0 … 8 and for max(0, a) … min(8, b)."""
    low, high = numbers_in(loop.low, "max"), numbers_in(loop.high, "min")
    return min(high) - max(low) if low and high and min(high) > max(low) else None


def last_of(count: ast.expr, most: int) -> int:
    """The extent of a loop where it is less than `most`, by the rest of its bound; `most` if it never has.

    0 if that is not known: min(6, 512 - 6*i) is 6 or 512 - 6 * 85 = 2, and min(6, n - 6*i) may be anything.

    >>> [last_of(ast.parse(count, mode="eval").body, 6) for count in ("min(6, 512 - 6*i)", "6", "min(6, n - 6*i)")]
    [2, 6, 0]
    """
    is_min = isinstance(count, ast.Call) and isinstance(count.func, ast.Name) and count.func.id == "min"
    parts = count.args if isinstance(count, ast.Call) and is_min else [count]
    lasts = {_rest(part, most) for part in parts if not is_number(part, most)} - {0}
    found = lasts.pop() if len(lasts) == 1 else None if lasts else most
    return found or 0


def numbers_in(bound: ast.expr, of: str) -> list[int]:
    """The numbers of which a bound is the largest or the smallest, with others that are not known."""
    if isinstance(bound, ast.Constant) and isinstance(bound.value, int):
        return [bound.value]
    if isinstance(bound, ast.Call) and isinstance(bound.func, ast.Name) and bound.func.id == of:
        return [number for part in bound.args for number in numbers_in(part, of)]
    return []


def parts_of(bound: ast.expr, of: str) -> list[ast.expr]:
    """The operands of a bound that is a maximum or a minimum."""
    if isinstance(bound, ast.Call) and isinstance(bound.func, ast.Name) and bound.func.id == of:
        return [part for argument in bound.args for part in parts_of(argument, of)]
    return [bound]


def movement(element: Element, loop: For) -> tuple[int, ...] | None:
    """The stride of a loop along each axis in elements; None if it varies.

    x[c, 2*q + s - 1], loop q   ->   (0, 2)
    """
    found = [growth(subscript, loop) for subscript in element.subscripts]
    known = tuple(number for number in found if number is not None)
    return known if len(known) == len(found) else None


def axis(element: Element, loop: For) -> int | None:
    """The one subscript that steps with a loop, by one element; None if none does, or not one alone."""
    moved = movement(element, loop)
    if not moved or sorted(moved)[:-1] != [0] * (len(moved) - 1) or max(moved) != 1:
        return None
    return moved.index(1)


def growth(subscript: ast.expr, loop: For) -> int | None:
    """By how much a subscript grows with a loop's variable.

    (8*i + r) // 16, k, (8*i + r) % 16 grows with r < 8 in the last: eight values from a multiple of 8 on stay in one
    panel of 16.
    """
    if not mentions(subscript, loop.variable):
        return 0
    match subscript:
        case ast.Name():
            return 1
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _times(growth(operand, loop), -1)
        case ast.BinOp(left, ast.Add(), right):
            return _plus(growth(left, loop), growth(right, loop))
        case ast.BinOp(left, ast.Sub(), right):
            return _plus(growth(left, loop), _times(growth(right, loop), -1))
        case ast.BinOp(ast.Constant(int(number)), ast.Mult(), right):
            return _times(growth(right, loop), number)
        case ast.BinOp(left, ast.Mult(), ast.Constant(int(number))):
            return _times(growth(left, loop), number)
        case ast.BinOp(left, ast.FloorDiv(), ast.Constant(int(width))) if _stays(left, loop, width):
            return 0
        case ast.BinOp(left, ast.Mod(), ast.Constant(int(width))) if _stays(left, loop, width):
            return 1
    return None


def _plus(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _times(a: int | None, number: int) -> int | None:
    return None if a is None else a * number


def _stays(along: ast.expr, loop: For, width: int) -> bool:
    """True if 8*i + r stays in one panel of so many for all values of a loop over r."""
    most = most_of(loop)
    match along:
        case ast.BinOp(base, ast.Add(), ast.Name(id=name)):
            starts = is_number(loop.low, 0)
            whole = most is not None and width % most == 0 and _rest(base, most) == 0
            return name == loop.variable and starts and whole
        case ast.Name(id=name):
            return name == loop.variable and most is not None and most <= width and is_number(loop.low, 0)
    return False


def moves(element: Element, loop: For) -> bool:
    """True if an element changes with a loop."""
    return any(mentions(subscript, loop.variable) for subscript in element.subscripts)


def _rest(value: ast.expr, of: int) -> int | None:
    """The remainder of a sum of products divided by a number, for all values of its variables; None if unknown.

    512 - 6*i by 6   ->   2
    """
    match value:
        case ast.Constant(int(number)):
            return number % of
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return None if (rest := _rest(operand, of)) is None else -rest % of
        case ast.BinOp(left, ast.Add() | ast.Sub() as op, right):
            a, b = _rest(left, of), _rest(right, of)
            return None if a is None or b is None else (a + b if isinstance(op, ast.Add) else a - b) % of
        case ast.BinOp(left, ast.Mult(), right):
            a, b = _rest(left, of), _rest(right, of)
            return 0 if 0 in (a, b) else None if a is None or b is None else a * b % of
    return None


def operands(tile: ProductLoops, first: dict[str, ast.expr]) -> list[ast.expr] | None:
    """The arguments that every operation on a tile gets for its product: sums, left, right, each where the loops begin.

    y, (8 * i, 0), 0, x, (8 * i, 0), 0, 1, w, (0, 0), 0, n: an array, an element, the axes of rows and steps; the number
    of steps. None if an element does not go along one axis with each loop.
    """
    top, rows, columns, sums, left, right = (
        tile.steps[0], tile.rows, tile.columns, tile.store.target, tile.left, tile.right,
    )  # fmt: skip
    moving = (sums, rows), (left, rows), (left, top), (right, top), (right, columns), (sums, columns)
    axes = [axis(element, loop) for element, loop in moving]
    if None in axes:
        return None
    sums_row, left_row, left_step, right_step, *_ = map(ast.Constant, axes)
    return [
        *(ast.Name(sums.array), corner(sums, first), sums_row),
        *(ast.Name(left.array), corner(left, first), left_row, left_step),
        *(ast.Name(right.array), corner(right, first), right_step),
        binary(ast.Sub(), top.high, top.low),
    ]


def corner(element: Element, first: dict[str, ast.expr]) -> ast.Tuple:
    """The subscripts where the loops begin, as a tuple."""
    return ast.Tuple([substituted(subscript, first) for subscript in element.subscripts])

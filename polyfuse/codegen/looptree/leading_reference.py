"""Find the leading references of a loop: the rows that its next iteration reads first, which are worth a prefetch.

    for i: for j: b[i, j] = a[i, j] + a[i + 1, j] + a[i + 2, j]   ->   a[i + 3, j] while row i is computed

The other rows of the next window are those of this one, and in a near cache.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from polyfuse.codegen.looptree.index import mentions, plus, substituted, terms
from polyfuse.codegen.looptree.nodes import Element, For
from polyfuse.codegen.looptree.product import movement


def leading(elements: tuple[Element, ...], outer: For) -> list[Element]:
    """Of elements of one array, one of each row that the next value of a loop reads and this one does not.

    They are given as they are for the next value: x[i, j] and x[i + 1, j] in a loop over i  ->  x[i + 2, j].
    """
    variable, step = outer.variable, outer.step
    found: list[Element] = []
    for element in elements:
        known = any(_follows(other, element, outer) for other in elements)
        if not known and all(_row_apart(element, other) != _still(element) for other in found):
            found.append(element)
    later = {variable: plus(ast.Name(variable), step)}
    return [
        Element(e.array, tuple(substituted(value, later) for value in e.subscripts), e.dtype) for e in found
    ]


def depends_on(element: Element, variables: Iterable[str]) -> bool:
    """True if an element lies elsewhere with another value of one of these."""
    return any(mentions(subscript, name) for subscript in element.subscripts for name in variables)


def _follows(other: Element, element: Element, outer: For) -> bool:
    """True if another element's row is the one in which an element is at the loop's next value."""
    moved = movement(element, outer)
    across = None if moved is None else tuple(by * outer.step for by in moved[:-1])
    return across is not None and any(across) and _row_apart(other, element) == across


def _row_apart(a: Element, b: Element) -> tuple[int | None, ...]:
    """The distance of a's row from b's along each axis but the last; None if it is not constant."""
    return tuple(distance(x, y) for x, y in zip(a.subscripts[:-1], b.subscripts[:-1], strict=True))


def _still(element: Element) -> tuple[int, ...]:
    return (0,) * (len(element.subscripts) - 1)


def distance(a: ast.expr, b: ast.expr) -> int | None:
    """The difference of two indices, if it is constant: i + 2 and i - 1  ->  3."""
    *others, (_, number) = terms(ast.BinOp(a, ast.Sub(), b))
    return None if others else number

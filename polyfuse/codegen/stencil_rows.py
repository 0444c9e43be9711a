"""A vector loop around one statement that reads several elements near its result, as one line of source.

    for k in range(1, n - 1): b[i, k] = 0.5 * (a[i, k - 1] + a[i, k + 1]) + a[i - 1, k]
    ->  k = 1
        row_of_lanes(float64, '0.5 * (r0 + r1) + r2', n - 1 - k, address(b, (i, k)), (address(a, (i, k - 1)), …), ())

Only what reads several elements along the row: it takes longer to load than to store, from caches at least, and LLVM's
loop is as good for the others.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import sympy

from polyfuse.codegen.index import binary
from polyfuse.codegen.looptree import Element, For, Store
from polyfuse.codegen.product_loops import movement
from polyfuse.ir.expression import Dialect, call, to_ast
from polyfuse.ir.scalar import Read

ROW_OPERATIONS = ("row_of_lanes", "address", "beside")

SEVERAL = 3
"""Elements along the row that a statement reads at least."""


class _NotOnLanes(Exception):
    """A body has an operation that `row_of_lanes` does not know, or reads in another way."""


def stencil_row(
    loop: For, place: Callable[[Element], ast.expr], unused: Callable[[str], str]
) -> list[str] | None:
    """The lines for a vector loop; None where it is not of that form, or asks for what comes after it.

    `place` writes an element, `unused` makes a name that stands for nothing else.
    """
    store = loop.body
    if not isinstance(store, Store) or store.op != "=" or loop.step != 1 or loop.ahead:
        return None
    dtype = store.target.dtype
    if dtype not in ("float32", "float64") or any(read.dtype != dtype for read in store.reads):
        return None
    operands = _Operands(loop, store.reads)
    try:
        value = to_ast(store.body, Dialect(operands.leaf, _number, _function))
    except _NotOnLanes:
        return None
    if len(operands.rows) < SEVERAL or not _is_along(store.target, loop):
        return None
    count = binary(ast.Sub(), loop.high, ast.Name(loop.variable))
    first = {
        array: (unused(f"{loop.variable}_{array}"), element)
        for array, element in _first_of_arrays(operands.rows.values()).items()
    }
    rows = [_place(element, first[element.array]) for element in operands.rows.values()]
    most = _most_alike(tuple(operands.rows.values()))
    numbers = [place(element) for element in operands.numbers.values()]
    line = call(
        "row_of_lanes",
        [
            ast.Name(dtype),
            ast.Constant(ast.unparse(value)),
            count,
            _place(most, first[most.array]),
            _address(store.target),
            ast.Tuple(rows),
            ast.Tuple(numbers),
        ],
    )
    at = [f"{name} = {ast.unparse(_address(element))}" for name, element in first.values()]
    return [f"{loop.variable} = {ast.unparse(loop.low)}", *at, ast.unparse(line)]


@dataclass
class _Operands:
    """What a body's leaves are called in a row's expression: r0, r1, … along the row, n0, … the same for all of it."""

    loop: For
    reads: tuple[Element, ...]
    rows: dict[str, Element] = field(default_factory=dict)
    numbers: dict[str, Element] = field(default_factory=dict)

    def leaf(self, symbol: sympy.Symbol) -> ast.expr:
        if not isinstance(symbol, Read):
            raise _NotOnLanes
        element = self.reads[symbol.position]
        if _is_along(element, self.loop):
            known, letter = self.rows, "r"
        elif movement(element, self.loop) == (0,) * len(element.subscripts):
            known, letter = self.numbers, "n"
        else:
            raise _NotOnLanes
        text = f"{element.array}[{', '.join(map(ast.unparse, element.subscripts))}]"
        known.setdefault(text, element)
        return ast.Name(f"{letter}{list(known).index(text)}")


def _is_along(element: Element, loop: For) -> bool:
    """Whether the next value of a loop is the next element in memory."""
    *outer, last = movement(element, loop) or (0,)
    return last == 1 and not any(outer)


def _number(value: float) -> ast.expr:
    if not abs(value) < float("inf"):
        raise _NotOnLanes
    return ast.Constant(float(value))


def _function(name: str, args: list[ast.expr]) -> ast.expr:
    match name, args:
        case "sqrt", _:
            return call("sqrt", args)
        case "pow", [ast.Name() as base, ast.Constant(value=2.0)]:
            return ast.BinOp(base, ast.Mult(), base)
    raise _NotOnLanes


def _address(element: Element) -> ast.expr:
    return call("address", [ast.Name(element.array), ast.Tuple(list(element.subscripts))])


def _most_alike(elements: tuple[Element, ...]) -> Element:
    """One of the most elements of one array in the same column: where rows are whole lines, all of them are aligned."""

    def column(element: Element) -> tuple[str, str]:
        return element.array, ast.unparse(element.subscripts[-1])

    columns = [column(element) for element in elements]
    return max(elements, key=lambda element: columns.count(column(element)))


def _first_of_arrays(elements: Iterable[Element]) -> dict[str, Element]:
    """By array, the element whose address is computed."""
    found: dict[str, Element] = {}
    for element in elements:
        found.setdefault(element.array, element)
    return found


def _place(element: Element, first: tuple[str, Element]) -> ast.expr:
    """An element's address, by its distance from one that is known, if that is a number along each axis."""
    name, other = first
    by = [_distance(a, b) for a, b in zip(element.subscripts, other.subscripts, strict=True)]
    if None in by:
        return _address(element)
    if not any(by):
        return ast.Name(name)
    return call("beside", [ast.Name(name), ast.Name(element.array), ast.Tuple([ast.Constant(d) for d in by])])


def _distance(a: ast.expr, b: ast.expr) -> int | None:
    (one, more), (other, less) = _without_constant(a), _without_constant(b)
    return more - less if one == other else None


def _without_constant(node: ast.expr) -> tuple[str, int]:
    """What an index is beside a number that is added to it: i + 1  ->  "i", 1."""
    match node:
        case ast.BinOp(left, ast.Add(), ast.Constant(value=int(number))):
            return ast.unparse(left), number
        case ast.BinOp(left, ast.Sub(), ast.Constant(value=int(number))):
            return ast.unparse(left), -number
        case ast.Constant(value=int(number)):
            return "", number
    return ast.unparse(node), 0

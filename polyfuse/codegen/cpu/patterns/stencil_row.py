"""A vector loop around one statement that reads several elements near its result, as one line of source.

    for k in range(1, n - 1): b[i, k] = 0.5 * (a[i, k - 1] + a[i, k + 1]) + a[i - 1, k]
    ->  k = 1; k_a = address(a, (i, k - 1))
        row_of_lanes(row, float64, count=n - 1 - k, whole=k_a, targets=(address(b, (i, k)),), rows=(…, k_a), numbers=())

        @VectorRow
        def row(a, a_2):
            return 0.5 * (a_2 + a_2[2]) + a

A loop around such rows takes two of them at a time, where they read the same elements.

A loop that asks for other rows becomes row_of_lanes_ahead, with their addresses behind the numbers.

Only what reads several elements along the row: it takes longer to load than to store, from caches at least, and LLVM's
loop is as good for the others.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

import sympy

from polyfuse.codegen.cpu.intrinsics.extrema import EXTREMA
from polyfuse.codegen.cpu.patterns.calls import named, printed
from polyfuse.codegen.cpu.patterns.vector_rows import Define
from polyfuse.codegen.looptree.body_source import own_name
from polyfuse.codegen.looptree.index import binary, mentions, operand, plus
from polyfuse.codegen.looptree.leading_reference import distance
from polyfuse.codegen.looptree.nodes import Block, Element, For, Store, below
from polyfuse.codegen.looptree.product import most_of, movement
from polyfuse.ir.expression import Dialect, call, to_ast
from polyfuse.ir.number_types import Type
from polyfuse.ir.scalar import Read

ROW_OPERATIONS = ("row_of_lanes", "row_of_lanes_ahead", "address", "beside")

SEVERAL = 3
"""Elements along the row that a statement reads at least, or those of one array that the statements of a loop read."""


NEAR = 8
"""Elements from one that is loaded up to which another is taken from the same vectors; no vector has fewer."""


FUNCTIONS = ("sqrt", "abs")
"""Functions of numbers that lanes have, beside those that all emitted source calls."""


class _NotOnLanes(Exception):
    """A body has an operation that `row_of_lanes` does not know, or reads in another way."""


Lines = Callable[[Element], ast.expr]
"""Writes an element."""

Ahead = tuple[tuple[Element, bool], ...]
"""Elements that a loop asks for, each with whether it will be written."""


def stencil_row(loop: For, place: Lines, unused: Callable[[str], str], define: Define) -> list[str] | None:
    """The lines for a vector loop; None if it is not of that form, or asks for what comes after it.

    `place` writes an element, `unused` makes a name that stands for nothing else, `define` a vector row.
    """
    store = _store_of(loop)
    row = None if store is None else _row(loop, (store,), loop.ahead)
    return None if row is None else row.lines(place, unused, define)


def two_rows(loop: For, place: Lines, unused: Callable[[str], str], define: Define) -> list[str] | None:
    """The lines for a loop around a row, two rows at a time; None if that would not load less.

    for j in range(low, high): row j
    ->  for j in range(low, high, 2): { if j + 1 < high: rows j and j + 1; else: row j }

    Rows of one loop are in any order, and so may go side by side, where nothing that one of them stores is read by
    another or stored twice: each reads no more of its target than the element that it stores, and theirs differ along
    an axis that no row goes along.
    """
    row = loop.body
    if loop.bind is not None or loop.step != 1 or not isinstance(row, For) or row.bind != "vector":
        return None
    first = _store_of(row)
    if first is None or any(mentions(bound, loop.variable) for bound in (row.low, row.high)):
        return None
    own = all(read.array != first.target.array or str(read) == str(first.target) for read in first.reads)
    if not own or not any((movement(first.target, loop) or (0,))[:-1]):
        return None
    second = _next(first, loop)
    if second is None or not _shares(row, first, second):
        return None
    one = _row(row, (first,), row.ahead)
    both = _row(row, (first, second), _behind_two(row.ahead, loop))
    if one is None or both is None:
        return None
    low, high = operand(loop.low), operand(loop.high)
    return [
        f"for {loop.variable} in range({low}, {high}, 2):",
        f"    if {loop.variable} + 1 < {high}:",
        *(f"        {line}" for line in both.lines(place, unused, define)),
        "    else:",
        *(f"        {line}" for line in one.lines(place, unused, define)),
    ]


def _store_of(loop: For) -> Store | None:
    """The statement that a vector loop consists of, if its numbers are of one kind that lanes have."""
    store = loop.body
    if not isinstance(store, Store) or store.op != "=" or loop.step != 1:
        return None
    dtype = store.target.dtype
    known = dtype in ("float32", "float64") and all(read.dtype == dtype for read in store.reads)
    return store if known and _is_along(store.target, loop) else None


def _next(store: Store, loop: For) -> Store | None:
    """A statement's instance at the next value of a loop; None if its elements do not move steadily."""
    moved = [_moved(element, loop) for element in (store.target, *store.reads)]
    if any(element is None for element in moved):
        return None
    target, *reads = (element for element in moved if element is not None)
    return replace(store, target=target, reads=tuple(reads))


def _moved(element: Element, loop: For) -> Element | None:
    by = movement(element, loop)
    if by is None:
        return None
    return replace(element, subscripts=tuple(map(plus, element.subscripts, by)))


def _behind_two(ahead: Ahead, loop: For) -> Ahead:
    """The rows that two rows prefetch together, from those of the first: the second's, and those of the one after."""
    second = tuple((moved, write) for element, write in ahead if (moved := _moved(element, loop)) is not None)
    third = tuple((moved, write) for element, write in second if (moved := _moved(element, loop)) is not None)
    return second + third


def _shares(row: For, first: Store, second: Store) -> bool:
    """True if two rows read the same elements, so that fewer are loaded for both than for each."""
    one, both = (_operands(row, reads) for reads in (first.reads, first.reads + second.reads))
    return one is not None and both is not None and len(both.rows) < 2 * len(one.rows)


def _row(loop: For, stores: tuple[Store, ...], ahead: Ahead) -> _Row | None:
    """A vector loop of statements that do not touch each other's results; None if lanes cannot do it."""
    operands = _operands(loop, tuple(read for store in stores for read in store.reads))
    if operands is None:
        return None
    try:
        values, named = [], iter(operands.named)
        for store in stores:
            names = [next(named) for _ in store.reads]
            cast = partial(_cast, store.target.dtype)
            values.append(to_ast(store.body, Dialect(partial(_leaf, names), _number, _function, cast=cast)))
    except _NotOnLanes:
        return None
    return _Row(loop, stores, ahead, operands, tuple(values))


@dataclass(frozen=True)
class _Row:
    """A vector loop on lanes: what it stores and asks for, what it reads, and the values that it stores."""

    loop: For
    stores: tuple[Store, ...]
    ahead: Ahead
    operands: _Operands
    values: tuple[ast.expr, ...]

    def lines(self, place: Lines, unused: Callable[[str], str], define: Define) -> list[str]:
        """The lines for it."""
        loop, operands = self.loop, self.operands
        first = {
            array: (unused(f"{loop.variable}_{array}"), element)
            for array, element in _first_of_arrays(operands.rows).items()
        }
        to_read, to_write = (
            ast.Tuple([_address(element) for element, write in self.ahead if write == to_write])
            for to_write in (False, True)
        )
        row = define(operands.names, [f"return {', '.join(map(ast.unparse, self.values))}"])
        operation = named(
            "row_of_lanes_ahead" if self.ahead else "row_of_lanes",
            *(ast.Name(row), ast.Name(self.stores[0].target.dtype)),
            count=binary(ast.Sub(), loop.high, ast.Name(loop.variable)),
            whole=_place(operands.whole, first[operands.whole.array]),
            targets=ast.Tuple([_address(store.target) for store in self.stores]),
            rows=ast.Tuple([_place(element, first[element.array]) for element in operands.rows]),
            numbers=ast.Tuple([place(element) for element in operands.numbers]),
            **({"to_read": to_read, "to_write": to_write} if self.ahead else {}),
        )
        at = [f"{name} = {ast.unparse(_address(element))}" for name, element in first.values()]
        return [f"{loop.variable} = {ast.unparse(loop.low)}", *at, *printed(operation)]


def _leaf(names: list[ast.expr], symbol: sympy.Symbol) -> ast.expr:
    if not isinstance(symbol, Read):
        raise _NotOnLanes
    return names[symbol.position]


LONG = 128
"""Elements of a row beside which those at its end, which LLVM runs one at a time, are few."""


def reads_several(loop: For) -> bool:
    """True if a loop over a long row, around statements alone, reads several elements along the row of one array.

    Such a row is read faster than it is computed, wherever it lies in a cache: Harris' products and their sums, a
    tile of rows at a time, took 3.7 ms in vectors of half a register and 2.9 in whole ones (one core of a Xeon).
    """
    most = most_of(loop)
    if most is not None and most < LONG:
        return False
    stores = below(loop.body) if isinstance(loop.body, Block) else (loop.body,)
    along = {
        str(read): read.array
        for store in stores
        if isinstance(store, Store)
        for read in store.reads
        if _is_along(read, loop)
    }
    arrays = list(along.values())
    return all(isinstance(store, Store) for store in stores) and any(
        arrays.count(array) >= SEVERAL for array in arrays
    )


@dataclass(frozen=True)
class _Operands:
    """The names of a body's leaves in a row's expression: a, a[1], a_2, … along the row, w, … the same all along.

    `rows` are the elements along the row, `numbers` the others, and `names` those of both. `whole` is the element whose
    lines the vectors are not to straddle, and `named` has an expression for each leaf.
    """

    rows: tuple[Element, ...]
    numbers: tuple[Element, ...]
    names: tuple[str, ...]
    whole: Element
    named: tuple[ast.expr, ...]


def _operands(loop: For, reads: tuple[Element, ...]) -> _Operands | None:
    """The names of what statements read; None if that is not several elements along the row, and else numbers."""
    along = {str(read): read for read in reads if _is_along(read, loop)}
    still = {str(read): read for read in reads if movement(read, loop) == (0,) * len(read.subscripts)}
    if len(along) < SEVERAL or any(str(read) not in along | still for read in reads):
        return None
    whole = _most_alike(tuple(along.values()))
    rows: list[Element] = []
    for element in sorted(along.values(), key=lambda element: _column(element) != _column(whole)):
        if all(_beside(element, row) is None for row in rows):
            rows.append(element)
    names: list[str] = []
    for element in (*rows, *still.values()):
        names.append(own_name(element, (*names, *FUNCTIONS)))
    named: list[ast.expr] = []
    for read in reads:
        if str(read) in still:
            named.append(ast.Name(names[len(rows) + list(still).index(str(read))]))
            continue
        row, by = next((p, by) for p, row in enumerate(rows) if (by := _beside(read, row)) is not None)
        named.append(ast.Subscript(ast.Name(names[row]), ast.Constant(by)) if by else ast.Name(names[row]))
    return _Operands(tuple(rows), tuple(still.values()), tuple(names), whole, tuple(named))


def _beside(element: Element, row: Element) -> int | None:
    """The distance of an element from another one of its row, if both are in one vector or in neighbouring ones."""
    if element.array != row.array:
        return None
    *across, along = (distance(a, b) for a, b in zip(element.subscripts, row.subscripts, strict=True))
    return None if any(d != 0 for d in across) or along is None or abs(along) >= NEAR else along


def _is_along(element: Element, loop: For) -> bool:
    """True if the next value of a loop is the next element in memory."""
    *outer, last = movement(element, loop) or (0,)
    return last == 1 and not any(outer)


def _number(value: float, _: Type) -> ast.expr:
    if not abs(value) < float("inf"):
        raise _NotOnLanes
    return ast.Constant(float(value))


def _function(name: str, args: list[ast.expr], _: Type) -> ast.expr:
    match name, args:
        case name, _ if name in FUNCTIONS:
            return call(name, args)
        case "max" | "min", _:
            return call(EXTREMA[name], args)
        case "pow", [ast.Name() as base, ast.Constant(value=2.0)]:
            return ast.BinOp(base, ast.Mult(), base)
    raise _NotOnLanes


def _cast(held: Type, value: ast.expr, _: Type, wanted: Type) -> ast.expr:
    """A number of the type that lanes hold as that type: itself. Rounded to another it is none of theirs."""
    if wanted != held:
        raise _NotOnLanes
    return value


def _address(element: Element) -> ast.expr:
    return call("address", [ast.Name(element.array), ast.Tuple(list(element.subscripts))])


def _most_alike(elements: tuple[Element, ...]) -> Element:
    """One of the most elements of one array in the same column: where rows are whole lines, all of them are aligned."""
    columns = [_column(element) for element in elements]
    return max(elements, key=lambda element: columns.count(_column(element)))


def _column(element: Element) -> tuple[str, str]:
    return element.array, ast.unparse(element.subscripts[-1])


def _first_of_arrays(elements: Iterable[Element]) -> dict[str, Element]:
    """By array, the element whose address is computed."""
    found: dict[str, Element] = {}
    for element in elements:
        found.setdefault(element.array, element)
    return found


def _place(element: Element, first: tuple[str, Element]) -> ast.expr:
    """An element's address, by its distance from one that is known, if that is a number along each axis."""
    name, other = first
    by = [distance(a, b) for a, b in zip(element.subscripts, other.subscripts, strict=True)]
    if None in by:
        return _address(element)
    if not any(by):
        return ast.Name(name)
    return call("beside", [ast.Name(name), ast.Name(element.array), ast.Tuple([ast.Constant(d) for d in by])])

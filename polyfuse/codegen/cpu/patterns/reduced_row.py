"""Turn a short row that a few steps reduce into one operation, which keeps the row in registers.

    for m < 3: for n < 3: for l < 15: y[l] = max(y[l], a[2*k + m, 2*l + n])   ->   reduced_row(row, float32, …)

Pooling is such a row, of maxima or sums over a window. LLVM writes the few values of its loop out as scalars where they
take every second element, and otherwise loads and stores the row in each step. Pooling of 64 channels, µs before and
so: maxima of 3 x 3 with stride 2 to 15 x 15 40 and 15, to 16 x 16 with a border 59 and 6, of 2 x 2 19 and 3, means of 2
x 2 18 and 5; of 32 channels of 28 x 28 with a border and stride 1 67 and 25 (one Zen 5 core).

At a border a step may change a part of the row: its bounds are numbers once those of the window's loops are. A row of
less than a vector is stored in parts, which the load of its next steps would wait for: means of 3 x 3 in rows of 14
took 33 µs so, and 13 as loops.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from polyfuse.codegen.cpu.intrinsics.extrema import EXTREMA
from polyfuse.codegen.cpu.intrinsics.microkernels.tile_mac import VECTOR_BYTES
from polyfuse.codegen.cpu.intrinsics.vector_expression import are_on_vectors
from polyfuse.codegen.cpu.patterns.calls import named
from polyfuse.codegen.cpu.patterns.vector_rows import Define, assigned, in_whole_vectors, stored
from polyfuse.codegen.looptree.body_source import Values, own_name
from polyfuse.codegen.looptree.gather_rows import is_chosen
from polyfuse.codegen.looptree.index import substituted
from polyfuse.codegen.looptree.nodes import Element, For, Node, Store
from polyfuse.codegen.looptree.product import corner, movement, moves
from polyfuse.ir.expression import call
from polyfuse.ir.number_types import ITEMSIZE

LEAST = 4
"""Results of a row: vectors of fewer are no gain."""

MOST, WRITTEN_OUT = 8, 128
"""Vectors of a row, and vectors in all steps, that are written one behind the other."""

APART = 4
"""Elements from one result's to the next one's, at most: of as many vectors one is made."""

OPERATIONS = ("+=", "max=", "min=")

At = Mapping[str, ast.expr]


@dataclass(frozen=True)
class _Step:
    """The values of the loops over steps, and the part of the row that changes there."""

    at: At
    low: int
    high: int


def reduced_row_call(loop: For, around: Sequence[For], define: Define) -> ast.Call | None:
    """The call for loops over steps and along a row around one reduction; None if they are not of that form.

    The row goes along memory and stays where it is in all steps; it is read by nothing but its own reduction. What else
    a step reads goes along memory, too, every element or every second to fourth one: products are for tiles. No part
    of one vector where the loop `around` comes to the same row again. `define` defines a vector row.
    """
    found = _nested(loop)
    if found is None:
        return None
    loops, row, store = found
    target, dtype = store.target, store.target.dtype
    if dtype not in ("float32", "float64") or store.op not in OPERATIONS or _stride(target, row) != 1:
        return None
    reads = list({str(read): read for read in store.reads}.values())
    if any(read.array == target.array or read.dtype != dtype or is_chosen(read) for read in reads):
        return None
    strides = [_stride(read, row) for read in reads]
    if not reads or not all(1 <= stride <= APART for stride in strides):
        return None
    known = list(_steps(row, loops))
    if len(known) < 2:
        return None
    first, last = min(step.low for step in known), max(step.high for step in known)
    vectors = -(-(last - first) * ITEMSIZE[dtype] // VECTOR_BYTES)
    again = around and not moves(target, around[-1])
    if again and vectors == 1 and not in_whole_vectors((last - first) * ITEMSIZE[dtype]):
        return None
    if last - first < LEAST or vectors > MOST or vectors * len(known) > WRITTEN_OUT:
        return None
    names = {str(target): target.array}
    for read in reads:
        names[str(read)] = own_name(read, names.values())
    lines = [assigned(line) for line in Values(store, lambda one: ast.Name(names[str(one)]), EXTREMA).lines()]
    if not are_on_vectors(ast.parse("\n".join(lines)).body, dict.fromkeys(names.values(), dtype)):
        return None
    function = define([*names.values()], [stored(line, {target.array}) for line in lines])
    begin = {row.variable: ast.Constant(first)}
    return named(
        "reduced_row",
        *(ast.Name(function), ast.Name(dtype)),
        count=ast.Constant(last - first),
        target=_address(target, begin),
        strides=_numbers(strides),
        lows=_numbers(step.low - first for step in known),
        highs=_numbers(step.high - first for step in known),
        places=ast.Tuple(
            [ast.Tuple([_address(read, {**begin, **step.at}) for read in reads]) for step in known]
        ),
    )


def _nested(loop: For) -> tuple[tuple[For, ...], For, Store] | None:
    """The loops over steps, outermost first, that over the row, and the store inside all of them.

    The loop over the row may stand anywhere among them: its values have nothing to do with each other.
    """
    every: list[For] = []
    node: Node = loop
    while isinstance(node, For) and node.bind in (None, "vector") and _is_plain(node):
        every.append(node)
        node = node.body
    if not isinstance(node, Store) or node.indices:
        return None
    rows = [one for one in every if moves(node.target, one)]
    steps = tuple(one for one in every if one not in rows)
    return (steps, rows[0], node) if len(rows) == 1 and steps else None


def _is_plain(loop: For) -> bool:
    return loop.step == 1 and not loop.ahead and not loop.streams


def _steps(row: For, loops: tuple[For, ...]) -> Iterator[_Step]:
    """The steps that change something, in order; none if a bound is no number."""
    ranges = [_range(loop, {}) for loop in loops]
    known = [values for values in ranges if values is not None and len(values) <= WRITTEN_OUT]
    if len(known) < len(loops):
        return
    places: list[At] = [
        {loop.variable: ast.Constant(value) for loop, value in zip(loops, values, strict=True)}
        for values in product(*known)
    ]
    changed = [_range(row, at) for at in places]
    if None not in changed:
        yield from (
            _Step(at, part.start, part.stop) for at, part in zip(places, changed, strict=True) if part
        )


def _range(loop: For, at: At) -> range | None:
    """The values of a loop; None if they are not known."""
    low, high = _number(loop.low, at), _number(loop.high, at)
    return None if low is None or high is None else range(low, high)


def _number(bound: ast.expr, at: At) -> int | None:
    """The value of a bound; None if it is no number for these values."""
    node = substituted(bound, at)
    if any(isinstance(part, ast.Name) and part.id not in ("min", "max") for part in ast.walk(node)):
        return None
    value = eval(ast.unparse(node), {"__builtins__": {}, "min": min, "max": max})
    return value if isinstance(value, int) else None


def _stride(element: Element, row: For) -> int:
    """The elements in memory from one value of a loop to the next; 0 if they are not along the last axis."""
    *outer, last = movement(element, row) or (0,)
    return 0 if any(outer) else last


def _address(element: Element, at: At) -> ast.expr:
    return call("address", [ast.Name(element.array), corner(element, dict(at))])


def _numbers(values: Iterable[int]) -> ast.Tuple:
    return ast.Tuple([ast.Constant(value) for value in values])

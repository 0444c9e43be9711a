"""Turn short vector loops into one operation, of which LLVM would leave all or the end scalar.

    for c in range(0, 32): { z = y[r, c] + b[32*j + c]; out[i, 32*j + c] = max(z, 0) }
    ->  short_row(row, float32, count=32, …)    with    def row(y, b, out): z = y + b; out[:] = larger(z, float32(0.0))

What follows a product runs in such loops, one for each row of a tile. LLVM writes loops of few constant values out
before it looks for vectors, and then finds none: the arrays might overlap, as far as it can see. The 8 x 32 sums of a
tile with bias and ReLU are 256 scalar loads, additions, comparisons and stores then, about one element a cycle, beside
2048 cycles for 256 steps: 64 x 256 x 256 took 40.3 µs, in whole vectors 35.7, and 35.6 without what follows; 128 x 512
x 512 took 315, 279 and 280 (one Zen 5 core, medians of 61 turns). A loop whose length LLVM does not know has vectors,
and checks for overlaps in each row: 36.3 and 285.

Rows that data name are so, too, in kernels without tiles: 128 rows of 16 numbers took 0.80 µs, in whole vectors 0.25
(one Zen 4 core). And so are rows of a few vectors: LLVM takes four at once, and what is left number by number. Softmax
of 200 rows took, in µs, of 16 numbers 3.7 and 2.2, of 24 5.3 and 3.5, of 37 9.3 and 5.6, of 48 8.1 and 4.0, of 60 7.8
and 7.9 (one Zen 5 core). Up to a dozen numbers LLVM writes out, and takes the same number of several rows at once: of 8
1.1 and 5.0.

The values of a vector loop do not depend on each other, so that a vector of one statement may run before the next one.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from polyfuse.codegen.cpu.intrinsics.extrema import EXTREMA
from polyfuse.codegen.cpu.intrinsics.microkernels.tile_mac import VECTOR_BYTES
from polyfuse.codegen.cpu.intrinsics.vector_expression import are_on_vectors
from polyfuse.codegen.cpu.patterns.calls import named
from polyfuse.codegen.cpu.patterns.vector_rows import Define, assigned, in_whole_vectors, stored
from polyfuse.codegen.looptree.body_source import PRELUDE, Values, own_name
from polyfuse.codegen.looptree.index import binary
from polyfuse.codegen.looptree.nodes import Block, Element, For, Node, Store, stores_in
from polyfuse.codegen.looptree.product import corner, movement, moves
from polyfuse.ir.expression import call
from polyfuse.ir.number_types import ITEMSIZE
from polyfuse.ir.scalar import Read

LEAST = 4
"""Numbers of a row: vectors of fewer are no gain."""

MOST = 8
"""Vectors of a row, one written behind the other: beside longer rows the checks of LLVM's own loops are little."""

LEAST_ALONE, MOST_ALONE = 13, 4
"""Numbers, and vectors, of a row of a kernel that has neither tiles nor rows that data name."""

OPERATIONS = ("=", "+=", "max=", "min=")
"""What a row does with its elements. Rows of other sums are one place, and not along memory."""


def short_row_call(
    loop: For, kernel: Node, place: Callable[[Element], ast.expr], define: Define, alone: bool = False
) -> ast.Call | None:
    """The call for a vector loop of so few values around assignments; None if it is not of that form.

    Each assignment, or addition, goes along memory, or to a variable of `kernel` that only these statements use, and
    reads what goes along memory, what stays in place, and such variables. `place` writes an element, `define` a vector
    row. `alone`: the kernel has neither tiles nor rows that data name.
    """
    stores, count = _assignments(loop), _count(loop)
    dtype = stores[0].target.dtype if stores else ""
    if count is None or dtype not in ("float32", "float64"):
        return None
    least, most = (LEAST_ALONE, MOST_ALONE) if alone else (LEAST, MOST)
    if not least <= count <= most * VECTOR_BYTES // ITEMSIZE[dtype]:
        return None
    if any(store.op != "=" for store in stores) and not in_whole_vectors(count * ITEMSIZE[dtype]):
        return None
    elements = {str(one): one for store in stores for one in (*store.reads, store.target)}
    variables = {store.target.array for store in stores if not store.target.subscripts}
    along = {text: one for text, one in elements.items() if _is_along(one, loop)}
    held = {text: one for text, one in elements.items() if one.array in variables}
    still = {text: one for text, one in elements.items() if text not in along | held}
    if alone and (
        _adds_up(kernel) & {one.array for one in along.values()}
        or all(isinstance(store.body, Read) for store in stores)  # LLVM has copies of its own
    ):
        return None
    written = {store.target.array for store in stores}
    if any(one.array in written or moves(one, loop) for one in still.values()):
        return None
    if any(one.dtype != dtype for one in elements.values()) or any(store.indices for store in stores):
        return None
    if not _are_own(variables, stores, kernel) or any(PRELUDE.fullmatch(name) for name in variables):
        return None
    names = {text: one.array for text, one in held.items()}
    for text, one in (along | still).items():
        names[text] = own_name(one, names.values())
    lines = [
        assigned(line)
        for store in stores
        for line in Values(store, lambda one: ast.Name(names[str(one)]), EXTREMA).lines()
    ]
    if not are_on_vectors(ast.parse("\n".join(lines)).body, dict.fromkeys(names.values(), dtype)):
        return None
    in_memory = {names[text] for text in along}
    row = define([names[text] for text in (*along, *still)], [stored(line, in_memory) for line in lines])
    first = {loop.variable: loop.low}
    places = [call("address", [ast.Name(one.array), corner(one, first)]) for one in along.values()]
    return named(
        "short_row",
        *(ast.Name(row), ast.Name(dtype)),
        count=ast.Constant(count),
        places=ast.Tuple(places),
        numbers=ast.Tuple([place(one) for one in still.values()]),
    )


def _adds_up(kernel: Node) -> set[str]:
    """The arrays whose elements a kernel adds to, or takes extrema in, in place.

    Average pooling of 5 x 5 in rows of 57 took 304 µs with rows that set and divide sums, of which LLVM's loops load
    other parts than these store, and 149 without (one Zen 5 core).
    """
    return {store.target.array for store in stores_in(kernel) if store.op != "=" and store.target.subscripts}


def _assignments(loop: For) -> tuple[Store, ...]:
    """The stores that a loop consists of; none where there is anything else in it, or where it asks for memory."""
    parts = loop.body.parts if isinstance(loop.body, Block) else (loop.body,)
    stores = tuple(part for part in parts if isinstance(part, Store) and part.op in OPERATIONS)
    alone = len(stores) == len(parts) and loop.step == 1 and not loop.ahead and not loop.streams
    return stores if alone else ()


def _count(loop: For) -> int | None:
    """The number of values of a loop, if it is a number."""
    count = binary(ast.Sub(), loop.high, loop.low)
    return count.value if isinstance(count, ast.Constant) and isinstance(count.value, int) else None


def _is_along(element: Element, loop: For) -> bool:
    """True if the next value of a loop is the next element in memory, of a row that is not chosen by data."""
    *outer, last = movement(element, loop) or (0,)
    chosen = any(isinstance(part, ast.Subscript) for index in element.subscripts for part in ast.walk(index))
    return last == 1 and not any(outer) and not chosen


def _are_own(variables: set[str], stores: tuple[Store, ...], kernel: Node) -> bool:
    """True if variables are assigned before they are read, and used by no statement of a kernel but these."""
    known: set[str] = set()
    for store in stores:
        if any(read.array in variables - known for read in store.reads):
            return False
        known.add(store.target.array)
    own = {store.statement for store in stores}
    others = (store for store in stores_in(kernel) if store.statement not in own)
    return not any(one.array in variables for store in others for one in (*store.reads, store.target))

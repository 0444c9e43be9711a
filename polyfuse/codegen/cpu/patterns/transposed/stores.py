"""Let loops over a tile that store across memory fill a buffer first, which is stored transposed.

for r < 14: for c < 32: out[i, c, k, 14*l + r] = e
->  for c < 32: for r < 14: out_tile[r, c] = e;  store_transposed(14, 32, out_tile, out, (i, 0, k, 14*l), 1)

Vectors along r would gather what lies along c, and those along c scatter. 32 images of 16 x 28 x 28 with 32 filters
of 3 x 3, bias and ReLU took 1.24 ms with gathers and take 1.09, one of 64 x 56 x 56 with 64 filters 1.03 and 0.97, with
two threads 0.57 and 0.52 (medians, Zen 5). Columns of one vector are rows (short_rows.py), and r stays outside: LLVM
writes out both loops over 28 x 16 sums, and gathers and scatters. 28 such tiles took 8.7 µs, and 3.6 as rows (one Zen 5
core).
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil

from polyfuse.codegen.cpu.intrinsics.microkernels.tile_mac import VECTOR_BYTES
from polyfuse.codegen.looptree.index import binary, mentions
from polyfuse.codegen.looptree.nodes import Block, Element, For, Guard, Node, Store
from polyfuse.codegen.looptree.product import axis, corner, movement
from polyfuse.ir.expression import call
from polyfuse.ir.number_types import ITEMSIZE

TILE_LIKE, STORE_TRANSPOSED = "tile_like", "store_transposed"

LEAST = 4
"""Rows and columns of a tile: vectors of fewer numbers than these are no gain."""

MOST = 128
"""Vectors of a tile: what two of a product's are at most, with some room, and a small part of L1."""


@dataclass(frozen=True)
class Transposed:
    """Loops that keep their results in a tile, the lines before and after them, and whether a row is one vector."""

    before: str
    loops: For
    after: str
    one_vector: bool

    @property
    def exchanged(self) -> For:
        """The inner loop outside: LLVM writes the other one out, and takes this one on lanes."""
        columns = self.loops.body
        assert isinstance(columns, For), "there are two loops"
        return replace(columns, bind=None, body=replace(self.loops, body=columns.body))


def transposed_store(rows: For, unused: Callable[[str], str]) -> Transposed | None:
    """The loops and lines for two loops, the inner one on vector lanes, whose store is along memory with the outer."""
    found = loops_of(rows)
    if found is None:
        return None
    columns, parts = found
    stores = _independent(rows, columns, parts)
    across = [store for store in stores if lies_across(store.target, rows, columns)]
    size = width_of(rows, columns, across[0].target.dtype) if len(across) == 1 else None
    if size is None:
        return None
    target, (high, wide, width) = across[0].target, size
    name = unused(f"{target.array}_tile")
    here = tuple(binary(ast.Sub(), ast.Name(loop.variable), loop.low) for loop in (rows, columns))
    kept = Element(name, here, target.dtype)
    first = {loop.variable: loop.low for loop in (rows, columns)}
    place = f"{target.array}, {ast.unparse(corner(target, first))}, {column_axis(target, columns)}"
    inner = replace(columns, body=Block(tuple(_in_tile(one, target.array, kept) for one in stores)))
    return Transposed(
        f"{name} = {TILE_LIKE}({target.array}, {high}, {width})",
        replace(rows, body=inner),
        f"{STORE_TRANSPOSED}({high}, {wide}, {name}, {place})",
        width * ITEMSIZE[target.dtype] == VECTOR_BYTES,
    )


def row_by_row(rows: For) -> For | None:
    """The loops exchanged, for stores that all go along memory with the outer one, more than one element further."""
    found = loops_of(rows)
    if found is None:
        return None
    columns, parts = found
    stores = _independent(rows, columns, parts)
    targets = [store.target for store in stores if store.target.subscripts]
    moving = any(mentions(bound, rows.variable) for bound in (columns.low, columns.high))
    if not targets or moving or not all(_lies_apart(target, rows) for target in targets):
        return None
    return replace(columns, bind=None, body=replace(rows, body=columns.body))


def _lies_apart(element: Element, rows: For) -> bool:
    """True if an element goes along memory with the rows, by more than one element."""
    moved = movement(element, rows)
    return moved is not None and not any(moved[:-1]) and moved[-1] > 1


def _in_tile(store: Store, array: str, kept: Element) -> Store:
    """A store with the tile's element for the array's, which memory has only after the loops."""
    write = kept if store.target.array == array else store.target
    return replace(store, target=write, reads=tuple(kept if r.array == array else r for r in store.reads))


def whole_tile(rows: For, unused: Callable[[str], str]) -> Guard | None:
    """Two loops whose store lies across memory, apart where a tile has all of its rows and where it is cut short.

    for r < min(12, n): for c: S   ->   if 12 <= n: for r < 12: for c: S   else: for r < n: for c: S

    None if the store of a whole tile has no such form. Two images of 32 x 64 x 64 by 32 filters of 3 x 3, whose
    lines are five tiles of 12 pixels and one of 4, took 1.9 ms as vectors that scatter (one Zen 5 core).
    """
    match rows.high:
        case ast.Call(ast.Name("min"), [ast.Constant(value=int()) as most, *others]) if others:
            whole = replace(rows, high=most)
            if transposed_store(whole, unused) is None:
                return None
            rest = others[0] if len(others) == 1 else call("min", others)
            return Guard(ast.Compare(most, [ast.LtE()], [rest]), whole, replace(rows, high=rest))
    return None


def _independent(rows: For, columns: For, parts: tuple[Node, ...]) -> tuple[Store, ...]:
    """The stores of a body whose iterations have nothing to do with each other; none if that is not seen.

    What is written is an element of its own in each, read nowhere else; or a variable, written before it is read.
    """
    stores = tuple(part for part in parts if isinstance(part, Store) and part.op == "=")
    written = {store.target.array: store.target for store in stores}
    if len(stores) < len(parts) or len(written) < len(stores):
        return ()
    known: set[str] = set()
    for store in stores:
        own = store.target
        indices = (index for element in (own, *store.reads) for index in element.subscripts)
        chosen = any(
            mentions(index, name) for index in (*indices, *store.indices.values()) for name in written
        )
        read = (one for one in store.reads if one.array in written)
        elsewhere = any(one.array not in known or not _same(one, written[one.array]) for one in read)
        if chosen or elsewhere or (own.subscripts and not _one_each(own, rows, columns)):
            return ()
        known.add(own.array)
    return stores


def _same(one: Element, other: Element) -> bool:
    return list(map(ast.unparse, one.subscripts)) == list(map(ast.unparse, other.subscripts))


def _one_each(element: Element, rows: For, columns: For) -> bool:
    """True if an element goes along one axis with the rows, and along another one with the columns."""
    moved = _moving(element, rows), _moving(element, columns)
    return None not in moved and moved[0] != moved[1]


def _moving(element: Element, loop: For) -> int | None:
    """The one subscript that grows with a loop; None if none does, or not one alone."""
    growing = [at for at, by in enumerate(movement(element, loop) or ()) if by]
    return growing[0] if len(growing) == 1 else None


def loops_of(rows: For) -> tuple[For, tuple[Node, ...]] | None:
    """The loop on vector lanes inside one that is bound to nothing, and what it holds; None for others."""
    columns = rows.body
    if rows.bind is not None or not isinstance(columns, For) or columns.bind != "vector":
        return None
    if any(loop.step != 1 or loop.ahead or loop.streams for loop in (rows, columns)):
        return None
    return columns, columns.body.parts if isinstance(columns.body, Block) else (columns.body,)


def lies_across(element: Element, rows: For, columns: For) -> bool:
    """True if an element goes along memory with the rows, and along another axis with the columns."""
    last = len(element.subscripts) - 1
    if last < 1 or element.dtype not in ("float32", "float64", "int32", "int64"):
        return False
    return _one_each(element, rows, columns) and axis(element, rows) == last


def column_axis(element: Element, columns: For) -> str:
    """The axis that an element goes along with the columns, and by how many elements if not by one, as arguments.

    out[i, c, k, r] -> "1";  out[i, 2*c + 1, k, r] -> "1, 2"
    """
    ((at, by),) = ((at, by) for at, by in enumerate(movement(element, columns) or ()) if by)
    return str(at) if by == 1 else f"{at}, {by}"


def width_of(rows: For, columns: For, dtype: str) -> tuple[int, int, int] | None:
    """A tile's rows and columns, and as many of these as whole vectors have; None for no tile of a few vectors."""
    high, wide = _count(rows), _count(columns)
    if high is None or wide is None:
        return None
    lanes = VECTOR_BYTES // ITEMSIZE[dtype]
    width = ceil(wide / lanes) * lanes
    return None if min(high, wide) < LEAST or high * width > MOST * lanes else (high, wide, width)


def _count(loop: For) -> int | None:
    """The number of values of a loop, if it is a number."""
    count = binary(ast.Sub(), loop.high, loop.low)
    return count.value if isinstance(count, ast.Constant) and isinstance(count.value, int) else None

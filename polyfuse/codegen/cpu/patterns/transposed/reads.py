"""Let loops over a tile that read across memory read a transposed copy of it instead.

    for r < 16: for c < 64: y[16*i + r, 64*j + c] = x[16*i + r, 64*j + c] + z[64*j + c, 16*i + r]
    ->  z_tile = tile_like(z, 16, 64);  load_transposed(16, 64, z_tile, z, (64*j, 16*i), 0)
        for r < 16: for c < 64: y[16*i + r, 64*j + c] = x[16*i + r, 64*j + c] + z_tile[r, c]

Vectors along c would gather from as many lines. What that gains is said in transpose.py.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, replace

from polyfuse.codegen.cpu.patterns.transposed.stores import (
    TILE_LIKE,
    column_axis,
    lies_across,
    loops_of,
    width_of,
)
from polyfuse.codegen.looptree.index import binary, mentions
from polyfuse.codegen.looptree.nodes import Block, Element, For, Store
from polyfuse.codegen.looptree.product import corner

LOAD_TRANSPOSED = "load_transposed"

FLOATS = ("float32", "float64")
"""Numbers of which short rows are whole vectors; of others LLVM finds none in what reads a tile."""


@dataclass(frozen=True)
class Transposed:
    """Loops that read copies, and the lines before them that make these."""

    before: tuple[str, ...]
    loops: For


def transposed_reads(rows: For, unused: Callable[[str], str]) -> Transposed | None:
    """The loops and lines for two loops, the inner one on vector lanes, where reads go along memory with the outer one.

    What the loops write is not read so: it may be an element of another iteration.
    """
    found = loops_of(rows)
    if found is None:
        return None
    columns, parts = found
    stores = tuple(part for part in parts if isinstance(part, Store))
    if len(stores) < len(parts):
        return None
    written = {store.target.array for store in stores}
    across = {
        ast.unparse(ast.Tuple([ast.Name(read.array), *read.subscripts])): read
        for store in stores
        for read in store.reads
        if read.dtype in FLOATS and not _depends(read, written) and lies_across(read, rows, columns)
    }
    copies: dict[str, Element] = {}
    before: list[str] = []
    first = {loop.variable: loop.low for loop in (rows, columns)}
    here = tuple(binary(ast.Sub(), ast.Name(loop.variable), loop.low) for loop in (rows, columns))
    for text, read in across.items():
        size = width_of(rows, columns, read.dtype)
        if size is None:
            continue
        high, wide, width = size
        name = unused(f"{read.array}_tile" if len(across) == 1 else f"{read.array}_tile{len(copies)}")
        copies[text] = Element(name, here, read.dtype)
        place = f"{read.array}, {ast.unparse(corner(read, first))}, {column_axis(read, columns)}"
        before.append(f"{name} = {TILE_LIKE}({read.array}, {high}, {width})")
        before.append(f"{LOAD_TRANSPOSED}({high}, {wide}, {name}, {place})")
    if not copies:
        return None
    body = Block(tuple(replace(store, reads=_instead(store, copies)) for store in stores))
    return Transposed(tuple(before), replace(rows, body=replace(columns, body=body)))


def _depends(read: Element, written: set[str]) -> bool:
    """True if an element is of an array that is written, or chosen by one."""
    return read.array in written or any(mentions(i, name) for i in read.subscripts for name in written)


def _instead(store: Store, copies: dict[str, Element]) -> tuple[Element, ...]:
    """A store's reads, of copies where there are any."""
    texts = (ast.unparse(ast.Tuple([ast.Name(read.array), *read.subscripts])) for read in store.reads)
    return tuple(copies.get(text, read) for text, read in zip(texts, store.reads, strict=True))

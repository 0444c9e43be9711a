"""Copy an array across memory in blocks that transposed reads take, or in strips: the packing of a transposed factor.

    for k < 256: for p < 4: for c < 64: b[p, k, c] = w[64*p + c, k]
    ->  for k_block < 16: for p < 4: for k < 16: for c < 64: b[p, 16*k_block + k, c] = w[64*p + c, 16*k_block + k]

One step of k reads an element of each of w's 256 lines, which lie 1 KiB apart: more than the 32 that L1 has ways for at
such a distance, so that each element came from L2. A block reads whole lines of L1, by whole vectors.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, reduce

from polyfuse.codegen.cpu.intrinsics.microkernels.tile_mac import VECTOR_BYTES
from polyfuse.codegen.cpu.patterns.transposed.reads import transposed_reads
from polyfuse.codegen.cpu.patterns.transposed.stores import lies_across
from polyfuse.codegen.looptree.index import binary, mentions, substituted
from polyfuse.codegen.looptree.nodes import Block, Element, For, Store
from polyfuse.codegen.looptree.product import axis, movement
from polyfuse.ir.number_types import ITEMSIZE


def copy_in_blocks(rows: For, unused: Callable[[str], str]) -> Block | None:
    """The loops of a copy whose outermost one goes along the memory of what is read, in blocks of a vector's lanes.

    Each iteration stores an element of its own, and none reads what is stored, so that any order is right. None for
    other loops, and where transposed reads would not take the blocks.
    """
    between, columns, store = _loops(rows)
    if store is None or columns is None or not _in_any_order(store, (rows, *between, columns)):
        return None
    across = [read for read in store.reads if lies_across(read, rows, columns)]
    count: int | None = None
    match rows.low, rows.high:
        case ast.Constant(value=int(low)), ast.Constant(value=int(high)) if across:
            count = high - low
        case ast.Constant(value=int(low)), _ if across:
            pass
        case _:
            return None
    size = VECTOR_BYTES // ITEMSIZE[across[0].dtype]
    if count is not None and count <= size and not between:
        return None
    number = ast.Name(unused(f"{rows.variable}_block"))
    first = binary(ast.Add(), ast.Constant(low), binary(ast.Mult(), ast.Constant(size), number))

    def block(at: ast.expr, steps: int) -> For:
        value = {rows.variable: binary(ast.Add(), at, ast.Name(rows.variable))}
        body = replace(columns, body=_substituted(store, value))
        within = replace(rows, low=ast.Constant(0), high=ast.Constant(steps), body=body)
        return _around(between, within)

    if count is None:
        return _in_blocks_and_rest(rows, number, partial(block, first, size), size, unused)
    whole, rest = divmod(count, size)
    parts: list[For] = []
    if whole:
        parts.append(For(number.id, ast.Constant(0), ast.Constant(whole), 1, None, block(first, size)))
    if rest:
        parts.append(block(ast.Constant(low + whole * size), rest))
    return Block(tuple(parts)) if any(_is_taken(part, unused) for part in parts) else None


def _in_blocks_and_rest(
    rows: For, number: ast.Name, block: Callable[[], For], size: int, unused: Callable[[str], str]
) -> Block | None:
    """Whole blocks of a loop that ends at no number, and its other iterations as they were.

    for k < min(152, K - 152*i): …   ->   for k_block < min(152, K - 152*i) // 16: …;  for k in the rest: …
    """
    count = ast.Call(ast.Name("max"), [ast.Constant(0), binary(ast.Sub(), rows.high, rows.low)], [])
    blocks = binary(ast.FloorDiv(), count, ast.Constant(size))
    whole = For(number.id, ast.Constant(0), blocks, 1, None, block())
    begin = binary(ast.Add(), rows.low, binary(ast.Mult(), ast.Constant(size), blocks))
    return Block((whole, replace(rows, low=begin))) if _is_taken(whole, unused) else None


def copy_in_strips(rows: For, unused: Callable[[str], str]) -> For | None:
    """The loops of a copy with a vector's lanes of columns at a time, where steps inside go along memory.

    for c < 64: for h < 3: for o < 64: b[c, h, o] = f[o, c, h]
    ->  for o_strip < 4: for c < 64: for h < 3: for o < 16: b[c, h, 16*o_strip + o] = f[16*o_strip + o, c, h]

    A strip reads as many lines of memory at a time as L1 has ways for at any distance, each whole before the next.
    """
    between, columns, store = _loops(rows)
    if store is None or columns is None or not _in_any_order(store, (rows, *between, columns)):
        return None
    size = VECTOR_BYTES // ITEMSIZE[store.target.dtype]
    match columns.low, columns.high:
        case ast.Constant(value=0), ast.Constant(value=int(count)) if count > size and count % size == 0:
            pass
        case _:
            return None
    moved = next((one for one in (_inside(read, rows, between, columns) for read in store.reads) if one), ())
    if not moved:
        return None
    number = ast.Name(unused(f"{columns.variable}_strip"))
    first = binary(ast.Mult(), ast.Constant(size), number)
    value = {columns.variable: binary(ast.Add(), first, ast.Name(columns.variable))}
    lanes = replace(columns, high=ast.Constant(size), body=_substituted(store, value))
    outside = [loop for loop in (rows, *between) if loop not in moved]
    strip = For(number.id, ast.Constant(0), ast.Constant(count // size), 1, None, lanes)
    return _around([*outside, strip, *moved], lanes)


def _inside(read: Element, rows: For, between: Sequence[For], columns: For) -> tuple[For, ...]:
    """The loops that go along memory inside one step of the columns; none if no loop goes along the last axis."""
    column = axis(read, columns)
    found = [(loop, movement(read, loop)) for loop in (rows, *between)]
    if column is None or any(by is None for _, by in found):
        return ()
    inside = [(loop, by) for loop, by in found if by and any(by) and not any(by[: column + 1])]
    return tuple(loop for loop, _ in inside) if any(by[-1] for _, by in inside) else ()


def _around(loops: Sequence[For], body: For) -> For:
    """Loops one in another, outermost first, around a loop."""
    return reduce(lambda inner, loop: replace(loop, body=inner), reversed(loops), body)


def _loops(rows: For) -> tuple[tuple[For, ...], For | None, Store | None]:
    """The loops inside one, in order, down to one on vector lanes around a single store, and these."""
    between: list[For] = []
    inner = rows.body
    while isinstance(inner, For) and inner.bind is None:
        between.append(inner)
        inner = inner.body
    if not isinstance(inner, For) or inner.bind != "vector" or rows.bind is not None:
        return (), None, None
    every = (rows, *between, inner)
    if any(loop.step != 1 or loop.ahead or loop.streams for loop in every):
        return (), None, None
    bounds = [bound for loop in every for bound in (loop.low, loop.high)]
    if any(mentions(bound, loop.variable) for bound in bounds for loop in every):
        return (), None, None
    return tuple(between), inner, inner.body if isinstance(inner.body, Store) else None


def _in_any_order(store: Store, loops: Sequence[For]) -> bool:
    """True if each iteration assigns an element of its own, which no other reads."""
    target = store.target
    if store.op != "=" or store.operation is not None:
        return False
    indices = [i for one in (target, *store.reads) for i in one.subscripts] + list(store.indices.values())
    if any(read.array == target.array for read in store.reads) or any(
        mentions(i, target.array) for i in indices
    ):
        return False
    moved = [movement(target, loop) for loop in loops]
    axes = [tuple(axis for axis, by in enumerate(one or ()) if by) for one in moved]
    return all(len(one) == 1 for one in axes) and len(set(axes)) == len(axes)


def _substituted(store: Store, value: dict[str, ast.expr]) -> Store:
    def of(element: Element) -> Element:
        return replace(element, subscripts=tuple(substituted(i, value) for i in element.subscripts))

    return replace(
        store,
        target=of(store.target),
        reads=tuple(map(of, store.reads)),
        indices={name: substituted(i, value) for name, i in store.indices.items()},
    )


def _is_taken(node: For, unused: Callable[[str], str]) -> bool:
    """True if transposed reads take the two innermost loops."""
    while isinstance(node.body, For) and node.body.bind is None:
        node = node.body
    return transposed_reads(node, unused) is not None

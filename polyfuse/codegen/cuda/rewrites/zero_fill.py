"""Zero-fill: partial tiles of products run without branches; copies bring zeros, and all threads multiply.

    if 4 * tx < 375 - 128 * bx: copy_ahead(4, w_shared, 72 * tx, 1, w, 128 * bx + 4 * tx)
    if tx < 375 - 16 * bx: tile_fma(8, 8, 16, y_sum, …, w_shared, 4 * tx, …)
    if tx < 375 - 16 * bx: y[…] = y_sum[…]
    ->  pad_ahead(4, w_shared, 72 * tx, 1, w, 128 * bx + 4 * tx, 4 * tx < 375 - 128 * bx)
        tile_fma(8, 8, 16, y_sum, …, w_shared, 4 * tx, …)
        if tx < 375 - 16 * bx: y[…] = y_sum[…]

A block at the border has threads that copy nothing and threads that have no results. Only kernels of which the first
block runs all that any block runs are changed, and places in which a block's number does not matter: a copy that brings
zeros has a place of its own then, and its time, as in the first block, where storage and barriers were proven. What a
thread multiplies for nothing goes to results of its own that nobody reads: whoever does reads them under conditions
from which the product's follow. Guards are branches, which copies that are begun among multiply-adds do not cross
(interleave_copies.py).
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace

from polyfuse.codegen.cuda.device_calls import runs_often
from polyfuse.codegen.cuda.proofs.implied_conditions import implies
from polyfuse.codegen.cuda.rewrites.eliminate_guards import Ranges, bounded, count_of, holds, whole
from polyfuse.codegen.looptree.guards import all_of, conditions_around, parts_of
from polyfuse.codegen.looptree.hardware_axes import axis_name
from polyfuse.codegen.looptree.index import in_bits, mentions, terms
from polyfuse.codegen.looptree.nodes import (
    Allocate,
    Block,
    Element,
    For,
    Guard,
    Kernel,
    Lanes,
    Let,
    Node,
    PaddedCopy,
    Store,
    below,
    block,
    nodes_in,
    with_below,
)
from polyfuse.codegen.looptree.operations import TileProduct, VectorCopy

Conditions = tuple[ast.expr, ...]
Readers = tuple[tuple[Conditions, Ranges], ...]
"""The conditions under which each reader reads, and the values of its loops."""


@dataclass(frozen=True)
class _First:
    """The first block of a kernel: the values of its axes and of loops, the names that differ from block to block,
    where buffers lie, those with other places in other blocks, who reads what products are added up to.
    """

    ranges: Ranges
    others: frozenset[str]
    memory: Mapping[str, str]
    moving: frozenset[str]
    readers: Mapping[str, Readers]

    def passes(self, condition: ast.expr) -> bool:
        """True if a condition holds for all of its threads, in all passes of loops."""
        return all(holds(part, self.ranges) for part in parts_of(condition))

    def within(self, node: Node) -> tuple[Node, _First]:
        """A node, a loop that is written out with constant bounds; and what is known inside of it."""
        node = whole(node) if isinstance(node, For) else node
        return node, replace(self, ranges=_inside(node, self.ranges))

    def is_same(self, node: ast.expr) -> bool:
        """True if an expression is the same in all blocks."""
        return _is_same(node, self.others)

    def is_here(self, element: Element) -> bool:
        """True if an element lies in a buffer whose places are the block's own, whichever block it is."""
        return element.array in self.memory and element.array not in self.moving

    def runs_all(self, node: Node) -> bool:
        """True if it runs all that any block runs inside a node."""
        node = bounded(node) if isinstance(node, For) else node
        inside = replace(self, ranges=_inside(node, self.ranges))
        match node:
            case For(low=low, high=high) if not (self.is_same(low) and self.is_same(high)):
                return False
            case Guard(condition, _, otherwise) if not self.is_same(condition):
                if otherwise is not None or not self.passes(condition):
                    return False
            case Lanes(when=when) if not all(map(self.is_same, when)):
                return False
        return all(inside.runs_all(part) for part in below(node))


def with_filled_tiles(kernel: Kernel) -> Kernel:
    """The kernel whose products in registers, and what is copied ahead for them, have no guards that its first block
    passes, in loops that run often.
    """
    every = tuple(nodes_in(kernel.body))
    stores = [node for node in every if isinstance(node, Store)]
    sums = {store.target.array for store in stores if _multiplies(store)}
    if not sums:
        return kernel
    blocks = {axis_name(axis.name) for axis in kernel.axes if not axis.name.startswith("thread")}
    threads = {axis_name(axis.name): range(count) for axis in kernel.axes if (count := count_of(axis))}
    others = set(blocks)
    for node in every:
        if isinstance(node, Let) and not _is_same(node.value, others):
            others.add(node.variable)
    elements = (element for store in stores for element in (store.target, *store.reads))
    first = _First(
        {**threads, **dict.fromkeys(blocks, range(1))},
        frozenset(others),
        {node.buffer: node.memory for node in every if isinstance(node, Allocate)},
        frozenset(element.array for element in elements if not _stays(element, others)),
        {name: tuple(_readers(kernel.body, name, (), threads)) for name in sums},
    )
    return replace(kernel, body=_filled(kernel.body, first)) if first.runs_all(kernel.body) else kernel


def _is_same(node: ast.expr, others: Collection[str]) -> bool:
    """True if an expression has none of some names."""
    return not any(each.id in others for each in ast.walk(node) if isinstance(each, ast.Name))


def _stays(element: Element, others: Collection[str]) -> bool:
    """True if an element's place does not change with some names: 8 * bx + t - 8 * bx."""
    every = (terms(in_bits(subscript)) for subscript in element.subscripts)
    return all(_is_same(atom, others) for found in every for atom, factor in found if factor)


def _multiplies(store: Store) -> bool:
    """True if a store is one of tiles of numbers as they are, multiplied and added up."""
    return isinstance(store.operation, TileProduct) and store.operation.math == "ieee"


def _inside(node: Node, ranges: Ranges) -> Ranges:
    """The values that names may have inside a node."""
    match node:
        case For(variable, ast.Constant(value=int(low)), ast.Constant(value=int(high)), step):
            return {**ranges, variable: range(low, high, step)}
    return ranges


def _readers(
    node: Node, array: str, conditions: Conditions, ranges: Ranges
) -> Iterator[tuple[Conditions, Ranges]]:
    """Under which conditions others than products read an array, their loops under other names than any loop has."""
    node = bounded(_primed(node)) if isinstance(node, For) else node
    ranges = _inside(node, ranges)
    match node:
        case Guard(condition, body, None):
            yield from _readers(body, array, (*conditions, *parts_of(condition)), ranges)
            return
        case Store() if not isinstance(node.operation, TileProduct):
            if any(read.array == array for read in node.reads):
                yield conditions, ranges
    for part in below(node):
        yield from _readers(part, array, conditions, ranges)


def _filled(node: Node, first: _First, often: bool = False) -> Node:
    """A node in which what runs `often` has no guards that it does not need.

    Tiles at the end of a loop keep theirs: without branches LLVM would load many of their factors at once, and spill.
    """
    if often and isinstance(node, Guard | For):
        found = _bare((), node, first)
        if found is not None:
            return found
    node, inside = first.within(node)
    often = often or (isinstance(node, For) and node.bind is None and runs_often(node))
    return with_below(node, lambda part: _filled(part, inside, often))


def _bare(conditions: Conditions, node: Node, first: _First) -> Node | None:
    """A node without guards: all inside are products and copies that need none. None if they are not."""
    node, first = first.within(node)
    match node:
        case Guard(condition, body, None) if first.passes(condition):
            return _bare((*conditions, *parts_of(condition)), body, first)
        case Block(parts):
            found = [_bare(conditions, part, first) for part in parts]
            return None if None in found else block(tuple(part for part in found if part is not None))
        case For(bind="microkernel"):
            return _product(conditions, node, first)
        case For(bind="vector"):
            return _neighbours(conditions, node, first)
        case For(bind="unroll"):
            inside = _bare(conditions, node.body, first)
            return None if inside is None else replace(node, body=inside)
        case Store(operation=VectorCopy(count=1) | PaddedCopy(copy=VectorCopy(count=1))) if conditions:
            return _with_zeros(conditions, node, first)
    return None


def _neighbours(conditions: Conditions, loop: For, first: _First) -> Node | None:
    """A copy of neighbours, whose conditions are the same for all of them.

    if a: for l (vector): if b: S   ->   for l (vector): S, with zeros where not a and b
    """
    inside, store = conditions_around(loop.body)
    if not all(first.passes(condition) and not mentions(condition, loop.variable) for condition in inside):
        return None
    every = (*conditions, *inside)
    filled = _with_zeros(every, store, first) if every and isinstance(store, Store) else None
    return None if filled is None else replace(loop, body=filled)


def _with_zeros(conditions: Conditions, store: Store, first: _First) -> Store | None:
    match store.operation:
        case VectorCopy(ahead=True, conversion="") as copy if first.is_here(store.target):
            return replace(store, operation=PaddedCopy(all_of(conditions), copy))
        case PaddedCopy(here, VectorCopy(ahead=True, conversion="") as copy) if first.is_here(store.target):
            return replace(store, operation=PaddedCopy(all_of((*conditions, *parts_of(here))), copy))
    return None


def _product(conditions: Conditions, top: For, first: _First) -> Node | None:
    """A product into a thread's registers of panels in which the block's number does not matter, with all its results.

    for k: for r in range(min(8, n - 8 * ty)): for c: S   ->   for k: for r in range(8): for c: S
    """
    match top.body:
        case (
            For(body=For(body=Store(operation=TileProduct(math="ieee") as tile) as store) as columns) as rows
        ):
            pass
        case _:
            return None
    reads_panels = all(first.memory.get(read.array) == "shared" for read in store.reads)
    own = first.memory.get(store.target.array, "shared") != "shared"
    if not (reads_panels and own and all(map(first.is_here, (store.target, *store.reads)))):
        return None
    cut = [
        part
        for loop in (rows, columns)
        if not isinstance(loop.high, ast.Constant)
        for part in parts_of(ast.Compare(ast.Constant(0), [ast.Lt()], [loop.high]))
    ]
    if not all(map(first.passes, cut)) or not _unread_elsewhere(
        [*conditions, *cut], store.target.array, first
    ):
        return None
    columns = replace(columns, high=ast.Constant(tile.columns))
    return replace(top, body=replace(rows, high=ast.Constant(tile.rows), body=columns))


def _unread_elsewhere(conditions: list[ast.expr], sums: str, first: _First) -> bool:
    """True if no statement reads sums where some of the conditions fail."""
    loops = {name: values for name, values in first.ranges.items() if name not in first.others}
    return all(
        implies(known, condition, {**loops, **ranges})
        for known, ranges in first.readers[sums]
        for condition in conditions
    )


def _primed(loop: For) -> For:
    """A loop whose variable has a name that no source has."""

    class Primed(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.Name:
            return ast.Name(f"{node.id}'") if node.id == loop.variable else node

    def changed(node: Node) -> Node:
        match node:
            case Guard(condition):
                node = replace(node, condition=Primed().visit(deepcopy(condition)))
            case For(low=low, high=high):
                low, high = (Primed().visit(deepcopy(bound)) for bound in (low, high))
                node = replace(node, low=low, high=high)
        return with_below(node, changed)

    return replace(loop, variable=f"{loop.variable}'", body=changed(loop.body))

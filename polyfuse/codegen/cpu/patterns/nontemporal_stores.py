"""Choose the stores of a loop that bypass the caches, and write a line of each at a time.

for j: { y[i, j] = e; s += y2[j] }   ->   for j: { y_line[j - j_piece] = e; s += y2[j] }
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace

from polyfuse.codegen.looptree.nodes import Block, Element, For, Node, Store, below, touched
from polyfuse.codegen.looptree.product import movement
from polyfuse.ir.tree import ON_CORES


def streamed(loop: For) -> tuple[Element, ...]:
    """The elements that a loop stores past the caches: of arrays that it traverses once and does not read."""
    stores = loop.body.parts if isinstance(loop.body, Block) else (loop.body,)
    if not all(isinstance(store, Store) for store in stores):
        return ()
    found = []
    for array in loop.streams:
        reads, written = touched(loop.body, array)
        if not reads and len(written) == 1 and _goes_along(written[0], loop):
            found.append(written[0])
    return tuple(found)


def _goes_along(element: Element, loop: For) -> bool:
    moved = movement(element, loop)
    return moved is not None and bool(moved) and moved[-1] == 1 and not any(moved[:-1])


def in_lines(node: Node, held: Mapping[str, str], variable: str, piece: str) -> Node:
    """The stores of a body with lines for the arrays that have one: y[i, j] is y_line[j - j_piece]."""
    if isinstance(node, Block):
        return Block(tuple(in_lines(part, held, variable, piece) for part in node.parts))
    if not isinstance(node, Store) or node.target.array not in held:
        return node
    place = ast.BinOp(ast.Name(variable), ast.Sub(), ast.Name(piece))
    return replace(node, target=replace(node.target, array=held[node.target.array], subscripts=(place,)))


def streams_inside(node: Node) -> bool:
    """True if a node stores past the caches and is run by one thread from begin to end."""
    return _streams(node) and not _on_cores(node)


def _streams(node: Node) -> bool:
    return (isinstance(node, For) and bool(node.streams)) or any(map(_streams, below(node)))


def _on_cores(node: Node) -> bool:
    """True if cores meet inside a node, or wait for each other: what was stored has to have arrived there."""
    return (isinstance(node, For) and node.bind in (*ON_CORES, "turn")) or any(map(_on_cores, below(node)))

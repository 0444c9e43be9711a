"""Place a step's wait in a pipeline (doacross) after the parts that do not depend on the previous iteration.

    for t: { S; T; U }, T reads what the value before has made   ->   for t: { S; await; T; U }

A step that is all waiting, or none of it, waits as it begins: who waits for it waits for the values before it too.
"""

from __future__ import annotations

from collections.abc import Sequence

import islpy as isl

from polyfuse.codegen.looptree.nodes import Await, Node, block
from polyfuse.sets import called_back


def awaiting(parts: Sequence[Node], waits: Sequence[bool]) -> Node:
    """The parts of a step, and its Await before the first that waits, if others come first."""
    first = waits.index(True) if True in waits else 0
    return block((*parts[:first], Await(), *parts[first:]) if first else tuple(parts))


def in_order(node: isl.AstNode) -> list[isl.AstNode]:
    """The parts of a block; anything else is one part."""
    if node.get_type() != isl.ast_node_type.block:
        return [node]
    parts = node.block_get_children()
    return [parts.get_ast_node(position) for position in range(parts.n_ast_node())]


def notes(node: isl.AstNode) -> set[str]:
    """The annotations of the statements in a part of isl's AST."""
    found: set[str] = set()

    def visit(inner: isl.AstNode) -> bool:
        if inner.get_type() == isl.ast_node_type.user:
            found.add(inner.get_annotation().get_name())
        return True

    with called_back() as kept:
        node.foreach_descendant_top_down(kept(visit, False))
    return found

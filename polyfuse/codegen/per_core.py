"""Where the buffers of a loop over cores are allocated: inside it, since every core has its own."""

from __future__ import annotations

from dataclasses import replace

from polyfuse.codegen.looptree import Allocate, Block, For, Guard, Node, below, block, with_below
from polyfuse.ir.tree import ON_CORES


def per_core(node: Node, allocations: tuple[Allocate, ...]) -> Node:
    """The node with buffers allocated inside each of its loops over cores, and before what lies outside of them."""
    if not allocations:
        return node
    if isinstance(node, For) and node.bind in ON_CORES:
        return replace(node, body=block((*allocations, node.body)))
    if isinstance(node, Guard) and _over_cores(node):
        return with_below(node, lambda part: per_core(part, allocations))
    if not (isinstance(node, Block) and _over_cores(node)):
        return block((*allocations, node))
    parts: list[Node] = []
    allocated = False
    for part in node.parts:
        if _over_cores(part):
            parts.append(per_core(part, allocations))
            allocated = False
            continue
        parts += [part] if allocated else [*allocations, part]
        allocated = True
    return Block(tuple(parts))


def _over_cores(node: Node) -> bool:
    return (isinstance(node, For) and node.bind in ON_CORES) or (
        isinstance(node, Block | Guard) and any(map(_over_cores, below(node)))
    )

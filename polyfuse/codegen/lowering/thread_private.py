"""Allocate the buffers of a parallel loop inside it, so that every core has its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from polyfuse.codegen.looptree.nodes import Allocate, Block, For, Guard, Node, below, block, with_below
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


def allocated_once(parts: tuple[Node, ...]) -> tuple[Node, ...]:
    """Parts that isl has taken apart: what several of them allocate outside of loops over cores is allocated before.

    { buffer; buffer = x };  { buffer; y = buffer }   ->   buffer;  { buffer = x };  { y = buffer }
    """
    every = [tuple(_allocated(part)) for part in parts]
    counts = Counter(allocation for own in every for allocation in set(own))
    again = [allocation for allocation, count in counts.items() if count > 1]
    if not again:
        return parts
    return (*again, *(_without(part, frozenset(again)) for part in parts))


def _allocated(node: Node) -> Iterator[Allocate]:
    """The allocations outside of loops over cores."""
    if isinstance(node, Allocate):
        yield node
    elif not (isinstance(node, For) and node.bind in ON_CORES):
        for part in below(node):
            yield from _allocated(part)


def _without(node: Node, allocations: frozenset[Allocate]) -> Node:
    if isinstance(node, For) and node.bind in ON_CORES:
        return node
    if isinstance(node, Block):
        rest = (part for part in node.parts if not (isinstance(part, Allocate) and part in allocations))
        return block(tuple(_without(part, allocations) for part in rest))
    return with_below(node, lambda part: _without(part, allocations))


def _over_cores(node: Node) -> bool:
    return (isinstance(node, For) and node.bind in ON_CORES) or (
        isinstance(node, Block | Guard) and any(map(_over_cores, below(node)))
    )

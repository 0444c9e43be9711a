"""Dependences between different blocks of one kernel: the theorem behind grid barriers.

    for t: { for u (block.x): h[t, u] = f(h[t - 1, …]) }      one kernel, in which all blocks wait for each other

A loop over blocks may lie inside loops in order and in several parts of a sequence: then the kernel's blocks are all
there at once (*resident*), each runs the loops around it, and takes its own values of those over blocks. Instances of
different blocks have memory in common that is the GPU's alone, and are in order only if a *grid barrier* lies between
them, at which all threads of all blocks meet. Where it has to lie is what analysis/barriers.py says of a block's
threads; a grid barrier is a barrier of each block too.

A statement outside every loop over block.x is block 0's, as one outside every thread loop is thread 0's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import islpy as isl

from polyfuse.analysis.storage import BLOCKS, block_ids, buffers_of, same_value
from polyfuse.ir.dependences import Pairs
from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import Leaf, Loop, Sequence, Tree, children, loops, statements, walk, with_children


def is_resident(kernel: Tree) -> bool:
    """True if some loop over blocks lies inside something other than { loop over blocks }* around everything."""
    inside = kernel
    while isinstance(inside, Loop) and inside.bind in BLOCKS:
        inside = inside.body
    return any(loop.bind in BLOCKS for loop in loops(inside))


def pairs_inside(nest: Nest, kernel: Tree) -> Iterator[tuple[str, Pairs]]:
    """The pairs of a kernel's instances that must not run at once, each with the tensor that they meet in."""
    own = set(statements(kernel))
    inside = nest.pairs_in_order.among(own)
    # a reduction may run in either order, but never at once
    turned = [Pairs(p.kind, p.sink, p.source, p.map.reverse()) for p in inside if p.kind == "reduction"]
    return ((_tensor(nest, pair), pair) for pair in (*inside, *turned))


def _tensor(nest: Nest, pair: Pairs) -> str:
    """The tensor that a pair meets in: what its source writes, or what the write after a read does."""
    return nest.statement(pair.sink if pair.kind == "anti" else pair.source).write.tensor


def cross_block(nest: Nest, kernel: Tree) -> tuple[Pairs, ...]:
    """The ordered pairs of a resident kernel that run in different blocks, but for what blocks have each for itself."""
    if not is_resident(kernel):
        return ()
    own = {buffer.tensor for _, buffer in buffers_of(kernel)}
    found = []
    for tensor, pair in pairs_inside(nest, kernel):
        different = pair.map.subtract(same_block(nest, kernel, pair))
        if tensor not in own and not different.is_empty():
            found.append(replace(pair, map=different))
    return tuple(found)


def same_block(nest: Nest, kernel: Tree, pair: Pairs) -> isl.Map:
    """{ source -> sink : one block runs both }."""
    same = isl.Map.universe(pair.map.get_space())
    ends = (block_ids(kernel, nest.statement(name)) for name in (pair.source, pair.sink))
    for mine, other in zip(*ends, strict=True):
        same = same.intersect(same_value(mine, other, pair.map))
    return same


def without_barriers(tree: Tree) -> Tree:
    """The tree without a barrier."""
    below = with_children(tree, tuple(map(without_barriers, children(tree))))
    if isinstance(below, Loop):
        return replace(below, barrier=False, grid=False)
    return replace(below, barriers=(), grid=()) if isinstance(below, Sequence) else below


def grid_barriers_only(tree: Tree) -> Tree:
    """The tree with those barriers alone at which all blocks meet."""
    below = with_children(tree, tuple(map(grid_barriers_only, children(tree))))
    if isinstance(below, Loop):
        return replace(below, barrier=below.grid)
    return replace(below, barriers=below.grid) if isinstance(below, Sequence) else below


def barriers_are_grid(tree: Tree) -> Tree:
    """The tree whose barriers are all such at which all blocks meet."""
    below = with_children(tree, tuple(map(barriers_are_grid, children(tree))))
    if isinstance(below, Loop):
        return replace(below, grid=below.barrier)
    return replace(below, grid=below.barriers) if isinstance(below, Sequence) else below


def has_grid_barriers(tree: Tree) -> bool:
    """True if a tree has a grid barrier."""
    return any(bool(node.grid) for node in walk(tree) if not isinstance(node, Leaf))

"""Check that a kernel's blocks can form clusters: the rules, and the theorem behind "every cluster is whole".

    for i (block.x): for c of 2 (cluster.x): S[2 * i + c]     blocks 2 * i and 2 * i + 1 are one cluster

The blocks of a cluster are on the GPU at once, so that one may read or write what is another's. They are blocks like
others: in no order, unless they wait for each other. A launch has clusters of one size, so

- a loop over a cluster's blocks is one of those over blocks around everything, inside one that numbers the clusters
- it has a constant number of values, and a cluster no more blocks than every GPU with clusters takes: MOST_BLOCKS
- every cluster has all of its blocks: where one value runs, all do

      { [i, c] : something runs in block c of cluster i }  =  { [i, c'] : the same clusters, any of the loop's values }

  i of 8 blocks in clusters of 2: [0, 0], [0, 1], … [3, 1].        Of 7: [3, 0] without [3, 1].
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from math import prod

import islpy as isl

from polyfuse.analysis.storage import BLOCKS
from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import CLUSTER, Loop, Tree, date_map, loops, parts
from polyfuse.sets import SET

MOST_BLOCKS = 8
"""Blocks of a cluster that every GPU with clusters takes (CUDA Programming Guide: the portable cluster size)."""


def in_clusters(tree: Tree) -> bool:
    """True if any blocks of a tree are in clusters."""
    return any(loop.bind in CLUSTER for loop in loops(tree))


def around_everything(kernel: Tree) -> tuple[Loop, ...]:
    """The loops over blocks around everything in a kernel, outermost first."""
    found = list[Loop]()
    while isinstance(kernel, Loop) and kernel.bind in BLOCKS:
        found.append(kernel)
        kernel = kernel.body
    return tuple(found)


def unfit_clusters(nest: Nest, tree: Tree) -> str | None:
    """Return the fault of the loops over blocks of a cluster, as a sentence; None if there is none."""
    kernels = (kernel for kernel in parts(tree) if in_clusters(kernel))
    return next((fault for kernel in kernels for fault in _faults(nest, kernel)), None)


def _faults(nest: Nest, kernel: Tree) -> Iterator[str]:
    blocks = around_everything(kernel)
    for loop in (x for x in loops(kernel) if x.bind in CLUSTER):
        if not any(loop is x for x in blocks):
            yield (
                f"loop {loop.name} is bound to {loop.bind}, but only loops over blocks may enclose a cluster's "
                f"blocks, and they must enclose all of kernel {', '.join(kernel.names)}: bind the loops around it "
                "to blocks, or interchange them"
            )
            return
    if not any(loop.bind not in CLUSTER for loop in blocks):
        names = ", ".join(loop.name for loop in blocks)
        yield (
            f"{names} runs over the blocks of a cluster, but no loop runs over clusters: split it, and bind the "
            "outer loop to blocks"
        )
        return
    yield from _unfit_sizes(nest, blocks)


def _unfit_sizes(nest: Nest, blocks: tuple[Loop, ...]) -> Iterator[str]:
    """Yield the faults of the numbers of blocks in a cluster."""
    runs = running(nest, blocks[0].names, blocks)
    sizes = dict[str, int]()
    for depth, loop in enumerate(blocks):
        if loop.bind not in CLUSTER:
            continue
        least, most = runs.dim_min_val(depth), runs.dim_max_val(depth)
        if not (least.is_int() and most.is_int()):
            yield f"loop {loop.name} is bound to {loop.bind}, but its extent is not constant: split it"
            return
        count = int(most.sub(least).to_python()) + 1
        sizes[loop.name] = count
        if not is_whole(runs, depth):
            yield (
                f"loop {loop.name} is bound to {loop.bind}, but some clusters would have fewer than {count} "
                "blocks: split by a number that divides the blocks for all sizes"
            )
            return
    if prod(sizes.values()) > MOST_BLOCKS:
        found = " × ".join(f"{count} ({name})" for name, count in sizes.items())
        yield f"a cluster has at most {MOST_BLOCKS} blocks, but this one has {found}: split by a smaller number"


def is_whole(runs: isl.Set, depth: int) -> bool:
    """True if the set contains, with any value of the loop at `depth`, all values of this loop.

    >>> is_whole(isl.Set("{ [i, c] : 0 <= i < 4 and 0 <= c < 2 }"), 1)
    True
    >>> is_whole(isl.Set("{ [i, c] : 0 <= 2 * i + c < 7 and 0 <= c < 2 }"), 1)
    False
    """
    every = runs.project_out(SET, depth, 1).insert_dims(SET, depth, 1)
    every = every.lower_bound_val(SET, depth, runs.dim_min_val(depth))
    return bool(every.upper_bound_val(SET, depth, runs.dim_max_val(depth)).is_subset(runs))


def running(nest: Nest, names: tuple[str, ...], around: tuple[Loop, ...]) -> isl.Set:
    """{ [values of loops around statements] : one of them runs there }."""
    each = (date_map(nest.domains[name], [loop.date(name) for loop in around]).range() for name in names)
    return reduce(isl.Set.union, each).coalesce()

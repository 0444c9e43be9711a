"""Check that a producer warp and its consumers synchronise: the theorem, then its check.

    for k: { copy t[k] (bulk.warp);  use t[k] }      t in S stages, copies and uses in different threads
    ->  the warp      for k: { wait: slot k mod S is free;  copy;  slot is full }
        the others    for k: { wait: slot k mod S is full;  use;   slot is free }

Both run every iteration of the loop in order, and neither meets the other at a barrier of the block. The n-th iteration
of the one fills slot n mod S, which the n-th of the others empties, so of instances a and b in iterations k(a), k(b)

    a copies, b uses      in order if  { a -> b : k(a) <= k(b) }          b's iteration waits for all copies up to it
    a uses, b copies      in order if  { a -> b : k(a) + S <= k(b) }      b's iteration waits for all uses S before it

and a copy over another one is behind the uses between them, which have waited for the first. A slot is a phase of two
mbarriers, of which a thread that waits sees the parity alone: no phase is over twice before it was waited for, since
the warp is ahead by S iterations at most. So many `slots` are the least distance of a use and a copy over it.

Where blocks of a cluster copy for each other (multicast_boxes.py), a slot is free once the threads of all of
them have used it, and full once all bytes that it is to hold have come, whoever asked for them: the same two lines hold
for a copy by another block, which waited for its own slot of that number.

    t in 4 stages, used where it is copied: { use[k] -> copy[k + 4] }, 4 slots
    copied 3 iterations ahead by `shift`:   { use[k] -> copy[k + 1] }, 1 slot: the warp runs ahead without being told to
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import islpy as isl

from polyfuse.analysis.legality import Broken
from polyfuse.analysis.storage import BLOCKS, buffers_of, prefix_of, runs_through
from polyfuse.ir.dependences import Pairs
from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import OWN_WARP, Loop, Tree, children, loops, replace_node, statements, with_children


def in_own_warps(tree: Tree) -> frozenset[str]:
    """The statements that a warp of their own runs: copies in loops bound to "bulk.warp"."""
    return frozenset(name for loop in loops(tree) if loop.bind == OWN_WARP for name in statements(loop))


def handed(kernel: Tree, pairs: tuple[Pairs, ...]) -> tuple[tuple[Pairs, ...], tuple[Pairs, ...]]:
    """(pairs with one end in a warp that only copies, the others)."""
    own = in_own_warps(kernel)
    between = tuple(p for p in pairs if (p.source in own) != (p.sink in own))
    return between, tuple(p for p in pairs if p not in between)


def with_slots(kernel: Tree, pairs: tuple[Pairs, ...]) -> Tree:
    """The kernel whose loop of staged copies by a warp of their own hands over as many slots as the pairs allow."""
    kernel = without_slots(kernel)
    loop = handing_over(kernel)
    if loop is None:
        return kernel
    stages = (buffer.stages for buffer in loop.buffers if buffer.stages > 1)
    slots = min((*stages, *_distances(kernel, loop, pairs)))
    return replace_node(kernel, loop, replace(loop, slots=slots))


def without_slots(tree: Tree) -> Tree:
    """The tree in which nothing is handed over."""
    below = with_children(tree, tuple(map(without_slots, children(tree))))
    return replace(below, slots=0) if isinstance(below, Loop) and below.slots else below


def handing_over(kernel: Tree) -> Loop | None:
    """The loop whose iterations hand over: that of the buffers which a warp of their own fills; None if none does.

    It is the innermost one of several.
    """
    own = in_own_warps(kernel)
    staged = (loop for loop, buffer in buffers_of(kernel) if buffer.memory == "shared" and buffer.stages > 1)
    around = [loop for loop in staged if own & loop.members and loop.members - own]
    return around[-1] if around else None


def not_handed_over(
    nest: Nest, kernel: Tree, pairs: tuple[Pairs, ...], others: tuple[Pairs, ...]
) -> Iterator[Broken]:
    """Yield the dependences that slots do not keep in order in a kernel with a producer warp. `pairs` have one end in
    that warp; `others` are between other threads, which meet at no barrier.
    """
    yield from (Broken(pair.kind, pair.map, *_NO_BARRIER) for pair in others)
    loop, own = next((x for x in loops(kernel) if x.slots), None), in_own_warps(kernel)
    for pair in pairs:
        if loop is None or not {pair.source, pair.sink} <= loop.members:
            yield Broken(pair.kind, pair.map, *_NOWHERE)
            continue
        outside = prefix_of(kernel, loop, pair.source)[:-1]
        if any(x.bind not in BLOCKS for x in outside) or not runs_through(nest, kernel, loop):
            yield Broken(pair.kind, pair.map, *_SEVERAL)
            continue
        source, sink = loop.date(pair.source), loop.date(pair.sink)
        first = source if pair.source in own else source.add_constant_val(isl.Val(loop.slots))
        wrong = pair.map.subtract(first.le_map(sink))
        if not wrong.is_empty():
            yield Broken(pair.kind, wrong, *_TOO_CLOSE)


def _distances(kernel: Tree, loop: Loop, pairs: tuple[Pairs, ...]) -> Iterator[int]:
    """Yield the least number of iterations between a use and a copy that overwrites it."""
    own = in_own_warps(kernel)
    for pair in pairs:
        if pair.sink not in own or not {pair.source, pair.sink} <= loop.members:
            continue
        source, sink = (loop.date(name).as_map() for name in (pair.source, pair.sink))
        apart = pair.map.apply_domain(source).apply_range(sink).deltas().dim_min_val(0)
        if apart.is_int():
            yield max(1, int(apart.to_python()))


_NOWHERE = (
    "a warp that only copies runs one of them, other threads the other, and no loop hands copies over",
    "promote what is copied with stages at a loop around both",
)
_SEVERAL = (
    "a warp that only copies runs one of them, and the loop that hands copies over runs several times in a block, or "
    "has values at which nothing runs",
    'bind the loops around it to blocks, or the copies to "bulk"',
)
_NO_BARRIER = (
    "different threads run the two instances, and a block with a producer warp has no barrier for all threads",
    'bind the copies to "bulk"',
)
_TOO_CLOSE = (
    "a warp that only copies runs one of them, and would be ahead of the threads that still use what it overwrites",
    'promote with more stages, shift the copy less, or bind it to "bulk"',
)

"""Check that barriers keep a block's threads in order: the theorem, then its check.

Two instances of one block, run by different threads, are in order only if a barrier lies between them. So for
every pair source -> sink with different threads: at the node where the two part (a sequence, or a loop in order),
a barrier comes after source's part and before sink's; where source and sink are in different blocks (across_blocks.py),
one at which all blocks meet.

Sequence(copy, compute) with copy[i] in thread i and compute[i] reading what copy[i + 1] wrote: needs a barrier
after copy; if a loop goes round them, another one before the next copy overwrites.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from typing import Literal

import islpy as isl

from polyfuse.analysis.across_blocks import (
    barriers_are_grid,
    cross_block,
    grid_barriers_only,
    is_resident,
    pairs_inside,
    same_block,
    without_barriers,
)
from polyfuse.analysis.legality import Broken, differing
from polyfuse.analysis.producer_consumer import handed, in_own_warps, not_handed_over, with_slots
from polyfuse.analysis.stages import home, touching
from polyfuse.analysis.storage import BLOCKS, ON_THREADS, buffers_of, prefix_of, same_value, thread_ids
from polyfuse.ir.dependences import Pairs
from polyfuse.ir.nest import Nest
from polyfuse.ir.statement import Statement
from polyfuse.ir.tree import (
    OWN_WARP,
    Buffer,
    Leaf,
    Loop,
    Sequence,
    Tree,
    loops,
    parts,
    path_to,
    statements,
    with_children,
)

Who = Literal["threads", "blocks"]
"""The participants of a barrier: a block's threads, or all blocks."""


def has_threads(tree: Tree) -> bool:
    """True if any loop is bound to threads, or to a producer warp."""
    return any(loop.bind in (*ON_THREADS, OWN_WARP) for loop in loops(tree))


def cross_thread(nest: Nest, kernel: Tree) -> tuple[Pairs, ...]:
    """The ordered pairs of a kernel that run in different threads, those of reused shared buffers among them.

    Where blocks wait for each other those of different blocks are among them: these need a grid barrier, which is one
    of their threads too.
    """
    found = []
    for tensor, pair in (*pairs_inside(nest, kernel), *_reuse(nest, kernel)):
        different = _different_threads(nest, kernel, tensor, pair)
        if not different.is_empty():
            found.append(replace(pair, map=different))
    return tuple(found)


def _different_threads(nest: Nest, tree: Tree, tensor: str, pair: Pairs) -> isl.Map:
    """The part of a pair's map whose two ends run in different threads: along one axis at least.

    A union over the axes, since what is left after subtracting equal threads has twice as many pieces.
    """
    own = in_own_warps(tree)
    if (pair.source in own) != (pair.sink in own):
        return pair.map
    apart = isl.Map.empty(pair.map.get_space())
    ends = nest.statement(pair.source), nest.statement(pair.sink)
    for mine, other in zip(*(thread_ids(tree, s, tensor) for s in ends), strict=True):
        if mine is not None and other is not None:
            apart = apart.union(differing(pair.map, mine, other))
        else:
            apart = apart.union(pair.map.subtract(same_value(mine, other, pair.map)))
    return apart


def _reuse(nest: Nest, tree: Tree) -> Iterator[tuple[str, Pairs]]:
    """A shared buffer's tensor, and pairs that its reuse adds: an access of an iteration -> a write of a later one."""
    for loop, buffer in buffers_of(tree):
        if buffer.memory != "shared":
            continue
        users = touching(nest, loop, buffer.tensor)
        for sink in users:
            if sink.write.tensor != buffer.tensor:
                continue
            for source in users:
                pairs = _later_iteration(nest, tree, loop, buffer, source, sink)
                here = pairs.intersect_domain(nest.domains[source.name]).intersect_range(
                    nest.domains[sink.name]
                )
                pair = Pairs("reuse", source.name, sink.name, here)
                if is_resident(tree):
                    pair = replace(pair, map=here.intersect(same_block(nest, tree, pair)))
                yield buffer.tensor, pair


def _later_iteration(
    nest: Nest, tree: Tree, loop: Loop, buffer: Buffer, source: Statement, sink: Statement
) -> isl.Map:
    """{ source -> sink : the same block, and sink in a later iteration of the loops from the kernel's top to loop }.

    With stages an iteration is later if what it writes has its home so many later: what it writes over is of no use.
    """
    later = None
    equal = None
    for outer in prefix_of(tree, loop, source.name):
        first, second = outer.date(source.name), outer.date(sink.name)
        same, less = first.eq_map(second), first.lt_map(second)
        if outer is loop and buffer.stages > 1:
            less = _given_away(nest, loop, buffer, source, sink)
        if outer.bind in BLOCKS:
            equal = same if equal is None else equal.intersect(same)
            continue
        step = less if equal is None else less.intersect(equal)
        later = step if later is None else later.union(step)
        equal = same if equal is None else equal.intersect(same)
    return later if later is not None else isl.Map.empty(first.lt_map(second).get_space())


def _given_away(nest: Nest, loop: Loop, buffer: Buffer, source: Statement, sink: Statement) -> isl.Map:
    """{ source -> sink : sink writes an element with its home a round or more after that of one source accesses }."""
    last, full = home(nest, loop, buffer.tensor), isl.Val(buffer.stages)
    second = last.pullback_pw_multi_aff(sink.write.subscripts())
    used = (a for a in source.accesses if a.tensor == buffer.tensor)
    rounds = (last.pullback_pw_multi_aff(a.subscripts()).add_constant_val(full).le_map(second) for a in used)
    return reduce(isl.Map.union, rounds)


def unsynchronised(nest: Nest, tree: Tree) -> Broken | None:
    """The first pair of instances in different threads or blocks that no barrier keeps in order; None if there is none.

    Between blocks that is a grid barrier.
    """
    checked = (
        found
        for kernel in parts(tree)
        for found in _not_in_order(nest, kernel, cross_block(nest, kernel), _in_threads(nest, kernel))
    )
    return next(checked, None)


def _in_threads(nest: Nest, kernel: Tree) -> tuple[Pairs, ...]:
    return cross_thread(nest, kernel) if has_threads(kernel) else ()


def _not_in_order(
    nest: Nest, kernel: Tree, across: tuple[Pairs, ...], within: tuple[Pairs, ...]
) -> Iterator[Broken]:
    """Yield the pairs that no barrier keeps in order, in different blocks and in different threads."""
    if in_own_warps(kernel):
        between, others = handed(kernel, within)
        yield from not_handed_over(nest, kernel, between, (*across, *others))
        return
    if across:
        yield from _unordered(grid_barriers_only(kernel), across, "blocks")
    yield from _unordered(kernel, within)


def _unordered(tree: Tree, pairs: tuple[Pairs, ...], who: Who = "threads") -> Iterator[Broken]:
    if not pairs or isinstance(tree, Leaf):
        return
    if isinstance(tree, Loop):
        equal, apart = part_at_loop(tree, pairs)
        if not tree.barrier:
            yield from (_missing(p, tree, who) for p in apart if not meets_between(tree.body, p))
        yield from _unordered(tree.body, equal, who)
        return
    for position, child in enumerate(tree.children):
        own = set(statements(child))
        yield from _unordered(child, tuple(p for p in pairs if {p.source, p.sink} <= own), who)
        for pair in pairs:
            span = spanned(tree, pair)
            if span is not None and span[0] == position and not crossed(tree, pair, tree.barriers):
                yield _missing(pair, tree, who)


def part_at_loop(loop: Loop, pairs: tuple[Pairs, ...]) -> tuple[tuple[Pairs, ...], tuple[Pairs, ...]]:
    """(pairs in one iteration, pairs that a loop in order puts into different iterations)."""
    equal, apart = [], []
    for pair in pairs:
        source, sink = loop.date(pair.source), loop.date(pair.sink)
        same = pair.map.intersect(source.eq_map(sink))
        if not same.is_empty():
            equal.append(replace(pair, map=same))
        if loop.bind in (*ON_THREADS, *BLOCKS):
            continue
        less = pair.map.intersect(source.lt_map(sink))
        if not less.is_empty():
            apart.append(replace(pair, map=less))
    return tuple(equal), tuple(apart)


def spanned(node: Sequence, pair: Pairs) -> tuple[int, int] | None:
    """The positions of source's and sink's children if they differ; a barrier after p, first <= p < second, helps."""
    home = {name: p for p, child in enumerate(node.children) for name in statements(child)}
    first, second = home[pair.source], home[pair.sink]
    return (first, second) if first < second else None


def crossed(node: Sequence, pair: Pairs, barriers: tuple[int, ...]) -> bool:
    """True if a barrier of this sequence, or one inside the two children, lies between source and sink."""
    span = spanned(node, pair)
    if span is None:
        return True
    first, second = node.children[span[0]], node.children[span[1]]
    inside = meets_after(first, pair.source) or meets_before(second, pair.sink)
    return inside or any(span[0] <= p < span[1] for p in barriers)


def meets_between(body: Tree, pair: Pairs) -> bool:
    """True if every run of `body` has a barrier after source or before sink (they lie in different iterations)."""
    return meets_after(body, pair.source) or meets_before(body, pair.sink)


def meets_after(tree: Tree, statement: str) -> bool:
    """True if a barrier follows the statement in every run of the tree that contains it."""
    for node, below in _steps(tree, statement):
        if isinstance(node, Loop) and node.barrier:
            return True
        if isinstance(node, Sequence) and any(p >= _position(node, below) for p in node.barriers):
            return True
    return False


def meets_before(tree: Tree, statement: str) -> bool:
    """True if a barrier precedes the statement in every run of the tree that contains it."""
    for node, below in _steps(tree, statement):
        if isinstance(node, Sequence) and any(p < _position(node, below) for p in node.barriers):
            return True
    return False


def _position(node: Sequence, child: Tree) -> int:
    return next(p for p, other in enumerate(node.children) if other is child)


def _steps(tree: Tree, statement: str) -> Iterator[tuple[Tree, Tree]]:
    path = path_to(tree, statement)
    return pairwise(path)


def _missing(pair: Pairs, node: Loop | Sequence, who: Who) -> Broken:
    where = f"the iterations of {node.name}" if isinstance(node, Loop) else "the parts of a sequence"
    barrier = "barrier" if who == "threads" else "grid barrier"
    why = f"different {who} run the two instances, and no {barrier} lies between {where}"
    remedy = f"put a {barrier} there, outside every loop over {who}, or run both on the same {who}"
    return Broken(pair.kind, pair.map, why, remedy)


def place_barriers(nest: Nest, tree: Tree) -> Tree:
    """The tree with the fewest barriers that keep its threads in order, outside thread loops.

    In a sequence, intervals [source, sink) are stabbed greedily from the left, which is optimal; a loop gets a
    barrier at the end of its body only for pairs that none inside the body separates. Where blocks wait for each other
    their grid barriers come first, as few as may be and outside loops over blocks, and serve threads as well.
    """
    return synchronised(nest, tree)[0]


def synchronised(nest: Nest, tree: Tree) -> tuple[Tree, Broken | None]:
    """`place_barriers`' tree, and the first pair in different threads that even these barriers leave in no order.

    Which pairs meet in different threads, or blocks, depends on dates alone, so they are found once for both.
    """
    placed = []
    broken = None
    for kernel in parts(tree):
        across, within = cross_block(nest, kernel), _in_threads(nest, kernel)
        placed.append(_with_barriers(kernel, across, within))
        broken = broken or next(_not_in_order(nest, placed[-1], across, within), None)
    return with_children(tree, tuple(placed)) if isinstance(tree, Sequence) else placed[0], broken


def _with_barriers(kernel: Tree, across: tuple[Pairs, ...], within: tuple[Pairs, ...]) -> Tree:
    if in_own_warps(kernel):
        return with_slots(without_barriers(kernel), handed(kernel, within)[0])
    if across:
        kernel = barriers_are_grid(_placed(without_barriers(kernel), across, (*BLOCKS, *ON_THREADS)))
    return _placed(kernel, within, ON_THREADS)


def _placed(tree: Tree, pairs: tuple[Pairs, ...], within: tuple[str, ...]) -> Tree:
    """The tree with barriers beside those of the grid, but not inside loops bound to a place of `within`."""
    if not pairs or isinstance(tree, Leaf) or (isinstance(tree, Loop) and tree.bind in within):
        return tree
    if isinstance(tree, Loop):
        equal, apart = part_at_loop(tree, pairs)
        body = _placed(tree.body, equal, within)
        needed = any(not meets_between(body, pair) for pair in apart)
        return replace(tree, body=body, barrier=needed or tree.grid)
    children = tuple(
        _placed(c, tuple(p for p in pairs if {p.source, p.sink} <= set(statements(c))), within)
        for c in tree.children
    )
    node = replace(tree, children=children, barriers=())
    chosen = list(tree.grid)
    open_ = [(spanned(node, pair), pair) for pair in pairs]
    for span, pair in sorted(((s, p) for s, p in open_ if s is not None), key=lambda item: item[0][1]):
        if not crossed(node, pair, tuple(chosen)):
            chosen.append(span[1] - 1)
    return replace(node, barriers=tuple(sorted(chosen)))

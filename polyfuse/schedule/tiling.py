"""The verbs `split`, `tile`, `collapse` and `separate`: tile, collapse and partition loops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import islpy as isl

from polyfuse.analysis.full_tiles import tiles
from polyfuse.errors import InvalidSchedule
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import Loop, Tree, loops_around, replace_node
from polyfuse.schedule.chains import chain_of, loop_named, names_in_reach, rebuilt


def halves(loop: Loop, size: int, inner_name: str) -> tuple[Loop, Loop]:
    """The loop over blocks of `size` values, and the loop inside a block, counted from 0.

    { S[i] -> [i] }, 64  ->  { S[i] -> [floor(i/64)] }, { S[i] -> [i - 64*floor(i/64)] }
    """
    outer, inner = [], []
    for name, date in loop.dates:
        block = date.scale_down_val(isl.Val(size)).floor()
        outer.append((name, block))
        inner.append((name, date.sub(block.scale_val(isl.Val(size)))))
    bare = replace(
        loop,
        dates=tuple(outer),
        bind=None,
        buffers=(),
        barrier=False,
        apart=False,
        fetches=(),
        streams=(),
        slots=0,
    )
    return bare, replace(loop, name=inner_name, dates=tuple(inner))


def _checked(loop: Loop, size: object) -> int:
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise InvalidSchedule(f"loop {loop.name}: tile size {size!r}, expected a positive integer")
    if loop.bind is not None:
        raise InvalidSchedule(f"loop {loop.name} is bound to {loop.bind}: tile it first, then bind")
    return size


def split(nest: Nest, tree: Tree, statement: str, loop: str, size: int) -> Tree:
    """for i: S  ->  for i (blocks of size): for i_in: S."""
    found = loop_named(tree, statement, loop)
    outer, inner = halves(found, _checked(found, size), fresh(f"{loop}_in", names_in_reach(tree, found)))
    return replace_node(tree, found, replace(outer, body=inner))


def tile(nest: Nest, tree: Tree, statement: str, sizes: Mapping[str, int]) -> Tree:
    """for i: for j: S  ->  for i: for j (tiles): for i_in: for j_in: S."""
    chain = chain_of(tree, statement, tuple(sizes))
    missing = [loop.name for loop in chain if loop.name not in sizes]
    if missing:
        raise InvalidSchedule(
            f"tile({statement!r}): loops {', '.join(missing)} lie between those named; "
            "give them sizes as well, or interchange first"
        )
    taken = names_in_reach(tree, chain[0])
    pairs = [halves(x, _checked(x, sizes[x.name]), fresh(f"{x.name}_in", taken)) for x in chain]
    new = rebuilt([outer for outer, _ in pairs], rebuilt([inner for _, inner in pairs], chain[-1].body))
    return replace_node(tree, chain[0], new)


def collapse(
    nest: Nest, tree: Tree, statement: str, outer: str, inner: str, width: int | None = None
) -> Tree:
    """for k: for l < n: S  ->  for c: S at k = c // width, l = c % width, where width is n if it is not given."""
    around, within = loop_named(tree, statement, outer), loop_named(tree, statement, inner)
    if around.body is not within:
        raise InvalidSchedule(f"collapse: {inner} is not the only thing inside {outer}; distribute first")
    if around.bind is not None or around.buffers or within.bind not in (None, "vector"):
        raise InvalidSchedule(
            f"collapse: {outer} or {inner} is bound, or {outer} has a buffer: collapse first"
        )
    if around.apart or around.barrier or around.slots or within.fetches or within.streams:
        raise InvalidSchedule(
            f"collapse: {outer} has a barrier or separated tiles, or {inner} prefetches or streams: collapse first"
        )
    ends = [nest.domains[name].apply(date.as_map()) for name, date in within.dates]
    extremes = [v for e in ends if not e.is_empty() for v in (e.dim_min_val(0), e.dim_max_val(0))]
    if not all(v.is_int() and not v.is_neg() for v in extremes):
        raise InvalidSchedule(
            f"collapse: the values of {inner} are not known to lie between 0 and a constant"
        )
    values = 1 + max((int(v.to_python()) for v in extremes), default=0)
    if width is not None and (not isinstance(width, int) or isinstance(width, bool) or width < values):
        raise InvalidSchedule(
            f"collapse: {inner} has {values} values, more than width={width!r}: give an integer of at least "
            f"{values}"
        )
    # 0 <= l, l' < n:  k < k', or k = k' and l < l'  <=>  n k + l < n k' + l', so that the order stays
    count = isl.Val(width or values)
    dates = tuple((n, around.date(n).scale_val(count).add(date)) for n, date in within.dates)
    name = fresh(f"{outer}_{inner}", names_in_reach(tree, around))
    return replace_node(tree, around, replace(within, name=name, dates=dates))


def separate(nest: Nest, tree: Tree, statement: str, loop: str) -> Tree:
    """for i_in < min(32, …): S  ->  if full: for i_in < 32: S; else: for i_in < min(32, …): S."""
    found = loop_named(tree, statement, loop)
    around = loops_around(tree, statement)
    outside = around[: next(p for p, x in enumerate(around) if x is found)]
    split_up = tiles(nest.domains, outside, found)
    if split_up.full.is_empty():
        raise InvalidSchedule(f"separate: no tile is full at loop {loop} around {statement}")
    if not split_up.differ:
        raise InvalidSchedule(
            f"separate: no loop from {loop} inwards around {statement} is partial in some tiles and full in others"
        )
    return replace_node(tree, found, replace(found, apart=True))

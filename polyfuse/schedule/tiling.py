"""Verbs that cut loops, and give full tiles code of their own: split, tile, separate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import islpy as isl

from polyfuse.analysis.full_tiles import tiles
from polyfuse.errors import InvalidSchedule
from polyfuse.ir.names import fresh
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
    bare = replace(loop, dates=tuple(outer), bind=None, buffers=(), barrier=False, apart=False, fetches=())
    return bare, replace(loop, name=inner_name, dates=tuple(inner))


def _checked(loop: Loop, size: object) -> int:
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise InvalidSchedule(f"loop {loop.name}: a tile size is a positive integer, not {size!r}")
    if loop.bind is not None:
        raise InvalidSchedule(f"loop {loop.name} is bound to {loop.bind}: cut it first, then bind")
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
            f"separate: no loop from {loop} inwards around {statement} is cut short in some tiles and not in others"
        )
    return replace_node(tree, found, replace(found, apart=True))

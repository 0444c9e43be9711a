"""Warp specialisation: split a kernel with a producer warp into two trees, one for each role.

    for b (block.x): for k: { copy;  use }      k hands over
    ->  the warp        for b: for k: { wait for a free slot;  copy;  it is full }
        the others      for b: for k: { wait for a full slot;  use;   it is free }

Both run each iteration of the loop in which either does anything, so that the n-th of one is the n-th of the other.
"""

from __future__ import annotations

from dataclasses import replace

from polyfuse.analysis.producer_consumer import in_own_warps
from polyfuse.analysis.storage import LANE, ON_THREADS
from polyfuse.codegen.looptree.nodes import Block, Handover, Meeting, NextSlot
from polyfuse.codegen.lowering.barrier_statements import Barriers, Domains, leaf
from polyfuse.errors import InvalidSchedule
from polyfuse.ir.tree import Leaf, Loop, Sequence, Tree, loops, loops_around, sequence, statements
from polyfuse.sets import dimension


def by_roles(part: Tree, domains: Domains) -> tuple[tuple[Tree, Tree], Barriers]:
    """The trees of the warp that only copies and of the others, and the leaves at which they wait for each other.

    Raises InvalidSchedule if there are no others, or these may meet.
    """
    own = in_own_warps(part)
    _check_others(part, own)
    place = next(loop for loop in loops(part) if loop.slots)
    found = Barriers()
    copies, others = (
        _waiting(part, place, keep, keep is own, domains, found)
        for keep in (own, frozenset(statements(part)) - own)
    )
    return (copies, others), found


def _waiting(
    part: Tree, place: Loop, keep: frozenset[str], copies: bool, domains: Domains, found: Barriers
) -> Tree:
    """The code of one side: its statements, and its operations on the slot at both ends of an iteration."""
    around = loops_around(part, statements(place)[0])
    inside = around[: next(p for p, loop in enumerate(around) if loop is place) + 1]
    ends = tuple(leaf(place, inside, domains, found) for _ in range(2))
    whats: tuple[Meeting, Meeting] = ("await_free", "hand_over") if copies else ("await_full", "hand_back")
    first, last = (Handover(place.slots, what) for what in whats)
    found.handed.update({ends[0].statement: first, ends[1].statement: Block((last, NextSlot()))})
    side = _side(part, place, keep, ends, found, 0)
    assert side is not None, "both sides have something to do"
    return side


def _side(
    tree: Tree, place: Loop, keep: frozenset[str], ends: tuple[Leaf, ...], found: Barriers, depth: int
) -> Tree | None:
    """A tree with some of its statements, and the leaves at both ends of the loop that hands over; None if empty."""
    match tree:
        case Leaf(name):
            return tree if name in keep else None
        case Sequence():
            sides = (_side(child, place, keep, ends, found, depth) for child in tree.children)
            kept = tuple(side for side in sides if side is not None)
            return sequence(kept) if kept else None
        case Loop():
            body = _side(tree.body, place, keep, ends, found, depth + 1)
            if body is None:
                return None
            if tree is place:
                body = sequence((ends[0], body, ends[1]))
            dates = [(name, date) for name, date in tree.dates if name in keep]
            dates += [(e.statement, dimension(found.domains[e.statement], depth))
                      for e in ends if e.statement in body.members]  # fmt: skip
            return replace(tree, body=body, dates=tuple(dates), slots=0)


def _check_others(part: Tree, own: frozenset[str]) -> None:
    warp = f"a warp that only copies runs {', '.join(sorted(own))}"
    if not any(loop.bind in ON_THREADS for loop in loops(part)):
        raise InvalidSchedule(f"{warp}, and no other threads are there to use it: bind a loop to threads")
    for loop in loops(part):
        if loop.bind == LANE:
            raise InvalidSchedule(
                f"{warp}, and the lanes of loop {loop.name} may meet at barriers of the whole block"
            )

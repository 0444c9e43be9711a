"""Schedule kernels whose outermost loop carries a dependence on a GPU.

    a parallel loop of a permutable band      outermost, over blocks and threads: each thread runs the rest in order
    parallel loops inside ordered ones        one block: threads share the inner loops and meet between steps
    neither                                   one thread

Blocks cannot wait for each other, so the second uses one SM only; what is lost is said.
"""

from __future__ import annotations

from collections.abc import Iterator

from polyfuse.analysis.bands import among, facts, is_parallel, permutable
from polyfuse.errors import IllegalSchedule, InvalidSchedule
from polyfuse.ir.tree import Loop, Tree, children, statements
from polyfuse.machine import GpuMachine
from polyfuse.schedule import Schedule
from polyfuse.schedule.binding import extent
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.draft import Draft
from polyfuse.strategy.fusion.group_search import part_of
from polyfuse.strategy.remarks import Refused
from polyfuse.strategy.transforms.isl_scheduler import found_by_isl
from polyfuse.strategy.transforms.loop_remarks import findings
from polyfuse.strategy.transforms.time_loops import Planned, arranged_by

BLOCK = 128
"""Threads of a block where each runs on its own."""

TOGETHER = 256
"""Threads of the one block whose threads meet."""


def planned(schedule: Schedule, counts: Counts, part: Tree, machine: GpuMachine) -> Planned:
    """The first mapping of one part that is legal, the most parallel first."""
    notes = list(findings(schedule.nest, part))
    for draft in _drafts(Draft(schedule.nest, schedule.tree), part, notes):
        try:
            done = draft.taken(schedule)
            done.synchronised()
        except (IllegalSchedule, InvalidSchedule):
            continue
        return Planned(done, (*notes, *draft.notes))
    lost = "one thread runs it: no loop is parallel, or no barrier keeps its threads in order"
    return Planned(schedule, (*notes, lost))


def _drafts(written: Draft, part: Tree, notes: list[str]) -> Iterator[Draft]:
    names = statements(part)
    own = _over_blocks(written, names)
    if own is not None:
        yield own
    found = found_by_isl(written.nest, part)
    if isinstance(found, Refused):
        notes.append(found.text)
    else:
        arranged = arranged_by(written, names, found.dates, "isl's order")
        if isinstance(arranged, Draft):
            yield from _by_parts(arranged, names)
    together = _one_block(written, names)
    if together is not None:
        yield together


def _by_parts(draft: Draft, names: tuple[str, ...]) -> Iterator[Draft]:
    """isl's order, if every part of it has something to run at once and one of them fills blocks."""
    filled = False
    for own in [statements(part) for part in dict.fromkeys(part_of(draft.tree, name) for name in names)]:
        wide = _over_blocks(draft, own)
        done = wide or _one_block(draft, own)
        filled = filled or wide is not None
        draft = done or draft
    if filled:
        yield draft


def _over_blocks(draft: Draft, names: tuple[str, ...]) -> Draft | None:
    """for i: for j  ->  for j (block.x): for j_in (thread.x): for i, a parallel j of the outermost band."""
    tree = part_of(draft.tree, names[0])
    pairs = among(draft.nest, tree)
    band = permutable(tree, pairs)
    free = [loop for loop in band if is_parallel(loop, pairs) and extent(draft.nest, loop) != 1]
    if not free:
        return None
    widest = max(free, key=lambda loop: extent(draft.nest, loop) or BLOCK)
    order = [widest.name, *(loop.name for loop in band if loop is not widest)]
    name = names[0]
    done = draft if band[0] is widest else draft.do("reorder", name, *order)
    done = done.do("split", name, widest.name, BLOCK)
    inner = done.loops(name)[1].name
    done = done.do("bind", name, **{widest.name: "block.x", inner: "thread.x"})
    return done.noted(f"{widest.name} is parallel and runs over blocks of {BLOCK} threads")


def _one_block(draft: Draft, names: tuple[str, ...]) -> Draft | None:
    """for t: for i  ->  for t: for i: for i_in (thread.x), the outermost parallel loop on each path."""
    tree = part_of(draft.tree, names[0])
    free = {id(f.loop) for f in facts(draft.nest, tree) if f.parallel and extent(draft.nest, f.loop) != 1}
    found = list(_outermost(tree, free))
    for loop in found:
        name = statements(loop)[0]
        depth = next(p for p, x in enumerate(draft.loops(name)) if x.name == loop.name)
        draft = draft.do("split", name, loop.name, TOGETHER)
        draft = draft.do("bind", name, **{draft.loops(name)[depth + 1].name: "thread.x"})
    if not found:
        return None
    around = tree.name if isinstance(tree, Loop) else "the sequence"
    return draft.noted(
        f"one block of {TOGETHER} threads runs it, on one SM: "
        f"blocks cannot wait for each other between steps of {around}"
    )


def _outermost(tree: Tree, free: set[int]) -> Iterator[Loop]:
    if isinstance(tree, Loop) and id(tree) in free:
        yield tree
        return
    for child in children(tree):
        yield from _outermost(child, free)

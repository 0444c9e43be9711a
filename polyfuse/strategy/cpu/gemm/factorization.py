"""Parallelise the panels of an elimination inside its loop over blocks: over rows, or pieces of columns.

    for i: { T; S }                          ->  for i (cores): { T; S }
    for i: for k: for j (vector): S_right    ->  for j (pieces, cores): for i: for k: for j_in (vector): S_right

The corner of a block, and what its own steps wait for, is one core's.
"""

from __future__ import annotations

from polyfuse.analysis.bands import facts
from polyfuse.errors import IllegalSchedule, InvalidSchedule
from polyfuse.ir.tree import Loop, Tree, loops, restrict, statements
from polyfuse.machine import CpuMachine
from polyfuse.schedule import Schedule
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.cpu_loops import Estimator
from polyfuse.strategy.draft import Draft
from polyfuse.strategy.fusion.group_search import part_of
from polyfuse.strategy.transforms.band_verbs import units

COLUMNS = 128
"""Columns of a piece: whole vectors, and few enough for all cores to have some until the last blocks."""


def panels_on_cores(
    schedule: Schedule,
    counts: Counts,
    names: tuple[str, ...],
    products: frozenset[str],
    machine: CpuMachine,
    around: int,
) -> Schedule:
    """Each loop nest beside the products with rows or columns on cores, where the model finds that cheaper."""
    estimator = Estimator(counts, machine)
    for unit in units(schedule, names, around):
        if not products.isdisjoint(unit):
            continue
        alone = _seconds(estimator, schedule.tree, unit)
        drafts = [(_seconds(estimator, d.tree, unit), d) for d in _shared(schedule, unit, around)]
        for seconds, draft in sorted(drafts, key=lambda one: one[0]):
            if seconds >= alone:
                break
            try:
                schedule = draft.taken(schedule)
            except (IllegalSchedule, InvalidSchedule):
                continue
            break
    return schedule


def _seconds(estimator: Estimator, tree: Tree, unit: tuple[str, ...]) -> float:
    inside = restrict(tree, frozenset(unit))
    assert inside is not None, "a unit stands in its tree"
    return estimator.of(inside).total


def _shared(schedule: Schedule, unit: tuple[str, ...], around: int) -> list[Draft]:
    """The nest with its outermost loop on cores; or with pieces of its innermost loop outermost, and on cores."""
    draft, name = Draft(schedule.nest, schedule.tree), unit[0]
    inside = draft.loops(name)[around:]
    if len(inside) < 2 or any(statements(loop) != unit for loop in inside):
        inside = inside[:1]
    free = {id(f.loop) for f in facts(schedule.nest, part_of(schedule.tree, name)) if f.parallel}
    if inside and id(inside[0]) in free and any(loops(inside[0].body)):
        return [draft.do("bind", name, **{inside[0].name: "cores"})]
    if len(inside) < 2 or id(inside[-1]) not in free:
        return []
    return [_in_pieces(draft, name, inside)]


def _in_pieces(draft: Draft, name: str, inside: tuple[Loop, ...]) -> Draft:
    last = inside[-1].name
    draft = draft.do("split", name, last, COLUMNS)
    point = draft.loops(name)[-1].name
    order = [last, *(loop.name for loop in inside[:-1]), point]
    return draft.do("reorder", name, *order).do("bind", name, **{last: "cores"})

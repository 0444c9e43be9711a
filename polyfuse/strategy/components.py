"""Loops taken apart by what waits for what, in another order than the statements are written in if need be.

    for i: { for k: R: C[k] += B[i] * A[i, k];  for k: S: s[i] += …;  T: C[i] = … + s[i] }
    ->  for i: for k: S;   for i: T;   for i: for k: R

Statements that wait for each other, round in a circle, stay together: the strongly connected components of the
dependences (Kennedy & McKinley, "Maximizing loop parallelism and improving data locality via loop fusion and
distribution", LCPC 1993). The search fuses again what pays.
"""

from __future__ import annotations

from graphlib import TopologicalSorter

import islpy as isl

from polyfuse.errors import IllegalSchedule, InvalidSchedule
from polyfuse.ir.tree import Loop, date_parts, parts, statements
from polyfuse.schedule import Schedule
from polyfuse.sets import expression_text
from polyfuse.strategy.counts import dims_of, stride


def in_components(schedule: Schedule, names: tuple[str, ...]) -> Schedule:
    """Every part that several components of these statements make up, one component after the other."""
    for part in parts(schedule.tree):
        if isinstance(part, Loop) and part.members <= {*names}:
            schedule = _apart(schedule, part)
    return schedule


def _apart(schedule: Schedule, part: Loop) -> Schedule:
    order = _ordered(schedule, statements(part))
    if len(order) < 2:
        return schedule
    dates = date_parts(part)
    texts: dict[str, str | None] = {}
    for position, component in enumerate(order):
        for name in component:
            own = dates[name] if len(component) > 1 else _alone(schedule, name)
            texts[name] = _text(own, position)
    if None in texts.values():
        return schedule
    try:
        return schedule.affine(**{name: str(text) for name, text in texts.items()})
    except (IllegalSchedule, InvalidSchedule):
        return schedule


def _ordered(schedule: Schedule, names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The components of some statements, none before what it waits for, else as they are written."""
    pairs = schedule.nest.dependences().pairs
    after = {name: {p.sink for p in pairs if p.source == name and p.sink in names} for name in names}
    reached = {name: _reached(after, name) for name in names}
    components = list(
        dict.fromkeys(
            tuple(n for n in names if n == name or (n in reached[name] and name in reached[n]))
            for name in names
        )
    )
    sorter = TopologicalSorter(
        {
            mine: [other for other in components if other is not mine and mine[0] in reached[other[0]]]
            for mine in components
        }
    )
    return list(sorter.static_order())


def _reached(after: dict[str, set[str]], name: str) -> set[str]:
    """What waits for a statement, or for what does."""
    found: set[str] = set()
    ahead = [name]
    while ahead:
        new = after[ahead.pop()] - found
        found |= new
        ahead += new
    return found


def _alone(schedule: Schedule, name: str) -> list[isl.PwAff | int]:
    """The loops of a statement by itself; of a sum those along its results first, where nothing else orders it.

    for i: for k < i: C[k] += …   ->   for k: for i > k: C[k] += …
    """
    own = [loop.date(name) for loop in schedule.loops(name)]
    if any(pair.kind != "reduction" for pair in schedule.nest.dependences().between(name, name)):
        return [*own]
    write = schedule.nest.statement(name).write
    return sorted(own, key=lambda date: not any(stride(write, d) for d in dims_of(date)))


def _text(dates: list[isl.PwAff | int], position: int) -> str | None:
    """A statement's dates behind the place of its component; None where one is in pieces."""
    texts = [str(date) if isinstance(date, int) else expression_text(date) for date in dates]
    if any(";" in text or " : " in text for text in texts):
        return None
    return f"[{', '.join([str(position), *texts])}]"

"""Distribute loops by strongly connected components of dependences, reordering statements if necessary.

    for i: { for k: R: C[k] += B[i] * A[i, k];  for k: S: s[i] += …;  T: C[i] = … + s[i] }
    ->  for i: for k: S;   for i: T;   for i: for k: R

Where none waits round in a circle, that is: else the dependences' strongly connected components are loops in time, or
eliminations, and what may leave them is not worth another order by itself (Kennedy & McKinley, "Maximizing loop
parallelism and improving data locality via loop fusion and distribution", LCPC 1993). The search fuses again what pays.
"""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

from polyfuse.ir.tree import Loop, parts, statements
from polyfuse.schedule import Schedule
from polyfuse.sets import single_expression
from polyfuse.strategy.cost.counts import dims_of, stride
from polyfuse.strategy.fusion.serial import at_dates


def in_waiting_order(schedule: Schedule, names: tuple[str, ...]) -> Schedule:
    """Every part of these statements none of which waits for itself by way of others, one statement after the other."""
    for part in parts(schedule.tree):
        if isinstance(part, Loop) and part.members <= {*names}:
            schedule = _apart(schedule, part)
    return schedule


def _apart(schedule: Schedule, part: Loop) -> Schedule:
    order = _ordered(schedule, statements(part))
    if order is None or len(order) < 2:
        return schedule
    texts = {name: _text(schedule, name, position) for position, name in enumerate(order)}
    return at_dates(schedule, texts) or schedule


def _ordered(schedule: Schedule, names: tuple[str, ...]) -> tuple[str, ...] | None:
    """Statements, none before what it waits for, else as they are written; None if some wait in a circle."""
    before: dict[str, list[str]] = {name: [] for name in names}
    for pair in schedule.nest.dependences().among(names):
        if pair.source != pair.sink:
            before[pair.sink].append(pair.source)
    try:
        return tuple(TopologicalSorter(before).static_order())
    except CycleError:
        return None


def _text(schedule: Schedule, name: str, position: int) -> str | None:
    """The loops of a statement by itself, behind its place; None if a date is in pieces.

    Of a sum those along its results come first, where nothing else orders it:

        for i: for k < i: C[k] += …   ->   for k: for i > k: C[k] += …
    """
    dates = [loop.date(name) for loop in schedule.loops(name)]
    if all(pair.kind == "reduction" for pair in schedule.nest.dependences().between(name, name)):
        write = schedule.nest.statement(name).write
        dates.sort(key=lambda date: not any(stride(write, d) for d in dims_of(date)))
    texts = [single_expression(date) for date in dates]
    return None if None in texts else f"[{', '.join([str(position), *map(str, texts)])}]"

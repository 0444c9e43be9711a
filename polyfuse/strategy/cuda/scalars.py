"""Compute single values on a GPU in one kernel; separately, every such statement would be a launch.

    s = 0;  for b: p[b] = …;  for b: s += p[b];  r = sqrt(s)
    ->  for b: p[b] = …;  for once: { s = 0; for b: s += p[b]; r = sqrt(s) }

The loop of one value is a row's: the threads of a block share the sum along it (lanes.py).
"""

from __future__ import annotations

from itertools import groupby
from math import prod

from polyfuse.errors import IllegalSchedule
from polyfuse.ir import Nest
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.tree import Tree, loops, parts, statements
from polyfuse.schedule import Schedule


def scalars_together(schedule: Schedule) -> Schedule:
    """Neighbouring parts that compute single values in one loop each; a sum's first value right before the sum."""
    nest = schedule.nest
    for name in [s.name for s in nest.statements if s.is_reduction and _is_single(nest, s.name)]:
        schedule = _with_first_value(schedule, name)
    taken = {loop.name for loop in loops(schedule.tree)}
    for single, run in groupby(parts(schedule.tree), lambda part: _computes_single_values(nest, part)):
        names = [name for part in run for name in statements(part)]
        if single and any(nest.statement(name).is_reduction for name in names):
            loop = fresh("once", taken)
            schedule, taken = schedule.join(names[0], names[-1], loop=loop), {*taken, loop}
    return schedule


def _is_single(nest: Nest, name: str) -> bool:
    """True if a statement writes a tensor of one element."""
    shape = nest.tensor(nest.statement(name).write.tensor).shape
    return all(isinstance(size, int) for size in shape) and prod(int(size) for size in shape) == 1


def _computes_single_values(nest: Nest, part: Tree) -> bool:
    return all(_is_single(nest, name) for name in statements(part))


def _with_first_value(schedule: Schedule, reduction: str) -> Schedule:
    """Its first value set right before it: { s = 0; P; s += … }  ->  { P; s = 0; s += … }; as it was if not legal."""
    nest, every = schedule.nest, parts(schedule.tree)
    tensor = nest.statement(reduction).write.tensor
    at = next(n for n, part in enumerate(every) if reduction in statements(part))
    first = [n for n, part in enumerate(every[:at]) if _only_sets(nest, part, tensor)]
    if not first or first[-1] == at - 1:
        return schedule
    try:
        return schedule.move(statements(every[first[-1]])[0], behind=statements(every[at - 1])[-1])
    except IllegalSchedule:
        return schedule


def _only_sets(nest: Nest, part: Tree, tensor: str) -> bool:
    names = statements(part)
    return len(names) == 1 and nest.statement(names[0]).write.tensor == tensor

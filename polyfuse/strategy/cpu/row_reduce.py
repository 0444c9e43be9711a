"""Compute and reduce rows in one pass.

    for j: e[j] = exp(x[j] - m);  for j: s += e[j]   ->   for j: { e[j] = exp(x[j] - m); s += e[j] }

The value is still in a register when it is added: the row is not read again, and the addition hides behind what makes
the value.
"""

from __future__ import annotations

from polyfuse.schedule import Schedule
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.fusion.group_search import aligned


def reduced_where_made(schedule: Schedule, counts: Counts, names: tuple[str, ...], keep: int) -> Schedule:
    """Reductions of whole rows inside the outermost `keep` loops, each with the last statement that makes its row."""
    inside = schedule.nest.dependences().among(names)
    flows = {(p.source, p.sink) for p in inside if p.kind == "flow"}
    for reduction in names:
        loops = schedule.loops(reduction)[keep:]
        if not schedule.nest.statement(reduction).is_reduction or any(map(counts.parallel, loops)):
            continue
        for maker in reversed(names[: names.index(reduction)]):
            pointwise = not schedule.nest.statement(maker).is_reduction
            if pointwise and (maker, reduction) in flows and len(schedule.loops(maker)[keep:]) == len(loops):
                fused = aligned(schedule, maker, reduction, schedule.loops(maker)[-1].name) if loops else None
                schedule = fused if isinstance(fused, Schedule) else schedule
                break
    return schedule

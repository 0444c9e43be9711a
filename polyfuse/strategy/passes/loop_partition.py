"""Separate full tiles where this lets the compiler unroll: short innermost loops that some tiles cut off.

    for i: for j: for i_in < min(8, N - 8i): S   ->   for i: for j: if 8i + 8 <= N: for i_in < 8: S; else: …

A short loop with constant bounds is unrolled, and the loop around it runs on vector lanes. Measured in turns on one
Zen 5 core: gemm of 1000 x 1111 x 1200 in rows of 8 in 240 instead of 1200 ms, seidel-2d in rows of 32 in 242 instead of
282, jacobi-2d in 64 columns in 154 instead of 171. A long innermost loop runs on vector lanes whatever its bounds are:
256 columns of jacobi-2d and 512 of fdtd-2d gain nothing, and their code would double.
"""

from __future__ import annotations

from dataclasses import replace

from polyfuse.analysis.full_tiles import is_point_loop
from polyfuse.errors import InvalidSchedule
from polyfuse.errors.budget import within
from polyfuse.ir.tree import Loop
from polyfuse.schedule import Schedule
from polyfuse.schedule.binding import extent
from polyfuse.strategy.candidates import Choose, cheapest
from polyfuse.strategy.cost.counts import dims_of
from polyfuse.strategy.plan import Plan
from polyfuse.strategy.remarks import Reason, Refused, applied, refused

PASS = "loop partition"

SHORT = 64
"""Values of an innermost loop up to which constant bounds matter."""

OPERATIONS = 2_000_000
"""isl operations for asking which tiles of a kernel are full; where they do not do, the code stays one."""


def with_full_tiles(plan: Plan, choose: Choose = cheapest) -> Plan:
    """A CPU's plan with full tiles apart in its kernels, each statement's at most once; the remarks say which."""
    if plan.machine.kind != "cpu":
        return plan
    schedule, groups = plan.schedule, []
    for group in plan.groups:
        remarks = []
        for name in group.statements:
            top = _short_loops(schedule, name) if choose.asks(PASS, (name,)) else None
            if top is None:
                continue
            done = _separated(schedule, name, top)
            if isinstance(done, Refused):
                remarks.append(refused(PASS, (name,), done.reason, done.text))
            elif done is not None:
                schedule = done
                line = f"full tiles apart from {top.name} inwards: {name}'s loops are constant there"
                remarks.append(applied(PASS, (name,), line))
        groups.append(replace(group, remarks=(*group.remarks, *remarks)))
    return replace(plan, schedule=schedule, groups=tuple(groups))


def _short_loops(schedule: Schedule, name: str) -> Loop | None:
    """The outermost of a statement's innermost point loops, if the innermost of all is a short one.

    Of loops over tiles, along what has a loop in the tile too, one is among them: a row of tiles is full far more often
    than all of a core's, or a cache's.
    """
    around = schedule.loops(name)
    if not around or any(loop.apart for loop in around):
        return None
    inner = extent(schedule.nest, around[-1])
    if inner is None or inner > SHORT:
        return None
    first, inside = len(around), list[frozenset[int]]()
    while first and is_point_loop(around[first - 1]):
        inside.append(dims_of(around[first - 1].date(name)))
        if len(inside) - len(set(inside)) > 1:
            break
        first -= 1
    return around[first] if first < len(around) else None


def _separated(schedule: Schedule, name: str, top: Loop) -> Schedule | Refused | None:
    """The schedule with full tiles apart; None if no tile is full; why not where isl's work is stopped."""
    line = f"{name}'s full tiles from {top.name} inwards were given up after {OPERATIONS} operations of isl"
    try:
        return within(
            schedule.nest.context.get_ctx(),
            OPERATIONS,
            lambda: schedule.separate(name, top.name),
            lambda: Refused(Reason.BUDGET, line),
        )
    except InvalidSchedule:
        return None

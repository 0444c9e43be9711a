"""Separate full tiles where this lets the compiler unroll: short innermost loops that some tiles cut off.

    for i: for j: for i_in < min(8, N - 8i): S   ->   for i: for j: if 8i + 8 <= N: for i_in < 8: S; else: …

A short loop with constant bounds is unrolled, and the loop around it runs on vector lanes. Measured in turns on one
Zen 5 core: gemm of 1000 x 1111 x 1200 in rows of 8 in 240 instead of 1200 ms, seidel-2d in rows of 32 in 242 instead of
282, jacobi-2d in 64 columns in 154 instead of 171. A long innermost loop runs on vector lanes whatever its bounds are:
256 columns of jacobi-2d and 512 of fdtd-2d gain nothing, and their code would double.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from polyfuse.analysis.full_tiles import is_point_loop
from polyfuse.errors import InvalidSchedule
from polyfuse.errors.budget import within
from polyfuse.ir.form import Form, form_of, names_between, renamed_tree
from polyfuse.ir.tree import Loop, Tree, parts, sequence
from polyfuse.schedule import Schedule
from polyfuse.schedule.binding import extent
from polyfuse.schedule.step import Step
from polyfuse.strategy.candidates import Choose, cheapest
from polyfuse.strategy.cost.counts import dims_of
from polyfuse.strategy.fusion.group_search import part_with
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
    schedule, groups, kernels = plan.schedule, [], _Kernels()
    for group in plan.groups:
        remarks = []
        for name in group.statements:
            done = kernels.separated(schedule, name) if choose.asks(PASS, (name,)) else None
            if isinstance(done, Refused):
                remarks.append(refused(PASS, (name,), done.reason, done.text))
            elif done is not None:
                schedule, loop = done
                line = f"full tiles apart from {loop} inwards: {name}'s loops are constant there"
                remarks.append(applied(PASS, (name,), line))
        groups.append(replace(group, remarks=(*group.remarks, *remarks)))
    return replace(plan, schedule=schedule, groups=tuple(groups))


@dataclass(frozen=True)
class _Apart:
    """A kernel with one statement's full tiles apart from a loop inwards, and the steps that made it."""

    form: Form
    kernel: Tree
    steps: tuple[Step, ...]
    loop: str


@dataclass(frozen=True)
class _Kernels:
    """What came of kernels by their forms and statements: equal ones, such as those of layers, are asked once.

    Forms are kept by the kernels' identity, and so are the kernels.
    """

    forms: dict[int, tuple[Tree, Form]] = field(default_factory=dict)
    known: dict[tuple[Form, int], _Apart | None] = field(default_factory=dict)

    def separated(self, schedule: Schedule, name: str) -> tuple[Schedule, str] | Refused | None:
        """The schedule with full tiles apart, and the loop; None if no tile is full; why not where isl is stopped."""
        part = part_with(schedule, name)
        if id(part) not in self.forms:
            self.forms[id(part)] = part, form_of(schedule.nest, part)
        form = self.forms[id(part)][1]
        place = form, form.names.index(name)
        first = self.known.get(place)
        if first is None and place in self.known:
            return None
        names = names_between(first.form, form) if first is not None else None
        if first is not None and names is not None:
            kernel = renamed_tree(first.kernel, lambda each: names.get(each, each))
            run = (kernel if each is part else each for each in parts(schedule.tree))
            steps = tuple(step.renamed(names) for step in first.steps)
            return schedule.followed_by(steps, schedule.nest, sequence(tuple(run))), first.loop
        top = _short_loops(schedule, name)
        done = None if top is None else _separated(schedule, name, top)
        if isinstance(done, Refused):
            return done
        if top is None or done is None:
            self.known[place] = None
            return None
        steps = done.steps[len(schedule.steps) :]
        self.known[place] = _Apart(form, part_with(done, name), steps, top.name)
        return done, top.name


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

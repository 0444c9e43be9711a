"""Answer why two statements are not fused: the best legal form, with its price, or the dependence that forbids all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise, takewhile

import islpy as isl

from polyfuse.errors import BadArgument, IllegalSchedule, InvalidSchedule
from polyfuse.errors.refusals import Violation
from polyfuse.errors.viewed import Viewed
from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import Loop, statements
from polyfuse.machine import Machine
from polyfuse.measure import duration
from polyfuse.schedule import Schedule
from polyfuse.strategy.cost.price import cost
from polyfuse.strategy.pipeline import plan_for


@dataclass(frozen=True)
class FusionAnswer(Viewed):
    """Whether two statements can share a loop, and what that costs. Print it, or read its fields.

    Attributes:
        statements: The two names.
        fused: True if they share a loop in the schedule that was asked about.
        at: The innermost loop that they share, in that schedule or else in the best legal form; None without a form.
        seconds: Expected seconds of a call with the form, and of the schedule as it is; None where there is no price.
        schedule: The schedule with the form.
        violation: The dependence and two instances that forbid every form.
        text: The answer as a sentence.
    """

    statements: tuple[str, str]
    fused: bool
    at: str | None
    seconds: tuple[float, float] | None
    schedule: Schedule | None
    violation: Violation | None
    text: str

    def __repr__(self) -> str:
        return f"<FusionAnswer {self.text}>"

    def __str__(self) -> str:
        return self.text


def why_not_fused(
    schedule: Schedule, machine: Machine, seconds: float, first: str, second: str
) -> FusionAnswer:
    """Answer why a schedule does not fuse two statements.

    The strategy plans again and is told to put the two into one kernel, whatever that costs. What it refuses is tried
    by the verb `fuse` at the outermost loop, through the statements between the two.

    Args:
        schedule: The schedule that is asked about.
        machine: The machine to price for.
        seconds: What the schedule is expected to take.
        first: The name of a statement.
        second: The name of another.

    Returns:
        The answer.

    Raises:
        BadArgument: if there is no such statement, or both are the same.
    """
    nest = schedule.source
    known = statements(nest.order)
    for name in (first, second):
        if name not in known:
            raise BadArgument(f"why_not_fused: no statement {name!r}; there are {', '.join(known)}")
    if first == second:
        raise BadArgument(f"why_not_fused: expected two statements, given {first!r} twice")
    pair = first, second
    at = shared_loop(schedule, first, second)
    if at is not None:
        text = f"{first} and {second} are fused at {at}: they share the loops down to it."
        return FusionAnswer(pair, True, at, None, schedule, None, text)
    try:
        plan = plan_for(nest, machine, force={f"group of {first}, {second}": True})
        best, price = plan.schedule, plan.seconds
        at = shared_loop(best, first, second)
    except BadArgument:  # the strategy has no legal group of the two
        at = None
    if at is not None:
        text = (
            f"{first} and {second} may be fused at {at}: {duration(price)} a call is expected then, and "
            f"{duration(seconds)} as it is."
        )
        return FusionAnswer(pair, False, at, (price, seconds), best, None, text)
    return _by_verbs(nest, machine, seconds, pair)


def shared_loop(schedule: Schedule, first: str, second: str) -> str | None:
    """The innermost loop of which some iteration runs instances of two statements; None if there is none."""
    both = zip(schedule.loops(first), schedule.loops(second), strict=False)
    shared = takewhile(lambda pair: pair[0] is pair[1] and _meet(schedule.nest, pair[0], first, second), both)
    names = [loop.name for loop, _ in shared]
    return names[-1] if names else None


def _meet(nest: Nest, loop: Loop, first: str, second: str) -> bool:
    """True if a loop has a value at which both statements run: loops that join kernels have none."""
    return not _common(nest, loop, first, second)[2].is_empty()


def _common(nest: Nest, loop: Loop, first: str, second: str) -> tuple[isl.Set, isl.Set, isl.Set]:
    """The values of a loop at which one, the other, and both of two statements run."""
    dates = dict(loop.dates)
    a, b = (nest.domains[name].apply(dates[name].as_map()) for name in (first, second))
    return a, b, a.intersect(b)


def _together(s: Schedule, before: str, after: str, at: str) -> Schedule:
    """Fuse two statements.

    A form whose iterations run both statements at most once in all, as the second begins where the first ends, is
    refused with what forbids to fuse them without a shift.
    """
    fused = s.fuse(before, after, at=at)
    loop = next(loop for loop in fused.loops(before) if loop.name == at)
    a, b, both = _common(fused.nest, loop, before, after)
    apart = both.is_empty() or (both.is_singleton() and not a.union(b).is_singleton())
    return s.fuse(before, after, at=at, shift={at: 0}) if apart else fused


def _by_verbs(nest: Nest, machine: Machine, seconds: float, pair: tuple[str, str]) -> FusionAnswer:
    """Fuse the statements between the two one after the other, at the outermost loop."""
    first, second = sorted(pair, key=statements(nest.order).index)
    chain, s = between(nest, first, second), Schedule(nest)
    loops = s.loops(first)
    if not loops or not s.loops(second):
        which = first if not loops else second
        text = f"{first} and {second} cannot be fused: {which} has no loops."
        return FusionAnswer(pair, False, None, None, None, None, text)
    at = loops[0].name
    try:
        for before, after in pairwise(chain):
            s = _together(s, before, after, at)
    except IllegalSchedule as refused:
        text = f"{first} and {second} must not be fused: {refused.violation}"
        return FusionAnswer(pair, False, None, None, None, refused.violation, text)
    except InvalidSchedule as refused:
        text = f"{first} and {second} cannot be fused by the verb `fuse`: {refused}"
        return FusionAnswer(pair, False, None, None, None, None, text)
    try:
        price = cost(s, machine).seconds
    except InvalidSchedule as refused:
        text = (
            f"{first} and {second} may be fused at {at}, in a form that the strategy does not make: {refused}"
        )
        return FusionAnswer(pair, False, at, None, s, None, text)
    text = (
        f"{first} and {second} may be fused at {at}, in a form that the strategy does not make: {duration(price)} a "
        f"call is expected of its loops as they are, and {duration(seconds)} of this schedule."
    )
    return FusionAnswer(pair, False, at, (price, seconds), s, None, text)


def between(nest: Nest, first: str, second: str) -> tuple[str, ...]:
    """Return two statements and those on a path of dependences from one to the other, in their original order."""
    found = nest.dependences()
    ahead = _reached(first, lambda name: (pair.sink for pair in found.after(name)))
    behind = _reached(second, lambda name: (pair.source for pair in found.before(name)))
    inside = (ahead & behind) | {first, second}
    return tuple(name for name in statements(nest.order) if name in inside)


def _reached(start: str, step: Callable[[str], Iterable[str]]) -> set[str]:
    """What steps lead to from a start, with the start."""
    reached, waiting = {start}, [start]
    while waiting:
        new = {*step(waiting.pop())} - reached
        reached |= new
        waiting += new
    return reached

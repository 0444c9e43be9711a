"""The steps that a schedule may take next: legal ones alone, each with the cost model's seconds behind it.

A bounded number is tried, those of the dearest kernels first. Nothing is decided here: a person, or a search, picks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, pairwise, zip_longest

from polyfuse.errors import PolyfuseError
from polyfuse.machine import GpuMachine, Machine
from polyfuse.schedule import Schedule
from polyfuse.schedule.binding import extent
from polyfuse.schedule.step import Step
from polyfuse.strategy.cost.price import ScheduleCost, cost

SIZES = (8, 32, 128)
"""Values per tile that are tried."""

LEAST_TRIED, MOST_TRIED = 8, 48
"""Steps that are tried next, of a large nest and of a small one."""


@dataclass(frozen=True)
class NextStep:
    """A legal step, and the seconds of a call behind it.

    Attributes:
        step: The verb with its arguments.
        seconds: The cost model's seconds of the schedule with the step.
    """

    step: Step
    seconds: float


def next_steps(
    schedule: Schedule, machine: Machine, most: int = 12, tried: int | None = None
) -> tuple[NextStep, ...]:
    """Return legal steps that a schedule may take next, the fastest first.

    Args:
        schedule: The schedule.
        machine: The machine that prices them.
        most: The number of steps to return at most.
        tried: The number of steps to try at most; by default fewer for a larger nest, whose prices take longer.

    Returns:
        The steps; fewer than `most` if not so many of those tried are legal and can be priced.
    """
    if tried is None:
        tried = max(LEAST_TRIED, min(MOST_TRIED, 1500 // max(1, len(schedule.nest.statements))))
    found = []
    for _, step in zip(range(tried), _candidates(schedule, machine), strict=False):
        try:
            after = taken(schedule, step)
            found.append(NextStep(step, cost(after, machine).seconds))
        except PolyfuseError:
            continue  # refused, or of no known price
    return tuple(sorted(found, key=lambda one: one.seconds)[:most])


def taken(schedule: Schedule, step: Step) -> Schedule:
    """Return the schedule after one more step."""
    after: Schedule = getattr(schedule, step.verb)(*step.args, **dict(step.options))
    return after


def _candidates(schedule: Schedule, machine: Machine) -> Iterator[Step]:
    """Steps by statement, in turns, so that a bounded number has some of each kind of each statement."""
    names = _dearest_first(schedule, machine)
    each = [chain(_fusions(schedule, name), _of_loops(schedule, name, machine)) for name in names]
    for turn in zip_longest(*each):
        yield from (step for step in turn if step is not None)


def _dearest_first(schedule: Schedule, machine: Machine) -> list[str]:
    """The statements, those of the dearest kernel first."""
    try:
        prices: ScheduleCost = cost(schedule, machine)
    except PolyfuseError:
        return list(schedule.tree.names)
    return [name for kernel in sorted(prices.kernels, key=lambda k: -k.seconds) for name in kernel.statements]


def _fusions(schedule: Schedule, name: str) -> Iterator[Step]:
    """Fusions with the statements that read a statement's result, at its loops, the innermost first."""
    readers = dict.fromkeys(p.sink for p in schedule.nest.dependences().pairs if p.source == name != p.sink)
    own = schedule.loops(name)
    for reader in readers:
        shared = {id(loop) for loop in schedule.loops(reader)}
        for loop in reversed(own):
            if id(loop) not in shared:
                yield Step("fuse", (name, reader), (("at", loop.name),))


def _of_loops(schedule: Schedule, name: str, machine: Machine) -> Iterator[Step]:
    """What may be done with the loops around a statement."""
    free = [loop for loop in schedule.loops(name) if loop.bind is None]
    if free and not isinstance(machine, GpuMachine):
        yield Step("vectorize", (name, free[-1].name), ())
        yield Step("bind", (name,), ((free[0].name, "cores"),))
    for outer, inner in pairwise(free):
        yield Step("interchange", (name, outer.name, inner.name), ())
    for size in SIZES:
        for loop in reversed(free):
            if size < (extent(schedule.nest, loop) or size + 1):
                yield Step("split", (name, loop.name, size), ())

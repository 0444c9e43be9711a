"""Join kernels without parallelism: one launch for a chain of them.

    s = 0;  for i: s += a[i];  m = s / n   ->   once: { s = 0; for i: s += a[i]; m = s / n }

They share no loop, so `fuse` has nothing to align; `affine` gives them one of a single value.
"""

from __future__ import annotations

from collections.abc import Mapping

from polyfuse.errors import IllegalSchedule, InvalidSchedule
from polyfuse.ir.tree import Tree, date_parts, parts, statements
from polyfuse.schedule import Schedule
from polyfuse.sets import single_expression
from polyfuse.strategy.cost.roofline import Model
from polyfuse.strategy.fusion.group_search import KeptApart
from polyfuse.strategy.plan import Decision

Joined = tuple[Schedule, tuple[Decision, ...], frozenset[str]]


def with_joined(
    schedule: Schedule,
    model: Model,
    decisions: tuple[Decision, ...],
    done: frozenset[str] = frozenset(),
    refused: KeptApart = frozenset(),
) -> Joined:
    """Neighbouring serial kernels that depend on each other in one: (schedule, decisions, their statements).

    Statements that are `done` have their kernels. No kernel is made of a `refused` group.
    """
    together: set[str] = set()
    more: list[Decision] = []
    for name in statements(schedule.tree):
        run = parts(schedule.tree)
        position = next(p for p, part in enumerate(run) if name in part.members)
        if position == 0 or statements(run[position])[0] != name:
            continue
        first, second = run[position - 1], run[position]
        members = first.members | second.members
        if not done.isdisjoint(members) or any(group <= members for group in refused):
            continue
        found = _joined(schedule, model, first, second, together)
        if found is not None:
            schedule = found
            together |= {*statements(first), *statements(second)}
            more.append(_decision(statements(first)[-1], name))
    return schedule, (*decisions, *more), frozenset(together)


def _decision(first: str, second: str) -> Decision:
    sentence = (
        f"{first} and {second} run one after the other in one kernel: neither has anything to run at once."
    )
    return Decision(first, second, True, None, 0, 1, 0.0, 0.0, None, sentence)


def _joined(
    schedule: Schedule, model: Model, first: Tree, second: Tree, together: set[str]
) -> Schedule | None:
    """The two parts one after the other in a loop of one value; None if they should stay apart."""
    for part in (first, second):
        if model.kernel(part).band and not together & set(statements(part)):
            return None
    inside = first.members, second.members
    behind = (p.sink for name in inside[0] for p in schedule.nest.dependences().after(name))
    if inside[1].isdisjoint(behind):
        return None
    nested = bool(together & inside[0])
    texts = _dates(first, 0, nested) | _dates(second, _next(first) if nested else 1, False)
    return at_dates(schedule, texts)


def at_dates(schedule: Schedule, texts: Mapping[str, str | None]) -> Schedule | None:
    """`affine`; None if a date has no text, or if it is refused."""
    known = {name: text for name, text in texts.items() if text is not None}
    try:
        return schedule.affine(**known) if len(known) == len(texts) else None
    except (IllegalSchedule, InvalidSchedule):
        return None


def _next(part: Tree) -> int:
    """The position after the last one of a part that was joined before."""
    return 1 + max(int(date[1]) for date in date_parts(part).values() if isinstance(date[1], int))


def _dates(part: Tree, position: int, nested: bool) -> dict[str, str | None]:
    """The dates of a part's statements, at a position inside a loop of one value (or already inside it)."""
    found: dict[str, str | None] = {}
    for name, date in date_parts(part).items():
        texts = [str(one) if isinstance(one, int) else single_expression(one) for one in date]
        prefix = [] if nested else ["0", str(position)]
        found[name] = None if None in texts else f"[{', '.join([*prefix, *map(str, texts)])}]"
    return found

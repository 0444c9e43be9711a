"""Schedule kernels whose outermost loop carries a dependence: time loops, triangular solvers, recurrences.

    part of the schedule  --orders-->  as written, another  --shapes-->  drafts  --price-->  the cheapest legal one

Never worse than the original order by the model, which is one of the drafts. What is cut off is said. The budgets
are counts of isl's operations: a plan does not depend on how fast the machine is that makes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import islpy as isl

from polyfuse.errors import IllegalSchedule, InvalidSchedule, quantity
from polyfuse.errors.budget import at_most, stopped
from polyfuse.ir.tree import Loop, Tree, sequence, statements
from polyfuse.machine import CpuMachine
from polyfuse.measure import duration
from polyfuse.schedule import Schedule
from polyfuse.strategy.candidates import Choose, cheapest
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.cpu_loops import Estimator
from polyfuse.strategy.cost.kernel_model import internal, kernel_of
from polyfuse.strategy.draft import Draft
from polyfuse.strategy.fusion.group_search import part_of
from polyfuse.strategy.remarks import Reason, Refused, Remark
from polyfuse.strategy.transforms.band_verbs import contracted, users_in
from polyfuse.strategy.transforms.isl_scheduler import found_by_isl
from polyfuse.strategy.transforms.loop_remarks import findings, skewed
from polyfuse.strategy.transforms.skew import shifted_order
from polyfuse.strategy.transforms.time_tilings import shapes

PASS = "time loops"

PRICE_OPERATIONS = 15_000_000
"""isl operations for pricing the shapes of one order of a kernel."""

PROOF_OPERATIONS = 20_000_000
"""isl operations for proving one shape."""

PROOFS = 4
"""Shapes to prove, the cheapest first, before the order as written is kept."""

GLOBAL = ("affine", "tile", "skew")
"""Verbs that change the order of a whole kernel, and what its code looks like."""

WORTHWHILE = 0.8
"""Another order's largest cost, as a fraction of the written order's: jacobi-1d of 2000 values in tiles was to cost
0.81 of it, and took 1.1 (one Zen 5 core)."""


Priced = list[tuple[float, Draft]]
"""Drafts with the seconds that the model expects of each."""


@dataclass(frozen=True)
class Planned:
    """A schedule with one more kernel in shape, what was found and done, and a cheaper shape that was `lost`."""

    schedule: Schedule
    notes: tuple[str, ...]
    lost: Remark | None = None


def planned(
    schedule: Schedule, counts: Counts, part: Tree, machine: CpuMachine, choose: Choose = cheapest
) -> Planned:
    """The cheapest legal shape of one part of a schedule on a CPU. Another order may make several parts of it."""
    names = statements(part)
    estimator = Estimator(counts, machine)
    notes = list(findings(schedule.nest, part))
    written = Draft(schedule.nest, schedule.tree)
    priced = _priced(estimator, names, notes, chain([written], shapes(written, names, machine.units)))
    for arranged in _arranged(written, part):
        if isinstance(arranged, Refused):
            notes.append(arranged.text)
        else:
            priced += _by_parts(estimator, names, notes, arranged)
    if not priced:
        return Planned(schedule, (*notes, "the order as written is kept"))
    original = priced[0][0]
    order = sorted(priced[1:], key=_worth) or priced
    first = choose.best(
        PASS, names, order, seconds=lambda one: one[0], name=lambda one: one[1].name, what="shape"
    )
    tried = _each_once([first, *order])[:PROOFS]
    for total, draft in _each_once([*tried, *priced[1:2], priced[0]]):
        done = _proven(draft, schedule, notes)
        if done is None:
            continue
        for tensor in internal(kernel_of(counts, part)):
            done = contracted(done, tensor, users_in(done, names, tensor), machine)
        notes += draft.notes
        notes.append(f"{duration(total)} expected, {duration(original)} in the order as written")
        return Planned(done, tuple(notes))
    return Planned(schedule, tuple(notes))


def _each_once(every: Priced) -> Priced:
    """The drafts, the first time each of them comes."""
    return list({id(draft): (total, draft) for total, draft in every}.values())


def _worth(one: tuple[float, Draft]) -> float:
    """A draft's price for comparison, raised for one that changes the order of the whole kernel."""
    total, draft = one
    return total / WORTHWHILE if any(step.verb in GLOBAL for step in draft.steps) else total


def _arranged(written: Draft, part: Tree) -> Iterator[Draft | Refused]:
    """The draft in other orders: shifted and skewed if that makes it permutable, else isl's; or why there is none."""
    names = statements(part)
    shifted = shifted_order(written.nest, part)
    if shifted is not None:
        yield arranged_by(written, names, shifted, "shifted and skewed")
        return
    found = found_by_isl(written.nest, part)
    if isinstance(found, Refused):
        yield found
        return
    yield arranged_by(written, names, found.dates, "isl's order")
    if isinstance(part, Loop):
        inside = found_by_isl(written.nest, part, part)
        said = f"isl's order inside {part.name}"
        yield inside if isinstance(inside, Refused) else arranged_by(written, names, inside.dates, said)


def _proven(draft: Draft, schedule: Schedule, notes: list[str]) -> Schedule | None:
    """The draft's verbs, proven; None if one is not legal, or if isl cannot prove it within the budget."""
    try:
        with at_most(schedule.nest.context.get_ctx(), PROOF_OPERATIONS):
            return draft.taken(schedule)
    except (IllegalSchedule, InvalidSchedule):
        return None
    except isl.Error as error:
        if not stopped(error):
            raise
        notes.append(f"a shape was given up: its proof needs more than {PROOF_OPERATIONS} operations of isl")
        return None


def _priced(
    estimator: Estimator, names: tuple[str, ...], notes: list[str], drafts: Iterable[Draft]
) -> Priced:
    """The drafts with what the model expects of these statements' kernels, until isl's work is stopped."""
    found: Priced = []
    try:
        with at_most(estimator.counts.nest.context.get_ctx(), PRICE_OPERATIONS):
            for draft in drafts:
                found.append((round(estimator.of(held_by(draft.tree, names)).total, 12), draft))
    except isl.Error as error:
        if not stopped(error):
            raise
        notes.append(
            f"pricing stopped after {PRICE_OPERATIONS} operations of isl and {quantity(len(found), 'shape')}"
        )
    return found


def held_by(tree: Tree, names: tuple[str, ...]) -> Tree:
    """The kernels that hold these statements, as a tree of their own."""
    return sequence(tuple(dict.fromkeys(part_of(tree, name) for name in names)))


def arranged_by(written: Draft, names: tuple[str, ...], dates: dict[str, str], what: str) -> Draft | Refused:
    """The draft in the order of these dates; or why `affine` does not take it."""
    try:
        arranged = written.do("affine", **dates)
    except InvalidSchedule as error:
        return Refused(Reason.ILLEGAL, f"{what} is not taken: {error}")
    parts = dict.fromkeys(part_of(arranged.tree, name) for name in names)
    text = "; ".join(filter(None, (skewed(part) for part in parts)))
    return arranged.noted(f"{what}: {text}" if text else what)


def _by_parts(estimator: Estimator, names: tuple[str, ...], notes: list[str], draft: Draft) -> Priced:
    """The shapes of another order; where it makes several parts, the best shape of each."""
    parts = [statements(part) for part in dict.fromkeys(part_of(draft.tree, name) for name in names)]
    if len(parts) == 1:
        return _priced(estimator, names, notes, shapes(draft, names, estimator.machine.units))
    for own in parts:
        candidates = _priced(
            estimator, own, notes, chain([draft], shapes(draft, own, estimator.machine.units))
        )
        draft = min(candidates, key=lambda one: one[0])[1] if candidates else draft
    return _priced(estimator, names, notes, [draft])

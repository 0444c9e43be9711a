"""The driver of the strategy: it asks passes for candidates, plans and prices these, and keeps the cheapest.

    start  --candidates of a pass-->  starts  --planned-->  plans  --priced-->  the cheapest, and remarks

A pass never compares anything itself: it says what else a nest could be, and the driver does the rest, the same way
for all of them. Which passes there are, and in which order, is in `pipeline.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from polyfuse.ir import Nest
from polyfuse.machine import Machine
from polyfuse.measure import duration
from polyfuse.strategy.candidates import Choose, cheapest
from polyfuse.strategy.claims import Claims
from polyfuse.strategy.fusion.alignments import Searches
from polyfuse.strategy.fusion.group_search import KeptApart
from polyfuse.strategy.options import PlannerOptions
from polyfuse.strategy.plan import Plan
from polyfuse.strategy.remarks import Reason, Remark


@dataclass(frozen=True)
class Start:
    """The input of a plan.

    Attributes:
        nest: what is to run.
        machine: where.
        choose: decides between candidates, by the model, a search, or what a caller forces.
        fuse: whether statements may share kernels.
        options: what the model assumes beside the machine.
        claims: kernels that are decided before the search for groups; None if passes may still claim some.
        apart: groups of statements that no kernel holds.
        remarks: on what was done to the nest so far.
        searches: what searches for groups have found so far, for this nest and others.
    """

    nest: Nest
    machine: Machine
    choose: Choose = cheapest
    fuse: bool = True
    options: PlannerOptions = field(default_factory=PlannerOptions)
    claims: Claims | None = None
    apart: KeptApart = frozenset()
    remarks: tuple[Remark, ...] = ()
    searches: Searches = field(default_factory=Searches, compare=False)

    @property
    def model_machine(self) -> Machine:
        """The machine as the model is to see it."""
        return self.options.on(self.machine)

    def with_remarks(self, *remarks: Remark) -> Start:
        """The start with more to tell."""
        return replace(self, remarks=(*self.remarks, *remarks))


@dataclass(frozen=True)
class Candidate:
    """Something else to plan for.

    Attributes:
        start: the nest and what is decided in it.
        done: what was done, a clause each, which numbers follow in the remark.
        otherwise: what is the case without, as the remark on numbers calls it.
        name: what tells it from the pass's other candidates, for `force`.
        products: statements that each need tiles of results, or else it is not taken.
    """

    start: Start
    done: tuple[str, ...]
    otherwise: str = "otherwise"
    name: str = ""
    products: tuple[str, ...] = ()


Remarks = Callable[[str, Candidate, bool, Reason, float, float], Iterable[Remark]]
"""Makes the remarks on a candidate: (pass, candidate, taken, reason, seconds with it, seconds without)."""


def each_with_numbers(
    pass_: str, candidate: Candidate, taken: bool, reason: Reason, so: float, otherwise: float
) -> Iterable[Remark]:
    """A remark on each thing that the candidate has done, with both numbers."""
    numbers = f"{duration(so)} so, {duration(otherwise)} {candidate.otherwise}"
    for line in candidate.done:
        if taken:
            text = f"{line}: {numbers}."
        elif reason is Reason.NO_TILES:
            text = f"not taken, since a product would have no tiles of results: {line}."
        else:
            text = f"not taken: {line}; {numbers}."
        yield Remark(pass_, candidate.products, taken, reason, text, (so, otherwise))


def seconds_of_calls(usual: Plan, other: Plan) -> tuple[float, float]:
    """The seconds of a call by either plan."""
    return usual.seconds, other.seconds


@dataclass(frozen=True)
class Alternative:
    """A pass that says what else a nest could be.

    Attributes:
        name: for remarks and for `force`.
        candidates: of a start, with a remark on each that cannot be.
        crossed_with: the passes before it in its list that are asked about its candidates, too.
        prices: (seconds of the usual plan, seconds of the candidate's), of what the pass compares.
        remarks: makes the remarks on the candidate that is compared.
        lost: the products of a candidate that its plan leaves without tiles of results.
    """

    name: str
    candidates: Callable[[Start], Iterable[Candidate | Remark]]
    crossed_with: tuple[str, ...] = ()
    prices: Callable[[Plan, Plan], tuple[float, float]] = seconds_of_calls
    remarks: Remarks = each_with_numbers
    lost: Callable[[Plan, tuple[str, ...]], frozenset[str]] = lambda plan, products: frozenset()


def cheapest_plan(
    start: Start, passes: Sequence[Alternative], planned: Callable[[Start], Plan], usual: Plan | None = None
) -> Plan:
    """The cheapest plan for a start and for what the passes make of it.

    Args:
        start: what is planned.
        passes: in the order in which they are asked. Each is compared with the best plan of those before it.
        planned: makes the plan for one start.
        usual: the plan for the start itself, where it is known already.

    Returns:
        The plan that is kept, with a remark on every candidate.
    """
    plan = planned(start) if usual is None else usual
    for place, one in enumerate(passes):
        if start.choose.asks(one.name) and _may_replace_forced(start, one, passes[:place]):
            plan = _kept(plan, start, one, passes[:place], planned)
    return plan


def _may_replace_forced(start: Start, one: Alternative, before: Sequence[Alternative]) -> bool:
    """True if what passes `before` are forced to do is in the candidates of one pass, too."""
    return all(other.name in one.crossed_with for other in before if start.choose.forces(other.name))


def _kept(
    usual: Plan,
    start: Start,
    one: Alternative,
    before: Sequence[Alternative],
    planned: Callable[[Start], Plan],
) -> Plan:
    """The usual plan or the cheapest of one pass's candidates."""
    offered, wish = tuple(one.candidates(start)), start.choose.wish(one.name)
    refused = [each for each in offered if isinstance(each, Remark)]
    candidates = [each for each in offered if isinstance(each, Candidate)]
    start.choose.offer(one.name, (each.name for each in candidates if each.name))
    if wish is not None and isinstance(wish.choice, str):
        candidates = [each for each in candidates if each.name == wish.choice]
    crossed = [other for other in before if other.name in one.crossed_with]
    plans = [(each, cheapest_plan(each.start, crossed, planned)) for each in candidates]
    if not plans:
        return usual.with_remarks(*refused)
    priced = [(*one.prices(usual, plan), candidate, plan) for candidate, plan in plans]
    usually, so, candidate, other = min(priced, key=lambda each: each[1])
    lost = one.lost(other, candidate.products)
    reason = Reason.NO_TILES if lost else Reason.CHEAPER if so < usually else Reason.DEARER
    if wish is not None:
        reason = Reason.CHOSEN
        start.choose.granted.add(wish)
    taken = reason in (Reason.CHOSEN, Reason.CHEAPER)
    remarks = one.remarks(one.name, candidate, taken, reason, so, usually)
    return (other if taken else usual).with_remarks(*refused, *remarks)


@dataclass(frozen=True)
class Rewrite:
    """A pass that makes another nest of a nest before there is any schedule, where it finds by itself that this pays.

    Attributes:
        name: for remarks and for `force`.
        run: (nest, machine, choose) -> (nest, remarks); the same nest where nothing is done. A pass that `searches`
            for groups also takes what earlier searches found.
        kinds: the kinds of machines that it is for.
        searches: whether it prices nests by a search.
    """

    name: str
    run: Callable[..., tuple[Nest, tuple[Remark, ...]]]
    kinds: tuple[str, ...] = ("cpu", "cuda")
    searches: bool = False


def rewritten(start: Start, rewrites: Sequence[Rewrite]) -> Start:
    """The start after rewrites, in order."""
    for one in rewrites:
        if start.machine.kind in one.kinds and start.choose.asks(one.name):
            known = (start.searches,) if one.searches else ()
            nest, remarks = one.run(start.nest, start.model_machine, start.choose, *known)
            start = replace(start, nest=nest).with_remarks(*remarks)
    return start

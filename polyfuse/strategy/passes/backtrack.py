"""Backtrack: undo fusions whose kernels turn out far dearer in their shape than the search expected.

    search  --groups-->  shapes  --doubts-->  search without these groups  -->  shapes  -->  the cheaper plan

The search prices a group by its outermost parallel loops. Where fusing leaves none, what the group costs is known only
once its loops have a shape: a pyramid's level of 1025² pixels was to take 0.9 ms fused and took 19, when loops inside
others did not come apart. Such a group is taken apart, its parts are shaped, and both forms are priced by the same
model of finished loops. So is a product that has no blocks because of what it is with: pooling by overlapping windows
in a convolution's kernel, whose tiles hold no whole window (a network's first layers on 224 × 224 pixels were to take
1.5 ms on two Zen 4 cores, and took 50). Or one whose blocks have all columns because of a norm of rows: 32 x 3072 x
768 took 0.85 ms with it, and 0.59 without, where all weights come from memory (one core of a Zen 5).

Groups that are equal but for names, as those of a network's layers, are taken apart, or left, together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from polyfuse.errors import quantity
from polyfuse.ir.form import Form, form_of
from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import Tree, loops, parts, restrict, statements
from polyfuse.machine import CpuMachine
from polyfuse.measure import duration
from polyfuse.strategy.candidates import Choose, cheapest
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.cpu_loops import Estimator
from polyfuse.strategy.cpu.gemm.schedule import BLOCKS
from polyfuse.strategy.fusion.group_search import KeptApart
from polyfuse.strategy.match.gemm import products_of
from polyfuse.strategy.plan import Decision, Group, Plan
from polyfuse.strategy.remarks import Remark, weighed

PASS = "backtrack"

DOUBTFUL = 2.0
"""The ratio of a shaped group's cost to the search's estimate from which backtracking compares it with its parts."""

CLEARLY = 0.8
"""The largest cost of the parts to be taken, as a fraction of the group's: the model is not more accurate."""

ROUNDS = 4
"""Groups that are taken apart at most, one a round, with those that are equal to it: each costs a plan."""


@dataclass(frozen=True)
class Doubt:
    """Statements that the search put together for `expected` seconds and whose cheapest shape takes `shaped`.

    `more` are groups that are taken apart with them. Its blocks take `lost` seconds more than the product's best, by
    the price of blocks: what a block waits for is not in `shaped`, the price of finished loops.
    """

    names: tuple[str, ...]
    expected: float
    shaped: float
    more: KeptApart = frozenset()
    lost: float = 0.0

    @property
    def seconds(self) -> tuple[float, float]:
        """Both, as far as they are known: a sum in another order has other last digits."""
        return round(self.expected, 12), round(self.shaped, 12)


Doubted = tuple[Plan, tuple[Doubt, ...]]
"""A plan and its doubtful groups."""


@dataclass(frozen=True)
class Reconsidered:
    """The plan that was found cheapest, the groups that it is without, and what was compared."""

    plan: Plan
    refused: KeptApart
    remarks: tuple[Remark, ...]


def doubts_of(
    given: Nest,
    nest: Nest,
    decisions: Iterable[Decision],
    names: tuple[str, ...],
    expected: float,
    found: Sequence[Group],
    choose: Choose = cheapest,
) -> tuple[Doubt, ...]:
    """Return a doubt about a group that the search fused for its price and that is far dearer in its shape (`found`).

    Where its product has no blocks, or dearer ones, this product and what it is with are what is doubted. `nest` has
    what the shapes have added to the `given` one: copies of operands.
    """
    shaped = sum(group.cost.total for group in found if not _of_constants(nest, group))
    weighed = any(d.taken and d.cost_together and {d.producer, d.consumer} <= set(names) for d in decisions)
    if weighed and choose.forces(PASS, names):
        return (Doubt(names, expected, shaped),)
    pair = _kept_from_blocks(given, names, found) if weighed else ()
    doubted = pair or (names if weighed and shaped > DOUBTFUL * expected else ())
    lost = _lost(found) if pair else 0.0
    return (Doubt(doubted, expected, shaped, _alike_products(given, pair), lost),) if doubted else ()


def _lost(found: Iterable[Group]) -> float:
    """The seconds by which a product's blocks are dearer than those that the rest of its kernel forbids."""
    remarks = (remark for group in found for remark in group.remarks)
    both = [r.seconds for r in remarks if r.pass_ == BLOCKS and not r.taken and r.seconds is not None]
    return max((own - best for best, own in both), default=0.0)


def _kept_from_blocks(nest: Nest, names: tuple[str, ...], found: Sequence[Group]) -> tuple[str, ...]:
    """A kernel's product that has no blocks, or dearer ones, and the next reduction, or else what it reads.

    Nothing if it is alone. Of several products it is the one with more work than all others, and the one before it.
    """
    if not any(remark.pass_ == BLOCKS and not remark.taken for group in found for remark in group.remarks):
        return ()
    products = [name for name in names if products_of(nest, name, triangles=True, groups=True)]
    if len(products) > 1:
        return _with_most_work(nest, products)
    if not products:
        return ()
    place = names.index(products[0])
    read = {access.tensor for access in nest.statement(products[0]).reads}
    behind = [name for name in names[place + 1 :] if nest.statement(name).is_reduction]
    before = [name for name in names[:place] if nest.statement(name).write.tensor in read]
    return (products[0], *(behind[:1] or before[-1:])) if behind or before else ()


def _with_most_work(nest: Nest, products: Sequence[str]) -> tuple[str, ...]:
    """The product with more work than all others, and the one that stands before it, or else behind it."""
    counts = Counts(nest)
    work = {name: counts.work(name).flops for name in products}
    most = max(products, key=lambda name: work[name])
    if 2 * work[most] <= sum(work.values()):
        return ()
    place = products.index(most)
    return tuple(products[place - 1 : place + 1]) if place else tuple(products[:2])


def _alike_products(nest: Nest, pair: tuple[str, ...]) -> KeptApart:
    """A sum that keeps a product from its blocks, with each other product, if it is one number: it would keep all."""
    sums = [name for name in pair[1:] if nest.statement(name).is_reduction]
    if not any(nest.tensor(nest.statement(name).write.tensor).rank == 0 for name in sums):
        return KeptApart()
    products = (s.name for s in nest.statements if products_of(nest, s.name, triangles=True, groups=True))
    return frozenset(frozenset({product, *sums}) for product in products)


def _of_constants(nest: Nest, group: Group) -> bool:
    """True if a kernel runs once for all calls, as one that packs weights does."""
    own = [nest.statement(name) for name in group.statements]
    return all(nest.tensor(access.tensor).role == "constant" for s in own for access in s.reads)


def reconsidered(
    first: Doubted, without: Callable[[KeptApart], Doubted], choose: Choose = cheapest
) -> Reconsidered:
    """The cheapest of a plan and of those `without` its doubtful groups, the most doubtful one first."""
    (plan, doubts), refused = first, KeptApart()
    remarks: list[Remark] = []
    tried: set[frozenset[str]] = set()
    machine = plan.machine
    for _ in range(ROUNDS):
        open_ = [doubt for doubt in doubts if frozenset(doubt.names) not in tried]
        if not open_:
            break
        assert isinstance(machine, CpuMachine), "no GPU's kernels are doubted"
        doubt = max(open_, key=lambda d: d.shaped - d.expected)
        alike = _alike(plan.schedule.nest, doubt, open_) if choose.decides_alike else (doubt,)
        tried |= {frozenset(each.names) for each in alike}
        groups = frozenset(group for each in alike for group in (frozenset(each.names), *each.more))
        other, others = without(refused | groups)
        together, apart = compared(plan, other, frozenset().union(*groups), machine)
        together += sum(each.lost for each in alike)
        pays = choose.takes(PASS, doubt.names, apart < CLEARLY * together)
        remarks.append(_remark(alike, together, apart, pays, choose.wished(PASS, doubt.names)))
        if pays:  # what stayed together beside these groups may not without them
            plan, doubts, refused, tried = other, others, refused | groups, set()
    return Reconsidered(plan.with_remarks(*remarks), refused, tuple(remarks))


def _alike(nest: Nest, doubt: Doubt, doubts: Iterable[Doubt]) -> tuple[Doubt, ...]:
    """A doubt, and those about groups that are equal to its own but for names, with the same seconds."""
    form = _form(nest, doubt)
    others = (other for other in doubts if other is not doubt and other.seconds == doubt.seconds)
    return (doubt, *(other for other in others if _form(nest, other) == form))


def _form(nest: Nest, doubt: Doubt) -> Form:
    """A group as it was written, without names."""
    written = restrict(nest.order, frozenset(doubt.names))
    assert written is not None, "a doubt is about statements"
    return form_of(nest, written)


def compared(one: Plan, other: Plan, group: frozenset[str], machine: CpuMachine) -> tuple[float, float]:
    """The seconds that two plans take for a group's statements, and for what either has in one kernel with them."""
    names, more = frozenset[str](), group
    while names != more:
        names = more
        more = names.union(
            *(g.statements for p in (one, other) for g in p.groups if names & set(g.statements))
        )
    return _seconds(one, names, machine), _seconds(other, names, machine)


def _seconds(plan: Plan, names: frozenset[str], machine: CpuMachine) -> float:
    """The seconds of these statements' finished kernels: by their loops, or by their blocks around products."""
    estimator = Estimator(Counts.of(plan.schedule), machine)
    own = [part for part in parts(plan.schedule.tree) if names & set(statements(part))]
    costs = {name: g.cost.total for g in plan.groups for name in g.statements}
    return sum(costs[part.names[0]] if holds_product(part) else estimator.of(part).total for part in own)


def holds_product(part: Tree) -> bool:
    """True if a kernel holds a product in blocks."""
    return any(loop.bind == "microkernel" for loop in loops(part))


def _remark(doubts: Sequence[Doubt], together: float, apart: float, pays: bool, chosen: bool) -> Remark:
    """What became of some equal groups."""
    kept = "run apart" if pays else "stay in one kernel"
    first, *others = doubts
    more = f", and {quantity(len(others), 'group')} equal to it," if others else ""
    expected = sum(doubt.expected for doubt in doubts)
    line = (
        f"{', '.join(first.names)}{more} {kept}: in their best shape {duration(together)} together and "
        f"{duration(apart)} apart expected, where the search thought of {duration(expected)} together."
    )
    names = tuple(name for doubt in doubts for name in doubt.names)
    return weighed(PASS, names, pays, line, apart, together, chosen)

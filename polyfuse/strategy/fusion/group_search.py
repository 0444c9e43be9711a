"""The search for groups: which statements run in one kernel.

Every statement begins as a kernel of its own. For each depth, innermost first, each producer–consumer pair that shares
as many loops is tried: the verb `fuse` says whether it is legal, the cost model whether it pays. Pointwise statements
join a product's loops, and layers join at the batch loop, by the same rule at different depths.
"""

from __future__ import annotations

from itertools import takewhile

import islpy as isl

from polyfuse.analysis.once import once
from polyfuse.errors import IllegalSchedule, InvalidSchedule
from polyfuse.ir import Nest, Violation
from polyfuse.ir.tree import Leaf, Loop, Sequence, Tree, parts, statements
from polyfuse.schedule import Schedule
from polyfuse.schedule.step import Step
from polyfuse.sets import IN, OUT, least_and_most
from polyfuse.strategy.candidates import Choose, Wish, cheapest
from polyfuse.strategy.cost.roofline import Model, PairCosts
from polyfuse.strategy.fusion.alignments import Alignments, Found, by_itself, made_of
from polyfuse.strategy.fusion.gemm_pairs import (
    joined_behind_sums,
    joined_beside,
    joined_in_order,
    joined_in_steps,
    joined_in_tiles,
    joined_over_windows,
)
from polyfuse.strategy.fusion.kernel_line import KernelLine
from polyfuse.strategy.plan import (
    Decision,
    costly_sentence,
    doubtful_sentence,
    fused_sentence,
    kept_apart_sentence,
    marginal_sentence,
    refused_sentence,
)

WORTHWHILE = 0.05
"""A fusion must save this share of the cheaper of the two kernels: the model is no finer than that, and a kernel of
many layers takes numba much longer to compile than one layer that is launched many times."""


PASS = "group"

KeptApart = frozenset[frozenset[str]]
"""Groups of statements that no kernel holds all of."""


class Search:
    """A search in progress: the kernels so far, the steps that made them, and the last verdict on each pair.

    No kernel is made of a `refused` group; `choose` says which are to be made, or not, whatever they cost.
    """

    def __init__(
        self, start: Schedule, refused: KeptApart, choose: Choose, alignments: Alignments | None
    ) -> None:
        self.start, self.line = start, KernelLine(start.nest, start.tree)
        self.refused, self.choose, self.alignments = refused, choose, alignments
        self.verdicts: dict[tuple[str, str], Decision] = {}
        self.steps: list[Step] = []

    @property
    def schedule(self) -> Schedule:
        """The schedule with all that was done."""
        return self.start.followed_by(tuple(self.steps), self.start.nest, self.line.tree)

    def aligned(self, first: str, second: str, at: str) -> Found:
        """Return two kernels fused iteration by iteration, or the refusal; no result if loops do not correspond."""

        def make(schedule: Schedule) -> Schedule | Violation | None:
            return aligned(schedule, first, second, at)

        if self.alignments is not None:
            return self.alignments.fused(self.start, self.line, first, second, at, make)
        whole = self.schedule
        home = whole.tree.places if isinstance(whole.tree, Sequence) else {first: 0, second: 0}
        early, late = sorted((home[first], home[second]))
        return made_of(whole, make(whole), parts(whole.tree), (early, late))

    def reordered(self, reduction: str, order: tuple[str, ...]) -> Found:
        """Return a kernel of one statement with its loops in another order."""
        kernel = self.line.kernel(reduction)
        if self.alignments is not None:
            return self.alignments.reordered(self.start, kernel, order)
        alone = by_itself(self.start, kernel)
        return made_of(alone, alone.reorder(reduction, *order), (kernel,))

    def decide(self, decision: Decision) -> None:
        """Note the verdict on a pair."""
        self.verdicts[decision.producer, decision.consumer] = decision

    def take(self, made: Found, *names: str) -> None:
        """Put a new kernel in place of those of one or two statements."""
        assert isinstance(made.result, Tree), "it was made"
        places = [self.line.places[name] for name in names]
        self.line.put(made.result, min(places) if made.early else max(places))
        self.steps += made.steps


def part_with(schedule: Schedule, statement: str) -> Tree:
    """The kernel that holds a statement."""
    return part_of(schedule.tree, statement)


def part_of(tree: Tree, statement: str) -> Tree:
    """The part of a tree's outermost sequence that holds a statement."""
    return tree.children[tree.places[statement]] if isinstance(tree, Sequence) else tree


def inits_of(nest: Nest) -> dict[str, str]:
    """For each statement that only sets a reduction's first value: the reduction."""
    found = {}
    for pair in nest.dependences().pairs:
        source, sink = nest.statement(pair.source), nest.statement(pair.sink)
        first = not source.is_reduction and not source.reads
        if pair.kind == "flow" and first and sink.is_reduction and source.write.tensor == sink.write.tensor:
            found[pair.source] = pair.sink
    # as the texts of their relations are sorted, whatever order these were found in
    return dict(sorted(found.items(), key=lambda init: f"{init[0]}["))


def pairs_of(nest: Nest, inits: dict[str, str]) -> list[tuple[str, str]]:
    """Producer–consumer pairs by consumer, nearest producer first; an initial value only with its own reduction."""
    order = {name: position for position, name in enumerate(statements(nest.order))}
    passed = (p for p in nest.dependences().pairs if p.kind in ("flow", "reduction"))
    found = {(p.source, p.sink) for p in passed if p.source != p.sink}
    kept = [(a, b) for a, b in found if inits.get(a, b) == b]
    return sorted(kept, key=lambda pair: (order[pair[1]], -order[pair[0]]))


def siblings_of(
    nest: Nest, pairs: list[tuple[str, str]], done: frozenset[str] = frozenset()
) -> list[tuple[str, str]]:
    """Pairs of neighbours in time that read the same tensor and do not feed one another."""
    names = [n for n in statements(nest.order) if nest.statement(n).reads and n not in done]
    known = frozenset(pairs)
    last: dict[str, str] = {}
    found: dict[tuple[str, str], None] = {}
    for name in names:
        for access in nest.statement(name).reads:
            before = last.get(access.tensor)
            if before is not None and before != name and (before, name) not in known:
                found[before, name] = None
            last[access.tensor] = name
    return list(found)


def search(
    start: Schedule,
    model: Model,
    fuse: bool,
    done: frozenset[str] = frozenset(),
    refused: KeptApart = frozenset(),
    choose: Choose = cheapest,
    alignments: Alignments | None = None,
) -> tuple[Schedule, tuple[Decision, ...]]:
    """The schedule with its statements in groups, nothing tiled yet, and the decisions in a fixed order.

    Statements that are `done` have their kernels. What runs once for all calls stays among itself: in a kernel of the
    calls it would run in each. `alignments` are known from earlier searches for the same nest.
    """
    nest = start.nest
    early = early_statements(nest, start.tree)
    inits = {a: b for a, b in inits_of(nest).items() if done.isdisjoint((a, b))}
    state = Search(start, refused, choose, alignments)
    with_inits(state, model, inits)
    if not fuse:
        return state.schedule, tuple(state.verdicts.values())
    pairs = [p for p in pairs_of(nest, inits) if done.isdisjoint(p) and len(early.intersection(p)) != 1]
    wanted = [pair for pair in pairs if pair[0] not in inits]  # where these belong is decided
    line = state.line
    deepest = max((len(line.loops(n)) for pair in wanted for n in pair), default=0)
    for level in range(deepest, 0, -1):
        for producer, consumer in wanted:
            consider(state, model, producer, consumer, level)
    for first, second in siblings_of(nest, pairs, done):
        depth = len(model.kernel(line.kernel(first)).band)
        if len(early.intersection((first, second))) == 1:
            continue
        if depth and line.kernel(first) is not line.kernel(second):
            consider(state, model, first, second, depth)
    return state.schedule, decisions_in_order(state, pairs)


def decisions_in_order(state: Search, pairs: list[tuple[str, str]]) -> tuple[Decision, ...]:
    """One decision a pair; pairs that came together through others say so."""
    known = frozenset(pairs)
    siblings = [pair for pair in state.verdicts if pair not in known]
    return tuple(_final(state, *pair) for pair in [*pairs, *siblings])


def _final(state: Search, producer: str, consumer: str) -> Decision:
    verdict = state.verdicts.get((producer, consumer))
    together = state.line.kernel(producer) is state.line.kernel(consumer)
    if verdict is not None and (verdict.taken or not together):
        return verdict
    if together:
        at = shared_loops(state.line, producer, consumer)[-1].name
        sentence = f"{producer} and {consumer} share {at} since both were fused with others."
        return Decision(producer, consumer, True, at, 0, 0, 0.0, 0.0, None, sentence)
    sentence = f"{producer} and {consumer} have no loops in common."
    return Decision(producer, consumer, False, None, 0, 0, 0.0, 0.0, None, sentence)


def shared_loops(kernels: Schedule | KernelLine, first: str, second: str) -> tuple[Loop, ...]:
    """The loops around both statements, outermost first."""
    around = zip(kernels.loops(first), kernels.loops(second), strict=False)
    return tuple(a for a, b in around if a is b)


def early_statements(nest: Nest, tree: Tree) -> frozenset[str]:
    """The statements whose kernels run once for all calls: those of constants alone."""
    found = zip(parts(tree), once(nest, tree), strict=True)
    return frozenset(name for part, early in found if early for name in statements(part))


# -- initial values ----------------------------------------------------------------------------------------------------


def with_inits(state: Search, model: Model, inits: dict[str, str]) -> None:
    """Put each initial value in its reduction's kernel, before anything is weighed: apart it would never be wanted."""
    line = state.line
    for init, reduction in inits.items():
        before, taken = line.kernel(reduction), len(state.steps)
        outside = _results_outside(state, model, reduction)
        if outside is not None:
            state.take(outside, reduction)
        for loop in _over_results(line, init, reduction)[: len(line.loops(init))][::-1]:
            joined = state.aligned(reduction, init, loop.name)
            if isinstance(joined.result, Tree):
                sentence = f"{init} sets the first value of {reduction} and runs with it, at {loop.name}."
                state.decide(Decision(init, reduction, True, loop.name, 0, 1, 0.0, 0.0, None, sentence))
                state.take(joined, reduction, init)
                break
        else:
            line.put(before, line.places[reduction])
            del state.steps[taken:]


def with_store(schedule: Schedule, reduction: str, store: str) -> Schedule | None:
    """The schedule whose reduction is stored in its kernel, as far inside as the results' loops go; None if illegal.

    for i: for j: for k: s[i, j] += …;  for i: for j: y[i, j] = s[i, j]
    ->  for i: for j: { for k: s[i, j] += …;  y[i, j] = s[i, j] }
    """
    for loop in _over_results(schedule, store, reduction)[: len(schedule.loops(store))][::-1]:
        joined = aligned(schedule, reduction, store, loop.name)
        if isinstance(joined, Schedule):
            return joined
    return None


def _results_outside(state: Search, model: Model, reduction: str) -> Found | None:
    """for k: for i: s[i] += …  ->  for i: for k: s[i] += …, where the loops are perfectly nested; None where not."""
    kernel, loops = state.line.kernel(reduction), state.line.loops(reduction)
    if len(kernel.names) > 1 or not (loops and isinstance(loops[-1].body, Leaf)):
        return None
    free = {id(loop): model.counts.parallel(loop) for loop in loops}
    wanted = sorted(loops, key=lambda loop: not free[id(loop)])
    if all(a is b for a, b in zip(wanted, loops, strict=True)):
        return None
    return state.reordered(reduction, tuple(loop.name for loop in wanted))


def _over_results(kernels: Schedule | KernelLine, init: str, reduction: str) -> tuple[Loop, ...]:
    """A reduction's loops from the outermost one in, up to the first that combines values of one result.

    for j: for i: s[j] += x[i, j]  ->  j          for i: s[0] += x[i]  ->  none: s[0] = 0 is no step of that loop
    """
    element = kernels.nest.statement(reduction).write.subscripts()
    kept = (_moves(element.get_pw_aff(axis)) for axis in range(element.dim(OUT)))
    results = frozenset[int]().union(*kept)
    shared = set(map(id, shared_loops(kernels, init, reduction)))
    return tuple(
        takewhile(
            lambda loop: id(loop) in shared or _moves(loop.date(reduction)) & results,
            kernels.loops(reduction),
        )
    )


# -- one pair at one depth ---------------------------------------------------------------------------------------------


def consider(state: Search, model: Model, producer: str, consumer: str, level: int) -> None:
    """Try a pair at its loop number `level`, counted from outside."""
    line = state.line
    first, second = line.kernel(producer), line.kernel(consumer)
    if first is second:
        return
    loops = line.loops(producer)
    if level > min(len(loops), len(line.loops(consumer))):
        return
    at = loops[level - 1].name
    joined = state.aligned(producer, consumer, at)
    if joined.result is None:
        return
    decision = _judged(state, model, (producer, consumer), at, joined.result)
    state.decide(decision)
    if decision.taken:
        state.take(joined, producer, consumer)


def _judged(
    state: Search, model: Model, pair: tuple[str, str], at: str, merged: Tree | Violation
) -> Decision:
    """The verdict on a pair whose kernels may become one, or may not."""
    if isinstance(merged, Violation):
        return Decision(*pair, False, at, 0, 0, 0.0, 0.0, merged, refused_sentence(*pair, at, merged))
    first, second = map(state.line.kernel, pair)
    total = model.cost(first).total + model.cost(second).total
    if any(group <= merged.members for group in state.refused):
        return Decision(*pair, False, at, 0, 0, total, 0.0, None, doubtful_sentence(*pair, at))
    wish = wish_for(state.choose, first, second)
    if wish is not None and wish.choice is False:
        sentence, so = kept_apart_sentence(*pair, at), model.cost(merged).total
        return Decision(*pair, False, at, 0, 0, total, so, None, sentence, chosen=True)
    apart, together = model.of_pair(first, second, merged, _prices)
    total = sum(cost.total for cost in apart)
    saved = sum(cost.compulsory for cost in apart) - together.compulsory
    earlier = state.verdicts.get(pair)
    violation = earlier.violation if earlier else None
    least = WORTHWHILE * min(cost.total for cost in apart)
    if wish is not None or total - together.total > least:
        sentence, chosen = fused_sentence(*pair, at, saved, total, together.total), wish is not None
        return Decision(*pair, True, at, saved, 1, total, together.total, violation, sentence, chosen=chosen)
    if together.total < total:
        sentence = marginal_sentence(*pair, at, total - together.total, least)
    else:
        slower = max(apart, key=lambda cost: cost.total)
        sentence = costly_sentence(*pair, at, slower, together, total)
    return Decision(*pair, False, at, saved, 1, total, together.total, violation, sentence)


def _prices(model: Model, first: Tree, second: Tree, merged: Tree) -> PairCosts:
    """(costs of two kernels, cost of both as one): of products in blocks or in tiles, where they are."""
    parts_and_whole = model.counts.nest, model, first, second, merged
    products = (
        joined_in_steps(*parts_and_whole)
        or joined_in_tiles(*parts_and_whole)
        or joined_in_order(*parts_and_whole)
        or joined_behind_sums(*parts_and_whole)
        or joined_beside(*parts_and_whole)
        or joined_over_windows(*parts_and_whole)
    )
    return products or ([model.cost(first), model.cost(second)], model.cost(merged))


def kept_apart(choose: Choose) -> KeptApart:
    """The groups that a wish keeps apart."""
    return frozenset(w.statements for w in choose.wishes if w.pass_ == PASS and not w.choice)


def wish_for(choose: Choose, first: Tree, second: Tree) -> Wish | None:
    """What is to be done with two kernels, if they have together the statements of a wish, and neither has them all."""
    members = first.members | second.members
    found = (
        wish
        for wish in choose.wishes
        if wish.pass_ == PASS
        and wish.statements <= members
        and not (wish.statements <= first.members or wish.statements <= second.members)
    )
    wish = min(found, key=lambda wish: wish.choice is not False, default=None)
    if wish is not None:
        choose.granted.add(wish)
    return wish


def aligned(schedule: Schedule, first: str, second: str, at: str) -> Schedule | Violation | None:
    """The two fused iteration by iteration; what forbids that; or None if their loops do not correspond.

    `fuse` may also place a whole loop nest inside one iteration of another's loops (the last one, after a reduction).
    That is legal, but fuses nothing: it counts as a refusal of the fusion that was meant.
    """
    before = schedule.loops(second)
    try:
        fused = schedule.fuse(first, second, at=at)
        if _iteration_wise(fused, second, at, before) and _side_by_side(fused, first, second, at):
            return fused
        return schedule.why_not("fuse", first, second, at=at, shift={at: 0})
    except IllegalSchedule as refused:
        return refused.violation
    except InvalidSchedule:
        return None


def _iteration_wise(fused: Schedule, guest: str, at: str, before: tuple[Loop, ...]) -> bool:
    """True if the guest still runs through as many values of each shared loop as of its own."""
    around = fused.loops(guest)
    shared = around[: [loop.name for loop in around].index(at) + 1]
    own = zip(shared, before, strict=False)
    return len(before) >= len(shared) and all(_moves(a.date(guest)) == _moves(b.date(guest)) for a, b in own)


def _side_by_side(fused: Schedule, host: str, guest: str, at: str) -> bool:
    """True if of each shared loop half of the longer side's values, or more, are values of both; or one side has one.

    A loop that counts up from 0 and one that counts down to 0, or that was shifted behind the other, share one value;
    50 steps of time and the 2500 rows that they give share 50, and no row is read where it is written.
    """
    around = fused.loops(guest)
    shared = around[: [loop.name for loop in around].index(at) + 1]
    return all(_share_values(fused.nest, loop, host, guest) for loop in shared)


def _share_values(nest: Nest, shared: Loop, host: str, guest: str) -> bool:
    """True if half of the longer side's values of a loop, or more, are values of both; or if one side has only one."""
    ranges: list[tuple[int, int]] = []
    for name in (host, guest):
        low, high = least_and_most(shared.date(name), nest.domains[name])
        if not low.is_int() or not high.is_int():
            return True
        ranges.append((low.to_python(), high.to_python()))
    (low, high), (first, last) = ranges
    extents, common = (high - low + 1, last - first + 1), min(high, last) - max(low, first) + 1
    return common >= 1 if min(extents) == 1 else 2 * common >= max(extents)


def _moves(date: isl.PwAff) -> frozenset[int]:
    return frozenset(d for d in range(date.dim(IN)) if date.involves_dims(IN, d, 1))

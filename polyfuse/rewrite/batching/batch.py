"""Batching: isomorphic statements over different tensors become one statement with a batch dimension.

    for i: y0[i] = f(w0[i], x0[i])                        for m: for i: y[m, i] = f(w[m, i], x[m, i])
    for i: y1[i] = f(w1[i], x1[i])          ->            y0 and y1 are slices of y; w and x are stacked first,
    for i: y2[i] = f(w2[i], x2[i])                        w when compiling, since it depends on constants alone

What may run together is found on an agenda (Neubig, Goldberg & Dyer, "On-the-fly operation batching in dynamic
computation graphs", NIPS 2017, section 3): of the statements whose sources are done, those that compute the same form
one batch; the batch that lies least deep goes first. No statement of a batch can depend on another, and members that
differ in one layer meet again after it.

The theorem: let o: batch[m, i] -> member_m[i]. The result computes what the nest did if at every m each access of a
batch is that of its member, up to T_m[e] being called T[m, e]; if every value comes from where it came from: o(flow of
the result) is the flow of the nest; and if what the caller sees is written last by the same instances. All is checked
(proof.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import islpy as isl

from polyfuse.errors import IllegalRewrite
from polyfuse.errors.proving import proving
from polyfuse.errors.refusals import Refusal
from polyfuse.ir import Nest
from polyfuse.ir import tree as trees
from polyfuse.rewrite.batching.agenda import Group, agenda, difference
from polyfuse.rewrite.batching.proof import proven
from polyfuse.rewrite.batching.stacks import Plan
from polyfuse.rewrite.recorded import recorded
from polyfuse.rewrite.refusal import refused


@dataclass(frozen=True)
class Batch:
    """One statement that computes what several did.

    Attributes:
        statement: Its name, the first member's.
        members: The statements that it replaces.
    """

    statement: str
    members: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.statement} does the work of {', '.join(self.members)}"


@dataclass(frozen=True)
class Batched:
    """The result of `batch`.

    Attributes:
        nest: The new nest.
        batches: The batches.
        stacks: The tensors that copies gather, by the tensor that holds them.
    """

    nest: Nest
    batches: tuple[Batch, ...]
    stacks: Mapping[str, tuple[str, ...]]

    def __str__(self) -> str:
        lines = [
            *map(str, self.batches),
            *(f"{name} stacks {', '.join(of)}" for name, of in self.stacks.items()),
        ]
        return "\n".join(lines) or "no two statements compute the same on different tensors"


@recorded("batch")
@proving("the rewrite batch")
def batch(nest: Nest, *groups: tuple[str, ...]) -> Batched:
    """Batch isomorphic statements into one with an additional dimension.

    y0[i] = f(w0[i]); y1[i] = f(w1[i])  ->  y[m, i] = f(w[m, i])

    Args:
        nest: The nest.
        *groups: Statements to batch, a group each. Without groups, all statements are batched that compute the same on
            different tensors and can run at the same time; those that share loops with others or write different
            visible tensors are left alone.

    Returns:
        The new nest; the same one if there is nothing to batch.

    Raises:
        IllegalRewrite: if `why_not_batch` returns a reason.
        ValidationFailure: if the result's flow differs from the nest's: a compiler bug.
    """
    for group in groups:
        for pair in combinations(group, 2):
            if (why := why_not_batch(nest, *pair)) is not None:
                raise IllegalRewrite(why)
    wanted = {name: group for group in groups for name in group} if groups else None
    plan = _settled(nest, agenda(nest, wanted) if groups else _with_their_sums(nest, agenda(nest)))
    found = plan.groups
    sets = {frozenset(group) for group in found}
    for group in groups:
        if frozenset(group) not in sets:
            raise IllegalRewrite(_apart(group))
    if all(len(group) == 1 for group in found):
        return Batched(nest, (), {})
    made = plan.built()
    batches = tuple(Batch(group[0], group) for group in found if len(group) > 1)
    return Batched(proven(plan, made), batches, made.stacks)


def _with_their_sums(nest: Nest, found: tuple[Group, ...]) -> tuple[Group, ...]:
    """The groups, with first values apart whose sums are not batched: slices of one tensor are kept in memory.

    s = 0; q = 0; for j: s += y[j], q += y[j] * y[j]    s and q stay variables of their own
    """
    group_of = {name: group for group in found for name in group}
    sums = {t.name: set[Group]() for t in nest.tensors}
    for s in nest.statements:
        if s.reads:
            sums[s.write.tensor].add(group_of.get(s.name, (s.name,)))
    kept: list[Group] = []
    for group in found:
        targets = [nest.statement(name).write.tensor for name in group]
        own = [sums[target] for target in targets]
        first_values = not nest.statement(group[0]).reads and len(set(targets)) > 1
        apart = first_values and any(each != own[0] for each in own)
        kept += [(name,) for name in group] if apart else [group]
    return tuple(kept)


def _settled(nest: Nest, found: tuple[Group, ...]) -> Plan:
    """The groups cut into runs, which says again where temporaries lie, until nothing changes.

    Every cut makes groups smaller; where members only change places again and again, each stays by itself.
    """
    for _ in range(2 * len(nest.statements)):
        plan = Plan.of(nest, found)
        cut = plan.in_runs()
        if cut == found:
            return plan
        found = cut
    return Plan.of(nest, tuple((name,) for group in found for name in group))


def _apart(group: tuple[str, ...]) -> Refusal:
    return refused(
        f"batch{group}",
        "their slices of a shared tensor are not evenly spaced, or other batches lie between them",
        "evenly spaced slices, or fewer statements",
    )


@proving("the question why_not_batch")
def why_not_batch(nest: Nest, first: str, second: str) -> Refusal | None:
    """Return the reason why two statements cannot be batched.

    Args:
        nest: The nest.
        first: The name of a statement.
        second: The name of a statement.

    Returns:
        The reason; None if the rewrite is legal.
    """
    call = f"batch: {first} with {second}"
    apart = {names[0] for part in trees.parts(nest.order) if len(names := trees.statements(part)) == 1}
    one, other = nest.statement(first), nest.statement(second)
    shared = next((name for name in (first, second) if name not in apart), None)
    if shared is not None:
        return refused(
            call, f"{shared} shares its loops with other statements", "a statement with loops of its own"
        )
    needs = _needs(nest, first, second) or _needs(nest, second, first)
    if needs is not None:
        why, pairs = needs
        return refused(call, why, "statements that do not depend on each other", pairs)
    why_differ = difference(nest, one, other)
    if why_differ is not None:
        return refused(call, why_differ, "statements that differ only in their tensors")
    return None


def _needs(nest: Nest, first: str, second: str) -> tuple[str, isl.Map | None] | None:
    """Return the reason why the second must run after the first, with the pairs of instances of a direct dependence."""
    pairs = [p for p in nest.dependences().pairs if p.source != p.sink]
    direct = next((p for p in pairs if (p.source, p.sink) == (first, second)), None)
    if direct is not None:
        return f"{second} needs what {first} leaves ({direct.kind})", direct.map
    reached, front = set[str](), {first}
    while front:
        front = {p.sink for p in pairs if p.source in front} - reached
        reached |= front
    return (f"{second} needs what {first} leaves, through others", None) if second in reached else None

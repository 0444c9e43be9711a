"""View statements, the result of composing one, and the proof that every value keeps its source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import islpy as isl

from polyfuse.errors import IllegalRewrite, ValidationFailure
from polyfuse.errors.refusals import Refusal
from polyfuse.ir import Nest, Statement
from polyfuse.ir.dependences import Pairs
from polyfuse.ir.scalar import Read
from polyfuse.sets import OUT, maps_of, union_map

FLOW_OPERATIONS = 5_000_000
"""isl operations for the proof that a view's composition keeps every value's source; beyond them the view stays."""


@dataclass(frozen=True)
class Composed:
    """A nest without one of its views.

    Attributes:
        nest: The new nest.
        tensor: The temporary that was removed.
        statements: The view's statements.
        into: For each user, the statements that replace it.
        place: The tensor in which its elements are stored now; None if they are read through.
    """

    nest: Nest
    tensor: str
    statements: tuple[str, ...]
    into: Mapping[str, tuple[str, ...]]
    place: str | None = None

    def __str__(self) -> str:
        if self.place is not None:
            return f"{self.tensor} lives in {self.place}: no {', '.join(self.statements)}"
        cut = "; ".join(
            f"{name} in {len(parts)} parts" for name, parts in self.into.items() if len(parts) > 1
        )
        return f"{self.tensor} is read through, in {', '.join(self.into)}" + (f" ({cut})" if cut else "")


Wanted = Callable[[Composed], Refusal | None]
"""The reason why a composition is not wanted, whether it is legal or not; None if it is."""


def always(_: Composed) -> None:
    """Every composition is wanted."""


def is_view(s: Statement) -> bool:
    """True if a statement only copies an element of another tensor, or a number."""
    shown = isinstance(s.body, Read) or bool(s.body.is_number)
    return s.op == "=" and shown and all(access.tensor != s.write.tensor for access in s.reads)


def made(found: Composed | Refusal) -> Composed:
    """Check a composition as a nest, and return it; raise its refusal."""
    if isinstance(found, Refusal):
        raise IllegalRewrite(found)
    found.nest.check()
    return found


def checked(before: Nest, after: Nest, gone: frozenset[str], into: Mapping[str, tuple[str, ...]]) -> Nest:
    """The nest after, if every value comes from where it came from before."""
    lost = differences(before, after, gone, into)
    if lost is not None:
        raise ValidationFailure(f"composing {', '.join(sorted(gone))} changed the flow: {lost}")
    return after


def differences(
    before: Nest, after: Nest, gone: frozenset[str], into: Mapping[str, tuple[str, ...]]
) -> isl.Map | None:
    """Pairs that only one of the flows has: the old with pairs through what is gone composed, the new; None if equal.

    Sums' own pairs count as flow, since the pieces of a sum add to one another. Pairs of statements between which both
    have the very same relations, and nothing that is gone lies, need no proof: `Nest.rewritten` took them over.
    """
    was, now = before.pairs_through, after.pairs_through
    touched = [tensor for tensor in {**was, **now} if was.get(tensor) is not now.get(tensor)]
    changed = [p for through in (was, now) for t in touched for p in through.get(t, ()) if p.is_value]
    ends = {(p.source, p.sink) for p in changed}
    sources = {p.source for p in changed if p.sink in gone}
    sinks = {p.sink for p in changed if p.source in gone}

    def unproven(nest: Nest) -> list[Pairs]:
        names = {*sources, *(source for source, _ in ends)} & nest.names
        return [
            p
            for tensor in {nest.statement(name).write.tensor for name in names}
            for p in nest.flow_through(tensor)
            if (p.source, p.sink) in ends or (p.source in sources and p.sink in sinks)
        ]

    expected = union_map(p.map for p in unproven(before))
    for name in gone:
        here = isl.UnionSet.from_set(before.domains[name])
        through = expected.intersect_range(here).apply_range(expected.intersect_domain(here))
        expected = expected.subtract_domain(here).subtract_range(here).union(through)
    left = unproven(after)
    whole = {part: name for name, parts in into.items() for part in parts}
    back = union_map(
        _origin(after.domains[part], whole.get(part, part))
        for part in dict.fromkeys(n for p in left for n in (p.source, p.sink))
    )
    found = union_map(p.map for p in left).apply_domain(back).apply_range(back)
    for difference in (expected.subtract(found), found.subtract(expected)):
        for pair in maps_of(difference):
            return pair
    return None


def _origin(piece: isl.Set, name: str) -> isl.Map:
    """{ S_2[i] -> S[i] }."""
    same = isl.Map.identity(piece.get_space().map_from_set()).intersect_domain(piece)
    return same.set_tuple_name(OUT, name)

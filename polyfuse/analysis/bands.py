"""Exact facts about loops from dependences: parallel, permutable, and what prevents it.

    parallel     no dependence lies between two values of the loop (coincident)
    permutable   perfectly nested loops, each with no dependence that runs backwards: they may swap and be tiled
    skewed by f  i + f*t instead of i: the smallest f >= 0 for which no dependence runs backwards any more

{ S[t, i] -> S[t + 1, i - 1] }: t carries it, i runs backwards; i + t has distance 0, so t and i + t are permutable.
A reduction's own pairs may run backwards, but not at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import islpy as isl

from polyfuse.analysis.legality import differing
from polyfuse.errors.refusals import Instance
from polyfuse.ir.dependences import Pairs
from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import Loop, Tree, children, loops_around, statements
from polyfuse.sets import first_pair

LARGEST_SKEW = 4
"""The largest factor that is tried: a stencil that reaches further gains nothing from time tiles."""


@dataclass(frozen=True)
class Carried:
    """A dependence between two values of a loop, with two instances that show it."""

    kind: str
    source: Instance
    sink: Instance

    def __str__(self) -> str:
        return f"{self.kind} {self.source} -> {self.sink}"


@dataclass(frozen=True)
class LoopFacts:
    """One loop of a tree: its depth among loops, and what it carries (None: its values may run at once)."""

    loop: Loop
    depth: int
    carried: Carried | None

    @property
    def parallel(self) -> bool:
        """True if no dependence connects two different values."""
        return self.carried is None


def among(nest: Nest, tree: Tree) -> tuple[Pairs, ...]:
    """The dependences among the statements of a tree."""
    inside = set(statements(tree))
    return nest.pairs_in_order.among(inside)


def within(loop: Loop, pairs: tuple[Pairs, ...]) -> tuple[Pairs, ...]:
    """The pairs that lie in one iteration of a loop."""
    inside = set(statements(loop))
    kept = []
    for pair in pairs:
        if pair.source in inside and pair.sink in inside:
            same = pair.inside(loop.date(pair.source), loop.date(pair.sink))
            if not same.is_empty:
                kept.append(same)
    return tuple(kept)


def open_at(nest: Nest, tree: Tree, loop: Loop) -> tuple[Pairs, ...]:
    """The dependences among a loop's statements that no loop around it carries."""
    pairs = among(nest, loop)
    for outer in loops_around(tree, statements(loop)[0]):
        if outer is loop:
            break
        pairs = within(outer, pairs)
    return pairs


def carried_by(loop: Loop, pairs: tuple[Pairs, ...]) -> Carried | None:
    """The first pair with its ends at different values of a loop; None: the loop is parallel for these pairs."""
    for pair in pairs:
        source, sink = loop.date(pair.source), loop.date(pair.sink)
        found = first_pair(differing(pair.map, source, sink)) if pair.differs(source, sink) else None
        if found is not None:
            _, first, second = found
            return Carried(pair.kind, Instance(pair.source, first), Instance(pair.sink, second))
    return None


def is_parallel(loop: Loop, pairs: tuple[Pairs, ...]) -> bool:
    """True if no pair has its ends at different values of a loop."""
    return not any(pair.differs(loop.date(pair.source), loop.date(pair.sink)) for pair in pairs)


def facts(nest: Nest, tree: Tree) -> tuple[LoopFacts, ...]:
    """Every loop of a tree, outer before inner, with what it carries of the dependences still open there."""
    return tuple(_facts(tree, among(nest, tree), 0))


def _facts(tree: Tree, pairs: tuple[Pairs, ...], depth: int) -> Iterator[LoopFacts]:
    if isinstance(tree, Loop):
        yield LoopFacts(tree, depth, carried_by(tree, pairs))
        pairs, depth = within(tree, pairs), depth + 1
    for child in children(tree):
        own = set(statements(child))
        yield from _facts(child, tuple(p for p in pairs if {p.source, p.sink} <= own), depth)


def runs_forward(loop: Loop, pairs: tuple[Pairs, ...]) -> bool:
    """True if no ordered pair runs backwards along a loop: { S[i] -> S[i'] } implies date(i) <= date(i')."""
    return all(_forward(pair, loop.date(pair.source), loop.date(pair.sink)) for pair in pairs)


def _forward(pair: Pairs, source: isl.PwAff, sink: isl.PwAff) -> bool:
    return pair.kind == "reduction" or pair.where(source, ">", sink).is_empty


def permutable(tree: Tree, pairs: tuple[Pairs, ...]) -> tuple[Loop, ...]:
    """The largest permutable band that a tree begins with: perfectly nested loops along which all pairs run forward."""
    band: list[Loop] = []
    while isinstance(tree, Loop) and runs_forward(tree, pairs):
        band.append(tree)
        tree = tree.body
    return tuple(band)


def skew_factor(inner: Loop, outer: Loop, pairs: tuple[Pairs, ...]) -> int | None:
    """The smallest f >= 0 with which inner + f*outer runs forward; None if none up to LARGEST_SKEW does."""
    for factor in range(LARGEST_SKEW + 1):
        dates = {n: d.add(outer.date(n).scale_val(isl.Val(factor))) for n, d in inner.dates}
        if all(_forward(p, dates[p.source], dates[p.sink]) for p in pairs):
            return factor
    return None


def skews(chain: tuple[Loop, ...], pairs: tuple[Pairs, ...]) -> dict[tuple[str, str], int]:
    """{(loop, loop around it): factor} that make a chain permutable as far as possible; loops with factor 0 left out.

    Each loop is skewed by one loop around it, the outermost that does.
    """
    found: dict[tuple[str, str], int] = {}
    for position, inner in enumerate(chain):
        if position == 0 or runs_forward(inner, pairs):
            continue
        tried = ((outer, skew_factor(inner, outer, pairs)) for outer in chain[:position])
        outer, factor = next(((o, f) for o, f in tried if f is not None), (None, None))
        if outer is None or factor is None:
            break
        found[inner.name, outer.name] = factor
    return found

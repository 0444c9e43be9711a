"""Compose views: substitute temporaries that only copy elements of other tensors, or numbers, into their users.

    for i: T[i] = x[2 i]                      for i: y[i] = x[2 i] + x[2 i + 2]
    for i: y[i] = T[i] + T[i + 1]       ->                                          read through: y reads x itself

    for i: T[i] = x[i]                        for i < 4:  y[i] = f(x[i])
    for i: T[i + 4] = z[i]              ->    for i >= 4: y[i] = f(z[i - 4])        read through, in pieces
    for i: y[i] = f(T[i])

    for i: a[i] = g(i)                        for i: T[i + 4] = g(i)
    for i: T[i + 4] = a[i]              ->                                          in place: a lives in T

A *view statement* is T[w(i)] = x[r(i)], or T[w(i)] = a number. The theorem for reading through: let view statements
alone write T, each element once. The read T[e(y)] finds what the one instance p(y) = w⁻¹(e(y)) stored; it may read
x[r(p(y))] itself iff nothing has written that element between the two dates. Where several statements write parts of T,
the reader's domain is cut into the parts on which each read has one source; dates stay as they were.
The theorem for living in place: let f = w ∘ r⁻¹ be a function on all of x's elements, and P the only statement that
writes f's elements of T. Then x[e] may be T[f(e)] throughout iff every read still finds the value it found.

Both are checked on the exact flow of the result: it is that of the nest with pairs through P composed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from polyfuse.errors.proving import proving
from polyfuse.errors.refusals import Refusal
from polyfuse.ir import Nest, Statement
from polyfuse.ir.nest_data import differing
from polyfuse.rewrite.dead_instances import Use, needed
from polyfuse.rewrite.inline import inline, why_not_inline
from polyfuse.rewrite.views.flow import Composed, Wanted, is_view
from polyfuse.rewrite.views.in_place_of import moved_to, placed
from polyfuse.rewrite.views.read_through import through


@dataclass(frozen=True)
class Views:
    """The result of `compose_views`.

    Attributes:
        nest: The new nest.
        composed: The views that were removed.
        kept: The reasons why others were not.
    """

    nest: Nest
    composed: tuple[Composed, ...]
    kept: tuple[Refusal, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, (*self.composed, *self.kept))) or "there are no views"


Accept = Callable[[Nest, "Composed"], str | None]
"""The reason to keep a view that could be composed; None to compose it."""


def always(_: Nest, __: Composed) -> None:
    """Accept every view: keep none."""


NOTHING: Mapping[str, str] = {}


@proving("the rewrite compose_views")
def compose_views(nest: Nest, accept: Accept = always, keep: Mapping[str, str] = NOTHING) -> Views:
    """Compose every view into its readers and writers, as far as that is legal.

    A temporary that one statement fills is read through. If several fill it (concat, stack), parts that are computed
    are stored directly in it, and the others are read through. An output that is filled through a view is written
    directly, and elements that no view shows are not computed.

    Args:
        nest: The nest.
        accept: Returns a reason to keep a view, or None.
        keep: Reasons by view; these views are not tried.

    Returns:
        The new nest.
    """
    found = _Composition(nest, accept, keep)
    done: list[Composed] = []
    while (step := found.step()) is not None:
        if isinstance(step, Composed):
            done.append(step)
        found.take(step.nest if isinstance(step, Composed) else step)
    if done:
        found.nest.check()
    left = {s.name for s in found.nest.statements}
    return Views(
        found.nest, tuple(done), tuple(refusal for name, refusal in found.kept.items() if name in left)
    )


class _Composition:
    """A nest on the way: which views are still to be tried, and why others stay.

    Each step composes the first view in the nest's order that can be. Whether one can depends on what touches its own
    tensor, what it and the others that fill it show, and the operands of what computes that: after a step only those
    views are tried again that it concerns. `accept` may look at more, and is asked again in the end alone.
    """

    def __init__(self, nest: Nest, accept: Accept, keep: Mapping[str, str]) -> None:
        self.nest, self.accept, self.keep = nest, accept, keep
        self.kept: dict[str, Refusal] = {}
        self.untried = {s.name for s in nest.statements}
        self.unwanted: set[str] = set()  # views that `accept` has kept, of the nest as it is
        self.outdated: set[str] = set()  # and of the nest as it was
        self.showing: set[str] = set()  # views that show the caller what is computed
        self.cut: Nest | None = None
        self.uses: dict[str, Use] = {}

    def step(self) -> Composed | Nest | None:
        """The next view composed, or the nest without what no view needs; why others stay is noted."""
        found = self._first()
        if found is None and self.outdated:
            self.untried |= self.outdated
            self.outdated.clear()
            return self._first()
        return found

    def take(self, nest: Nest) -> None:
        """Go on with the nest after a step."""
        before, self.nest, self.cut = self.nest, nest, None
        gone, made = differing(before.statements, nest.statements)
        changed = (*gone, *made)
        self.untried |= {s.name for s in changed}
        for tensor in {name for s in changed for name in s.tensors}:
            if before.writers(tensor) or nest.writers(tensor):
                self.untried |= {s.name for s in nest.writers(tensor)}
                for target in {s.write.tensor for s in nest.readers(tensor)}:
                    self.untried |= {s.name for s in (*nest.writers(target), *nest.readers(target))}
        self.outdated |= self.unwanted
        self.unwanted.clear()
        self.untried -= self.outdated

    def _first(self) -> Composed | Nest | None:
        for s in self.nest.statements:
            untried = s.name in self.untried
            refusal = self._tried(s) if untried else None
            if isinstance(refusal, Composed):
                return refusal
            if s.name in self.showing:
                self.cut = needed(self.nest, self.uses) if self.cut is None else self.cut
                if self.cut is not self.nest:
                    return self.cut
                if untried and (there := _computed_there(self.nest, s)) is not None:
                    return there
            if refusal is not None:
                self.kept[s.name] = refusal
            self.untried.discard(s.name)
        return None

    def _tried(self, s: Statement) -> Composed | Refusal | None:
        """The nest without a view, or why it stays; None if there is none to try."""
        nest = self.nest
        for noted in (self.showing, self.unwanted, self.outdated):
            noted.discard(s.name)
        if not is_view(s) or not s.reads:
            return None  # numbers go with the rest of their tensor
        fills = nest.writers(s.write.tensor)
        stays = next((x.name for x in fills if x.name in self.keep), None)
        if stays is not None:
            return Refusal(f"composing {s.name}", self.keep[stays], "another schedule")

        def wanted(made: Composed) -> Refusal | None:
            why = self.accept(nest, made)
            if why is None:
                return None
            self.unwanted.add(s.name)
            return Refusal(f"composing {s.name}", why, "another schedule")

        ways = (placed, _read_through) if len(fills) > 1 else (_read_through, placed)
        refusals: list[Refusal] = []
        for way in ways:
            found = way(nest, s, wanted)
            if not isinstance(found, Refusal):
                return found
            refusals.append(found)
        visible = nest.tensor(s.write.tensor).role != "temporary"
        if visible and any(not is_view(x) for x in nest.writers(s.reads[0].tensor)):
            self.showing.add(s.name)
        return refusals[ways.index(placed) if visible else 0]  # what is visible is never read through


def _read_through(nest: Nest, s: Statement, wanted: Wanted) -> Composed | Refusal:
    return through(nest, s.write.tensor, wanted)


def _computed_there(nest: Nest, s: Statement) -> Composed | None:
    """A value that only a view into a visible tensor shows, each element once, computed where it is shown."""
    source = s.reads[0].tensor
    users = [x for x in nest.statements if source in x.tensors and x is not s]
    if len(users) != 1 or not moved_to(nest, s).is_single_valued() or why_not_inline(nest, users[0].name):
        return None
    done = inline(nest, users[0].name)
    return Composed(done.nest, source, (users[0].name,), {s.name: (s.name,)}, s.write.tensor)

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

from polyfuse.ir import Nest, Statement
from polyfuse.proving import proving
from polyfuse.refusals import Refusal
from polyfuse.rewrite.dead_instances import needed
from polyfuse.rewrite.inline import inline, why_not_inline
from polyfuse.rewrite.views.flow import Composed, is_view
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
"""Why a view should stay although it could be composed; None where it should not."""


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
    done: list[Composed] = []
    kept: dict[str, Refusal] = {}
    while (step := _step(nest, kept, accept, keep)) is not None:
        if isinstance(step, Composed):
            done.append(step)
            nest = step.nest
        else:
            nest = step
    if done:
        nest.check()
    left = {s.name for s in nest.statements}
    return Views(nest, tuple(done), tuple(refusal for name, refusal in kept.items() if name in left))


def _step(
    nest: Nest, kept: dict[str, Refusal], accept: Accept, keep: Mapping[str, str]
) -> Composed | Nest | None:
    """The next view composed, or the nest without what no view needs; why others stay is noted."""
    computed = {s.write.tensor for s in nest.statements if not is_view(s)}
    for s in nest.statements:
        if not is_view(s) or not s.reads:
            continue  # numbers go with the rest of their tensor
        fills = nest.writers(s.write.tensor)
        stays = next((x.name for x in fills if x.name in keep), None)
        if stays is not None:
            kept[s.name] = Refusal(f"composing {s.name}", keep[stays], "another schedule")
            continue
        ways = (placed, _read_through) if len(fills) > 1 else (_read_through, placed)
        refusals: list[Refusal] = []
        for way in ways:
            found = way(nest, s)
            if isinstance(found, Refusal):
                refusals.append(found)
            elif (why := accept(nest, found)) is None:
                return found
            else:
                refusals.append(Refusal(f"composing {s.name}", why, "another schedule"))
        visible = nest.tensor(s.write.tensor).role != "temporary"
        if visible and s.reads[0].tensor in computed:
            if (cut := needed(nest)) is not nest:
                return cut
            if (there := _computed_there(nest, s)) is not None:
                return there
        kept[s.name] = refusals[ways.index(placed) if visible else 0]  # what is visible is never read through
    return None


def _read_through(nest: Nest, s: Statement) -> Composed | Refusal:
    return through(nest, s.write.tensor)


def _computed_there(nest: Nest, s: Statement) -> Composed | None:
    """A value that only a view into a visible tensor shows, each element once, computed where it is shown."""
    source = s.reads[0].tensor
    users = [x for x in nest.statements if source in x.tensors and x is not s]
    if len(users) != 1 or not moved_to(nest, s).is_single_valued() or why_not_inline(nest, users[0].name):
        return None
    done = inline(nest, users[0].name)
    return Composed(done.nest, source, (users[0].name,), {s.name: (s.name,)}, s.write.tensor)

"""Views: a temporary that only shows elements of other tensors, or numbers, disappears into those who use it.

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

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import islpy as isl

from polyfuse.errors import IllegalRewrite, ValidationFailure
from polyfuse.ir import Access, Nest, Statement
from polyfuse.ir.dependences import Dependences, earlier
from polyfuse.ir.scalar import Read
from polyfuse.ir.tree import Leaf, Loop, Sequence, Tree, restrict, sequence
from polyfuse.rewrite.inline import (
    from_sources,
    inline,
    overwritten,
    reads,
    twice_written,
    why_not_inline,
)
from polyfuse.rewrite.needed import needed
from polyfuse.rewrite.refusal import Refusal, refused
from polyfuse.sets import OUT, maps_of, union_map


@dataclass(frozen=True)
class Composed:
    """A nest without one of its views. `into` says for each of the users which statements now do its work."""

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


@dataclass(frozen=True)
class Views:
    """A nest after its views, what was composed, and why the others still are statements."""

    nest: Nest
    composed: tuple[Composed, ...]
    kept: tuple[Refusal, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, (*self.composed, *self.kept))) or "there are no views"


def is_view(s: Statement) -> bool:
    """Whether a statement only shows an element of another tensor, or a number."""
    shown = isinstance(s.body, Read) or bool(s.body.is_number)
    return s.op == "=" and shown and all(access.tensor != s.write.tensor for access in s.reads)


Accept = Callable[[Nest, "Composed"], str | None]
"""Why a view should stay although it could be composed; None where it should not."""


def always(_: Nest, __: Composed) -> None:
    """No view stays that can be composed."""


def compose_views(nest: Nest, accept: Accept = always) -> Views:
    """Every view of a nest composed into its users, as far as that is possible.

    A temporary that one statement fills is read through. Of one that several fill (concat, stack), computed parts live
    in it, and the rest is read through. What is computed for an output through a view is computed in the output, and
    what no view shows is not computed. `accept` may ask to keep a view.
    """
    done: list[Composed] = []
    kept: dict[str, Refusal] = {}
    while (step := _step(nest, kept, accept)) is not None:
        if isinstance(step, Composed):
            done.append(step)
            nest = step.nest
        else:
            nest = step
    left = {s.name for s in nest.statements}
    return Views(nest, tuple(done), tuple(refusal for name, refusal in kept.items() if name in left))


def _step(nest: Nest, kept: dict[str, Refusal], accept: Accept) -> Composed | Nest | None:
    """The next view composed, or the nest without what no view needs; why others stay is noted."""
    filled = [s.write.tensor for s in nest.statements]
    computed = {s.write.tensor for s in nest.statements if not is_view(s)}
    for s in nest.statements:
        if not is_view(s) or not s.reads:
            continue  # numbers go with the rest of their tensor
        several = filled.count(s.write.tensor) > 1
        ways = (_placed, _read_through) if several else (_read_through, _placed)
        refusals = []
        for way in ways:
            found = way(nest, s)
            why = accept(nest, found) if isinstance(found, Composed) else None
            if isinstance(found, Composed) and why is None:
                return found
            refusals.append(Refusal(f"composing {s.name}", why, "another schedule") if why else found)
        visible = nest.tensor(s.write.tensor).role != "temporary"
        if visible and s.reads[0].tensor in computed:
            if (cut := needed(nest)) is not nest:
                return cut
            if (there := _computed_there(nest, s)) is not None:
                return there
        kept[s.name] = next(
            r for r in refusals if isinstance(r, Refusal) and (not visible or "place" in r.rewrite)
        )
    return None


def _placed(nest: Nest, s: Statement) -> Composed | Refusal:
    return place(nest, s.name) if (why := why_not_place(nest, s.name)) is None else why


def _read_through(nest: Nest, s: Statement) -> Composed | Refusal:
    tensor = s.write.tensor
    return read_through(nest, tensor) if (why := why_not_read_through(nest, tensor)) is None else why


def _computed_there(nest: Nest, s: Statement) -> Composed | None:
    """A value that only a view into a visible tensor shows, each element once, computed where it is shown."""
    source = s.reads[0].tensor
    users = [x for x in nest.statements if source in x.tensors and x is not s]
    if len(users) != 1 or not _moved_to(nest, s).is_single_valued() or why_not_inline(nest, users[0].name):
        return None
    done = inline(nest, users[0].name)
    return Composed(done.nest, source, (users[0].name,), {s.name: (s.name,)}, s.write.tensor)


# -- reading through ---------------------------------------------------------------------------------------------------


def read_through(nest: Nest, tensor: str) -> Composed:
    """P: T[i] = x[i + 3];  R: … T[j] …  ->  R: … x[j + 3] …

    Raises IllegalRewrite where `why_not_read_through` says why, ValidationFailure if the result's flow is not that of
    the nest, which would be a bug.
    """
    why = why_not_read_through(nest, tensor)
    if why is not None:
        raise IllegalRewrite(why)
    sources = tuple(s for s in nest.statements if s.write.tensor == tensor)
    gone = frozenset(s.name for s in sources)
    taken = {s.name for s in nest.statements}
    pieces: dict[str, tuple[Statement, ...]] = {}
    for s in nest.statements:
        if reads(s, tensor):
            pieces[s.name] = tuple(_pieces(s, tensor, sources, taken))
    order = restrict(nest.order, frozenset(s.name for s in nest.statements) - gone)
    assert order is not None, "a view has a reader"
    into = {name: tuple(p.name for p in parts) for name, parts in pieces.items()}
    result = replace(
        nest,
        tensors=tuple(t for t in nest.tensors if t.name != tensor),
        statements=tuple(p for s in nest.statements if s.name not in gone for p in pieces.get(s.name, (s,))),
        order=with_pieces(order, into),
    )
    return Composed(checked(nest, result, gone, into), tensor, tuple(sorted(gone)), into)


def why_not_read_through(nest: Nest, tensor: str) -> Refusal | None:
    """Why a temporary cannot be read through; None if it can."""
    call = f"read_through({tensor!r})"
    target = nest.tensor(tensor)
    sources = [s for s in nest.statements if s.write.tensor == tensor]
    users = [s for s in nest.statements if reads(s, tensor)]

    def no(why: str, remedy: str, pairs: isl.Map | None = None) -> Refusal:
        return refused(call, why, remedy, pairs)

    if target.role != "temporary":
        return no(f"{tensor} is visible to the caller ({target.role})", "a temporary")
    if not users or not sources:
        return no(
            f"nothing {'reads' if sources else 'writes'} {tensor}", "a temporary that is written and read"
        )
    computing = next((s.name for s in sources if not is_view(s)), None)
    if computing is not None:
        return no(
            f"{computing} computes {tensor}",
            "`inline`, or statements that only show elements of other tensors",
        )
    types = {nest.tensor(a.tensor).dtype for s in (*sources, *users) for a in (s.write, *s.reads)}
    if len(types) > 1:
        return no(
            f"values of {' and '.join(sorted(types))} meet in the users of {tensor}", "one element type"
        )
    twice = next((pair for pair in _written_twice(nest, sources)), None)
    if twice is not None:
        return no(f"both write one element of {tensor}", "`expand`, where loops tell its values apart", twice)
    for s in sources:
        lost = overwritten(nest, s)
        if lost is not None:
            why = f"what {tensor} shows is overwritten before it is read"
            return no(why, "a reader that runs before that", lost)
    return None


def _written_twice(nest: Nest, sources: list[Statement]) -> Iterator[isl.Map]:
    """Pairs of different instances of some statements that write one element."""
    for position, s in enumerate(sources):
        own = twice_written(nest, s)
        if own is not None:
            yield own
        for other in sources[:position]:
            first, second = (x.write.map.intersect_domain(nest.domains[x.name]) for x in (other, s))
            both = first.apply_range(second.reverse())
            if not both.is_empty():
                yield both


def _pieces(
    s: Statement, tensor: str, sources: tuple[Statement, ...], taken: set[str]
) -> Iterator[Statement]:
    """The reader on each part of its domain where every read of the tensor has one source."""
    cells: list[tuple[isl.Set, dict[int, Statement]]] = [(s.domain, {})]
    for position, access in enumerate(s.reads):
        if access.tensor == tensor:
            parts = [(source, access.map.intersect_range(_written(source)).domain()) for source in sources]
            cells = [
                (here, {**of, position: source})
                for cell, of in cells
                for source, part in parts
                if not (here := cell.intersect(part)).is_empty()
            ]
    for number, (cell, of) in enumerate(cells):
        name = (
            s.name if number == 0 else next(n for k in range(2, 10**6) if (n := f"{s.name}_{k}") not in taken)
        )
        taken.add(name)
        domain = s.domain if len(cells) == 1 else cell.coalesce()
        yield from_sources(renamed(s, name, domain), of)


def _written(source: Statement) -> isl.Set:
    return source.write.map.intersect_domain(source.domain).range()


def renamed(s: Statement, name: str, domain: isl.Set) -> Statement:
    """The statement under another name, on a part of its domain."""
    return replace(
        s,
        name=name,
        domain=domain.set_tuple_name(name),
        write=_from(s.write, name),
        reads=tuple(_from(access, name) for access in s.reads),
    )


def _from(access: Access, name: str) -> Access:
    return replace(access, map=access.map.set_tuple_name(isl.dim_type.in_, name))


def with_pieces(tree: Tree, into: Mapping[str, tuple[str, ...]]) -> Tree:
    """The order with each statement's pieces where it stood: at every date, they follow one another."""
    match tree:
        case Leaf(name):
            return sequence(tuple(Leaf(part) for part in into.get(name, (name,))))
        case Loop():
            dates = tuple(
                (part, _date_of(part, date)) for name, date in tree.dates for part in into.get(name, (name,))
            )
            return replace(tree, body=with_pieces(tree.body, into), dates=dates)
        case Sequence():
            return sequence(tuple(with_pieces(child, into) for child in tree.children))


def _date_of(piece: str, date: isl.PwAff) -> isl.PwAff:
    return isl.PwMultiAff.from_map(date.as_map().set_tuple_name(isl.dim_type.in_, piece)).get_pw_aff(0)


# -- living in place ---------------------------------------------------------------------------------------------------


def place(nest: Nest, statement: str) -> Composed:
    """W: a[i] = …;  P: T[i + 4] = a[i];  R: … a[j] …  ->  W: T[i + 4] = …;  R: … T[j + 4] …

    Raises IllegalRewrite where `why_not_place` says why.
    """
    why = why_not_place(nest, statement)
    if why is not None:
        raise IllegalRewrite(why)
    result = _in_place(nest, nest.statement(statement))
    result.check()
    source = nest.statement(statement).reads[0].tensor
    users = {s.name: (s.name,) for s in nest.statements if source in s.tensors and s.name != statement}
    return Composed(result, source, (statement,), users, nest.statement(statement).write.tensor)


def why_not_place(nest: Nest, statement: str) -> Refusal | None:
    """Why what a view shows cannot live in the view's tensor; None if it can."""
    s = nest.statement(statement)
    call, target = f"place({statement!r})", s.write.tensor

    def no(why: str, remedy: str, pairs: isl.Map | None = None) -> Refusal:
        return refused(call, why, remedy, pairs)

    if not is_view(s) or not s.reads:
        return no(
            f"{statement} computes what it writes", "a statement that only shows elements of another tensor"
        )
    source = nest.tensor(s.reads[0].tensor)
    if source.role != "temporary":
        return no(f"{source.name} is not made here ({source.role})", "a temporary")
    if source.dtype != nest.tensor(target).dtype:
        return no(f"{source.name} is {source.dtype}, {target} is not", "one element type")
    moved = _moved_to(nest, s)
    if not moved.is_single_valued():
        return no(
            f"elements of {source.name} would have several places in {target}", "a view that repeats nothing"
        )
    if not moved.is_injective():
        return no(
            f"several elements of {source.name} would have one place in {target}", "a view written once"
        )
    for w in nest.statements:
        written = _within(nest, w)
        if w.write.tensor == source.name and not written.is_subset(moved.domain()):
            return no(
                f"{w.name} computes elements of {source.name} that have no place in {target}",
                "a view of all that is computed",
            )
        if w.write.tensor == target and w is not s and not written.is_disjoint(moved.range()):
            return no(
                f"{w.name} writes the same elements of {target}", "a view that alone writes its elements"
            )
    shown = isl.UnionMap.from_map(s.reads[0].map.intersect_domain(nest.domains[statement]))
    changed = earlier(shown, nest.accesses.writes, nest.original_dates())
    for pair in maps_of(changed):
        return no(
            f"{source.name} is written again after {statement} shows it", "`expand`, or another tensor", pair
        )
    lost = _differences(nest, _in_place(nest, s), frozenset({statement}), {})
    if lost is not None:
        return no(
            f"a value of {target} would be overwritten before its last use",
            "values that do not overlap",
            lost,
        )
    return None


def _within(nest: Nest, s: Statement) -> isl.Set:
    return s.write.map.intersect_domain(nest.domains[s.name]).range()


def _moved_to(nest: Nest, s: Statement) -> isl.Map:
    """{ x[e] -> T[f(e)] } for a view statement T[w(i)] = x[r(i)]."""
    domain = nest.domains[s.name]
    shown, target = (a.map.intersect_domain(domain) for a in (s.reads[0], s.write))
    return shown.reverse().apply_range(target).coalesce()


def _in_place(nest: Nest, s: Statement) -> Nest:
    """The nest in which the view's source lives in its target."""
    source, target, moved = s.reads[0].tensor, s.write.tensor, _moved_to(nest, s)

    def access(user: Statement, a: Access) -> Access:
        if a.tensor != source:
            return a
        return Access(target, a.map.apply_range(moved).gist_domain(user.domain))

    kept = tuple(
        replace(x, write=access(x, x.write), reads=tuple(access(x, a) for a in x.reads))
        if source in x.tensors
        else x
        for x in nest.statements
        if x is not s
    )
    order = restrict(nest.order, frozenset(x.name for x in kept))
    assert order is not None, "what a view shows is written"
    tensors = tuple(t for t in nest.tensors if t.name != source)
    return replace(nest, tensors=tensors, statements=kept, order=order)


# -- the proof ---------------------------------------------------------------------------------------------------------


def checked(before: Nest, after: Nest, gone: frozenset[str], into: Mapping[str, tuple[str, ...]]) -> Nest:
    """The nest after, if every value comes from where it came from before."""
    lost = _differences(before, after, gone, into)
    if lost is not None:
        raise ValidationFailure(f"composing {', '.join(sorted(gone))} changed the flow: {lost}")
    after.check()
    return after


def _differences(
    before: Nest, after: Nest, gone: frozenset[str], into: Mapping[str, tuple[str, ...]]
) -> isl.Map | None:
    """Pairs that only one of the flows has: the old with pairs through what is gone composed, the new; None if equal.

    Sums' own pairs count as flow, since the pieces of a sum add to one another.
    """
    expected = _values(before.dependences())
    for name in gone:
        here = isl.UnionSet.from_set(before.domains[name])
        through = expected.intersect_range(here).apply_range(expected.intersect_domain(here))
        expected = expected.subtract_domain(here).subtract_range(here).union(through)
    back = union_map(
        _origin(after.domains[part], name)
        for name in (s.name for s in before.statements if s.name not in gone)
        for part in into.get(name, (name,))
    )
    found = _values(after.dependences()).apply_domain(back).apply_range(back)
    for difference in (expected.subtract(found), found.subtract(expected)):
        for pair in maps_of(difference):
            return pair
    return None


def _values(dependences: Dependences) -> isl.UnionMap:
    return dependences.flow.union(dependences.reduction)


def _origin(piece: isl.Set, name: str) -> isl.Map:
    """{ S_2[i] -> S[i] }."""
    same = isl.Map.identity(piece.get_space().map_from_set()).intersect_domain(piece)
    return same.set_tuple_name(OUT, name)

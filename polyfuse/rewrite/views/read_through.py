"""Read through a view: its readers access the viewed tensors, split by tensor if there are several (compose.py)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import replace

import islpy as isl
import numpy as np

from polyfuse.errors.budget import within
from polyfuse.errors.proving import proving
from polyfuse.errors.refusals import Refusal
from polyfuse.ir import Access, Nest, Statement
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.tree import Leaf, Loop, Sequence, Tree, restrict, sequence
from polyfuse.rewrite.index_set_splitting import feeds
from polyfuse.rewrite.inline import from_sources, overwritten, twice_written
from polyfuse.rewrite.recorded import recorded
from polyfuse.rewrite.refusal import refused
from polyfuse.rewrite.views.flow import FLOW_OPERATIONS, Composed, Wanted, always, checked, is_view, made
from polyfuse.sets import mixes_results


@proving("the rewrite read_through")
def read_through(nest: Nest, tensor: str) -> Composed:
    """Read through a view: its readers read the viewed tensor directly.

    P: T[i] = x[i + 3];  R: … T[j] …  ->  R: … x[j + 3] …

    Args:
        nest: The nest.
        tensor: The temporary that views fill.

    Returns:
        The new nest.

    Raises:
        IllegalRewrite: if `why_not_read_through` returns a reason.
        ValidationFailure: if the result's flow differs from the nest's: a compiler bug.
    """
    return made(through(nest, tensor))


@recorded("read_through", without=("wanted",))
def through(nest: Nest, tensor: str, wanted: Wanted = always) -> Composed | Refusal:
    """Return the result of `read_through`, its flow proven, or the reason why not; only what is `wanted` is proven."""
    why = why_not_read_through(nest, tensor)
    if why is not None:
        return why
    sources = nest.writers(tensor)
    gone = frozenset(s.name for s in sources)
    taken = {s.name for s in nest.statements}
    pieces: dict[str, tuple[Statement, ...]] = {}
    for s in nest.readers(tensor):
        pieces[s.name] = tuple(_by_source(s, tensor, sources, taken))
    mixed = next(
        (p for every in pieces.values() for p in every if any(mixes_results(a.map) for a in p.reads)), None
    )
    if mixed is not None:
        why_mixed = f"subscripts of {mixed.name} would be tied to each other by quotients"
        return refused(f"read_through({tensor!r})", why_mixed, "a view of whole axes")
    order = restrict(nest.order, frozenset(s.name for s in nest.statements) - gone)
    assert order is not None, "a view has a reader"
    into = {name: tuple(p.name for p in parts) for name, parts in pieces.items()}
    tensors = tuple([t for t in nest.tensors if t.name != tensor])
    kept = tuple([p for s in nest.statements if s.name not in gone for p in pieces.get(s.name, (s,))])
    order = with_pieces(order, into)
    touched = {tensor, *(access.tensor for s in sources for access in s.reads)}
    touched |= {t for s in nest.readers(tensor) if len(into[s.name]) > 1 for t in s.tensors}
    result = nest.rewritten(tensors, kept, order, frozenset(touched))
    found = Composed(result, tensor, tuple(sorted(gone)), into)
    unwanted = wanted(found)
    if unwanted is not None:
        return unwanted
    limited = f"isl needs more than {FLOW_OPERATIONS} operations to prove that every value keeps its source"
    proven = within(
        nest.context.get_ctx(),
        FLOW_OPERATIONS,
        lambda: checked(nest, result, gone, into),
        lambda: refused(f"read_through({tensor!r})", limited, "a simpler view"),
    )
    return proven if isinstance(proven, Refusal) else found


@proving("the question why_not_read_through")
def why_not_read_through(nest: Nest, tensor: str) -> Refusal | None:
    """Return the reason why a temporary cannot be read through.

    Args:
        nest: The nest.
        tensor: The temporary that views fill.

    Returns:
        The reason; None if the rewrite is legal.
    """
    call = f"read_through({tensor!r})"
    target = nest.tensor(tensor)
    sources, users = nest.writers(tensor), nest.readers(tensor)

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
            "`inline`, or views, which only copy elements of other tensors",
        )
    types = {nest.tensor(a.tensor).dtype for s in users for a in (s.write, *s.reads)}
    changed = next((what for s in sources if (what := _changed(nest, s, types)) is not None), None)
    if changed is not None:
        return no(changed, "one element type")
    twice = next((pair for pair in _written_twice(nest, sources)), None)
    if twice is not None:
        return no(
            f"two instances write one element of {tensor}",
            "`expand` first, if loops distinguish its values",
            twice,
        )
    for s in sources:
        lost = overwritten(nest, s)
        if lost is not None:
            why = f"an element that {tensor} shows is overwritten before it is read"
            return no(why, "a reader that runs earlier", lost)
    return None


def _changed(nest: Nest, source: Statement, types: Set[str]) -> str | None:
    """Return how removing the view would change a value's type; None if it would not."""
    dtype = nest.tensor(source.write.tensor).dtype
    for access in source.reads:
        shown = nest.tensor(access.tensor).dtype
        if shown != dtype:
            return f"{source.name} shows values of {shown} as {dtype}"
    if source.reads or types == {dtype}:
        return None
    number = float(source.body)
    if float(np.asarray(number, dtype)) == number:  # NumPy would round the other to the array's type
        return None
    return f"{source.name} shows {number} as {dtype}, and is read with values of another type"


def _written_twice(nest: Nest, sources: tuple[Statement, ...]) -> Iterator[isl.Map]:
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


def _by_source(
    s: Statement, tensor: str, sources: tuple[Statement, ...], taken: set[str]
) -> Iterator[Statement]:
    """The reader on each part of its domain where every read of the tensor has one source."""
    cells: list[tuple[isl.Set, dict[int, Statement]]] = [(s.domain, {})]
    positions = [position for position, access in enumerate(s.reads) if access.tensor == tensor]
    for position in positions:
        parts = [(source, feeds(source, s.reads[position]).range()) for source in sources]
        cells = [
            (here, {**of, position: source})
            for cell, of in cells
            for source, part in parts
            if not (here := cell.intersect(part)).is_empty()
        ]
    if not cells:  # it never runs: any source will do
        cells = [(s.domain, dict.fromkeys(positions, sources[0]))]
    for number, (cell, of) in enumerate(cells):
        name = s.name if number == 0 else fresh(s.name, taken)
        taken.add(name)
        domain = s.domain if len(cells) == 1 else cell.coalesce()
        yield from_sources(renamed(s, name, domain), of)


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
    if all(parts == (name,) or name not in tree.members for name, parts in into.items()):
        return tree
    match tree:
        case Leaf(name):
            return sequence(tuple(Leaf(part) for part in into.get(name, (name,))))
        case Loop():
            moved = tuple(
                (part, _date_of(part, date)) for name, date in tree.dates for part in into.get(name, (name,))
            )
            return replace(tree, body=with_pieces(tree.body, into), dates=moved)
        case Sequence():
            return sequence(tuple(with_pieces(child, into) for child in tree.children))


def _date_of(piece: str, date: isl.PwAff) -> isl.PwAff:
    return isl.PwMultiAff.from_map(date.as_map().set_tuple_name(isl.dim_type.in_, piece)).get_pw_aff(0)

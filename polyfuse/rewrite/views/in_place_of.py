"""Compute a tensor directly in the place where a view would copy it (compose.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

import islpy as isl

from polyfuse.errors.budget import within
from polyfuse.errors.proving import proving
from polyfuse.errors.refusals import Refusal
from polyfuse.ir import Access, Nest, Statement
from polyfuse.ir.dependences import earlier, relation_of
from polyfuse.ir.tree import restrict
from polyfuse.rewrite.recorded import recorded
from polyfuse.rewrite.refusal import refused
from polyfuse.rewrite.views.flow import FLOW_OPERATIONS, Composed, Wanted, always, differences, is_view, made
from polyfuse.sets import bounding_box, maps_of, mixes_results, on_domain, volume

PLACE_OPERATIONS = 200_000
"""isl operations to tell whether a view gives each element a place of its own; beyond them the view stays."""


@proving("the rewrite place")
def place(nest: Nest, statement: str) -> Composed:
    """Store a computed tensor directly in the tensor of a view of it.

    W: a[i] = …;  P: T[i + 4] = a[i];  R: … a[j] …  ->  W: T[i + 4] = …;  R: … T[j + 4] …

    Args:
        nest: The nest.
        statement: The view's statement.

    Returns:
        The new nest.

    Raises:
        IllegalRewrite: if `why_not_place` returns a reason.
    """
    return made(placed(nest, nest.statement(statement)))


@proving("the question why_not_place")
def why_not_place(nest: Nest, statement: str) -> Refusal | None:
    """Return the reason why a tensor cannot be stored in its view's tensor.

    Args:
        nest: The nest.
        statement: The view's statement.

    Returns:
        The reason; None if the rewrite is legal.
    """
    found = placed(nest, nest.statement(statement))
    return found if isinstance(found, Refusal) else None


@recorded("place", without=("wanted",))
def placed(nest: Nest, s: Statement, wanted: Wanted = always) -> Composed | Refusal:
    """Return the result of `place`, its flow proven, or the reason why not; only what is `wanted` is proven."""
    statement = s.name
    call, target = f"place({statement!r})", s.write.tensor

    def no(why: str, remedy: str, pairs: isl.Map | None = None) -> Refusal:
        return refused(call, why, remedy, pairs)

    if not is_view(s) or not s.reads:
        return no(
            f"{statement} computes its values",
            "a view: a statement that only copies elements of another tensor",
        )
    source = nest.tensor(s.reads[0].tensor)
    if source.role != "temporary":
        return no(f"{source.name} is not computed in this nest ({source.role})", "a temporary")
    if source.dtype != nest.tensor(target).dtype:
        return no(f"{source.name} is {source.dtype}, {target} is not", "one element type")
    context = nest.context.get_ctx()
    unknown = no(
        f"isl needs more than {PLACE_OPERATIONS} operations to tell its places apart", "a simpler view"
    )
    why = within(context, PLACE_OPERATIONS, lambda: _why_no_place(nest, s, no), lambda: unknown)
    if why is not None:
        return why
    unproven = no(f"isl needs more than {FLOW_OPERATIONS} operations to prove it", "a simpler view")

    users = {x.name: (x.name,) for x in nest.statements if source.name in x.tensors and x is not s}

    def proven() -> Composed | Refusal:
        found = Composed(_in_place(nest, s), source.name, (statement,), users, target)
        unwanted = wanted(found)
        if unwanted is not None:
            return unwanted
        lost = differences(nest, found.nest, frozenset({statement}), {})
        why_lost = f"a value of {target} would be overwritten before its last use"
        return found if lost is None else no(why_lost, "values that do not overlap", lost)

    return within(context, FLOW_OPERATIONS, proven, lambda: unproven)


def _why_no_place(nest: Nest, s: Statement, no: Callable[..., Refusal]) -> Refusal | None:
    """Why the elements that a view shows have not one place each in its target, or that is not theirs alone.

    A view that writes each element once stores no two elements in one place. This is asked first: { x[e] -> T[f(e)] }
    has quotients where windows of an image are shown as rows, and of two of them at once isl may not find an answer.
    """
    source, target, moved = s.reads[0].tensor, s.write.tensor, moved_to(nest, s)
    if mixes_results(moved):
        return no(f"places in {target} are tied to each other by quotients", "a view of whole axes")
    if not moved.is_single_valued():
        return no(
            f"one element of {source} would have several places in {target}",
            "a view that repeats no element",
        )
    if not s.write.map.intersect_domain(nest.domains[s.name]).is_injective() and not moved.is_injective():
        return no(f"several elements of {source} would have one place in {target}", "a view written once")
    for w in nest.writers(source):
        if not _shows_all(nest, s, _within(nest, w), moved):
            return no(
                f"{w.name} computes elements of {source} that have no place in {target}",
                "a view of all computed elements",
            )
    for w in nest.writers(target):
        if w is not s and not _within(nest, w).is_disjoint(_within(nest, s)):
            return no(
                f"{w.name} writes the same elements of {target}",
                "a view that is the only writer of its elements",
            )
    shown = isl.UnionMap.from_map(s.reads[0].map.intersect_domain(nest.domains[s.name]))
    writers = nest.writers(source)
    order = nest.dates_of((s.name, *(w.name for w in writers)))
    changed = earlier(shown, relation_of((w, w.write) for w in writers), order)
    for pair in maps_of(changed):
        return no(f"{source} is overwritten after {s.name} copies it", "`expand`, or another tensor", pair)
    return None


def _shows_all(nest: Nest, s: Statement, written: isl.Set, moved: isl.Map) -> bool:
    """True if a view that gives each element one place shows all that is written of its source.

    Boxes are counted first. With fewer instances than elements are written, some are not shown. With as many as the
    tensor has elements, and no two of one element, all are: so it is of a reshape, whose quotients keep isl long.
    """
    domain, source = nest.domains[s.name], nest.tensor(s.reads[0].tensor)
    sizes = [size for size in source.shape if isinstance(size, int)]
    if len(sizes) == source.rank and domain.is_box() and written.is_box():
        instances = volume(bounding_box(domain))
        if instances < volume(bounding_box(written)):
            return False
        if instances == prod(sizes) and s.write.map.intersect_domain(domain).is_injective():
            return True  # an element of two instances would have two places
    return bool(written.is_subset(moved.domain()))


def _within(nest: Nest, s: Statement) -> isl.Set:
    return s.write.map.intersect_domain(nest.domains[s.name]).range()


def moved_to(nest: Nest, s: Statement) -> isl.Map:
    """{ x[e] -> T[f(e)] } for a view statement T[w(i)] = x[r(i)]."""
    domain = nest.domains[s.name]
    shown, target = (a.map.intersect_domain(domain) for a in (s.reads[0], s.write))
    return shown.reverse().apply_range(target).coalesce()


def _in_place(nest: Nest, s: Statement) -> Nest:
    """The nest in which the view's source lives in its target."""
    source, target, moved = s.reads[0].tensor, s.write.tensor, moved_to(nest, s)

    def access(user: Statement, a: Access) -> Access:
        if a.tensor != source:
            return a
        return Access(target, on_domain(a.map.apply_range(moved), user.domain))

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
    return nest.rewritten(tensors, kept, order, frozenset({source, target}))

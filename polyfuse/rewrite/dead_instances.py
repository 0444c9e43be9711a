"""Remove dead instances: those whose values reach nothing that the caller sees.

    for i < 9: a[i] = f(x[i])                 for i < 4: a[i] = f(x[i])
    for i < 4: out[i] = a[i]           ->     for i < 4: out[i] = a[i]

The theorem: let N hold every instance that writes a visible tensor, and with an instance all that its values flow from.
Then what is not in N may go: nothing flows from it to what is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import islpy as isl

from polyfuse.errors.proving import proving
from polyfuse.ir import Nest, Statement
from polyfuse.ir.dependences import Pairs
from polyfuse.ir.tree import statements
from polyfuse.rewrite.recorded import recorded


@dataclass(frozen=True)
class Use:
    """The instances of a statement that are needed, and the uses from which they were found."""

    found_from: tuple[object, ...]
    instances: isl.Set
    is_all: bool


@recorded("needed", without=("known",))
@proving("the rewrite needed")
def needed(nest: Nest, known: dict[str, Use] | None = None) -> Nest:
    """Remove dead instances: restrict each domain to the instances whose values are used.

    Args:
        nest: The nest.
        known: What was found for a nest whose dependences this one takes over (`Nest.rewritten`), by statement; only
            what is new is asked of isl, and added.

    Returns:
        The nest; a domain is restricted only to one convex set without gaps, and not if the statement reads its own
        values.
    """
    known = {} if known is None else known
    keep = dict(nest.domains)
    cut: dict[str, Statement] = {}
    for name in reversed(statements(nest.order)):
        sinks = [p for p in nest.dependences().after(name) if p.kind == "flow"]
        s = nest.statement(name)
        visible = nest.tensor(s.write.tensor).role != "temporary"
        if visible or not sinks or any(p.sink == name for p in sinks):
            continue
        found_from = (keep[name], *(part for p in sinks for part in (p.map, keep[p.sink])))
        if name not in known or not _are(known[name].found_from, found_from):
            used = _used(keep[name], sinks, keep)
            known[name] = Use(found_from, used, used is keep[name] or keep[name].is_subset(used))
        keep[name] = known[name].instances
        if not known[name].is_all:
            cut[name] = replace(s, domain=keep[name].gist_params(nest.context))
    return replace(nest, statements=tuple(cut.get(s.name, s) for s in nest.statements)) if cut else nest


def _used(domain: isl.Set, sinks: list[Pairs], keep: Mapping[str, isl.Set]) -> isl.Set:
    """The instances whose values reach what is kept, if that is one convex part without gaps; else all."""
    used = isl.Set.empty(domain.get_space())
    for p in sinks:
        used = used.union(p.map.intersect_range(keep[p.sink]).domain())
    used = used.coalesce()
    return used if used.n_basic_set() == 1 and not used.involves_locals() else domain


def _are(some: tuple[object, ...], others: tuple[object, ...]) -> bool:
    """True if both are the same objects, which needs no isl operation."""
    return len(some) == len(others) and all(a is b for a, b in zip(some, others, strict=True))

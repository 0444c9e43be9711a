"""Statements that never run: those whose domain is empty for every size that the context allows."""

from __future__ import annotations

from dataclasses import replace

from polyfuse.ir.nest_data import AnyNest, NestData
from polyfuse.ir.tree import restrict


def drop_empty(nest: AnyNest) -> AnyNest:
    """Return the nest without the statements whose domain is empty; the same nest if that is none of them, or all.

    An order has at least one statement, so that a nest which computes nothing at all keeps its statements.
    """
    running = frozenset(name for name, domain in nest.domains.items() if not domain.is_empty())
    order = restrict(nest.order, running)
    if order is None or order is nest.order:
        return nest
    return replace(nest, statements=tuple(s for s in nest.statements if s.name in running), order=order)


def computes_nothing(nest: NestData) -> bool:
    """True if the domain of every statement is empty."""
    return all(domain.is_empty() for domain in nest.domains.values())

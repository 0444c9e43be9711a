"""Price a whole nest, for the choice between a nest and a rewritten one."""

from __future__ import annotations

from dataclasses import dataclass

from polyfuse.ir import Nest
from polyfuse.ir.tree import parts, statements
from polyfuse.machine import Machine
from polyfuse.schedule import Schedule
from polyfuse.strategy.fusion.alignments import Searches
from polyfuse.strategy.fusion.group_search import early_statements, search


@dataclass(frozen=True)
class Priced:
    """The expected seconds of a nest's kernels in a call, and the statements of each."""

    seconds: float
    kernels: tuple[tuple[str, ...], ...]


def priced(nest: Nest, machine: Machine, searches: Searches) -> Priced:
    """A nest after the search for groups, each kernel in its best tiling.

    On a CPU kernels that depend on constants alone run once for all calls, and count nothing. What is found on pairs of
    kernels is kept in `searches`: the plan searches the same nest again.
    """
    model = searches.models.of(nest, machine)
    schedule, _ = search(Schedule(nest), model, fuse=True, alignments=searches.alignments(nest))
    early = early_statements(nest, nest.order)
    kernels = parts(schedule.tree)
    seconds = sum(model.cost(part).total for part in kernels if early.isdisjoint(statements(part)))
    return Priced(seconds, tuple(statements(part) for part in kernels))


def price(nest: Nest, machine: Machine, searches: Searches) -> float:
    """Seconds of a call's kernels, as `priced` finds them."""
    return priced(nest, machine, searches).seconds

"""Price a whole nest, for the choice between a nest and a rewritten one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from polyfuse.ir import Nest
from polyfuse.ir.tree import Tree, parts, statements
from polyfuse.machine import Machine
from polyfuse.schedule import Schedule
from polyfuse.strategy.cost.roofline import Model
from polyfuse.strategy.fusion.alignments import Searches
from polyfuse.strategy.fusion.group_search import early_statements, search


@dataclass(frozen=True)
class Priced:
    """The kernels of a nest by their statements, and the expected seconds of each in a call.

    `model` is the one that priced them.
    """

    kernels: Mapping[tuple[str, ...], float]
    model: Model
    trees: tuple[Tree, ...]

    @property
    def seconds(self) -> float:
        """The seconds of all kernels."""
        return sum(self.kernels.values())


def priced(nest: Nest, machine: Machine, searches: Searches) -> Priced:
    """A nest after the search for groups, each kernel in its best tiling.

    On a CPU kernels that depend on constants alone run once for all calls, and count nothing. What is found on pairs of
    kernels is kept in `searches`: the plan searches the same nest again.
    """
    return _searched(nest, machine, searches, frozenset(s.name for s in nest.statements))


def priced_again(
    before: Priced, nest: Nest, machine: Machine, searches: Searches, again: frozenset[str]
) -> Priced:
    """A nest that differs from one that was priced in some statements: the kernels of these are searched `again`.

    The others stay as they were. Their seconds do, too, unless all data come to lie in another level of memory.

    Args:
        before: The prices of the nest that it was.
        nest: The nest.
        machine: The machine.
        searches: What searches have found so far.
        again: Whole kernels of `before`, by all their statements, those that are gone among them.

    Returns:
        The prices.
    """
    found = _searched(nest, machine, searches, again.intersection(s.name for s in nest.statements))
    rest = tuple(tree for tree in before.trees if tree.members.isdisjoint(again))
    levels = {machine.level(each.model.counts.total_bytes).size for each in (before, found)}
    kept = (
        {names: seconds for names, seconds in before.kernels.items() if again.isdisjoint(names)}
        if len(levels) == 1
        else _seconds(found.model, nest, rest)
    )
    return Priced({**kept, **found.kernels}, found.model, (*rest, *found.trees))


def price(nest: Nest, machine: Machine, searches: Searches) -> float:
    """Seconds of a call's kernels, as `priced` finds them."""
    return priced(nest, machine, searches).seconds


def _searched(nest: Nest, machine: Machine, searches: Searches, names: frozenset[str]) -> Priced:
    """The kernels of some statements, after a search among these alone."""
    model = searches.models.of(nest, machine)
    done = frozenset(s.name for s in nest.statements) - names
    schedule, _ = search(Schedule(nest), model, fuse=True, done=done, alignments=searches.alignments(nest))
    trees = tuple(part for part in parts(schedule.tree) if not part.members.isdisjoint(names))
    return Priced(_seconds(model, nest, trees), model, trees)


def _seconds(model: Model, nest: Nest, trees: tuple[Tree, ...]) -> dict[tuple[str, ...], float]:
    """The seconds of kernels in a call."""
    early = early_statements(nest, nest.order)
    return {
        statements(tree): model.cost(tree).total if early.isdisjoint(statements(tree)) else 0.0
        for tree in trees
    }

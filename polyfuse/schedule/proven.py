"""Take a step of a schedule: prove its tree first; a refused step names the dependence that it would break.

nest, tree  --step-->  nest, tree'       a new schedule, or IllegalSchedule with two instances
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Self

from polyfuse.analysis.legality import Broken, first_broken, unproven
from polyfuse.analysis.storage import unsafe_buffer
from polyfuse.errors import IllegalSchedule
from polyfuse.ir.given import nest_given
from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import Tree
from polyfuse.schedule.step import Step, check_places, violation_of


class Proven:
    """A nest, an order of its instances, and the steps that made it, each proven before it was taken."""

    def __init__(self, nest: Nest) -> None:
        self.given = nest_given("Schedule", nest)
        """The nest as it was given."""
        self.source = self.given
        """The nest after the rewrites among the steps: what validation checks the finished schedule against."""
        self.nest = nest
        """The nest with the copy statements that `promote` and `pack` added."""
        self.tree: Tree = nest.order
        """The order: loops, sequences, statements."""
        self.steps: tuple[Step, ...] = ()
        """The verbs that made this schedule, in order."""

    def _do(
        self, verb: str, args: tuple[object, ...], options: Mapping[str, object], rewrite: Callable[[], Tree]
    ) -> Self:
        return self._checked(verb, args, options, self.nest, rewrite())

    def _checked(
        self, verb: str, args: tuple[object, ...], options: Mapping[str, object], nest: Nest, tree: Tree
    ) -> Self:
        known = None if options.get("padded") else self.tree
        step, broken = Step(verb, args, tuple(options.items())), self._proof(nest, tree, known)
        if broken is not None:
            raise IllegalSchedule(violation_of(step, broken))
        check_places(verb, nest, tree, self.nest, self.tree)
        return self.followed_by((step,), nest, tree)

    def _first_legal(self, step: Step, trees: Iterator[Tree]) -> Self:
        """The schedule with the first of several trees for a step that is legal."""
        refused: Broken | None = None
        for tree in trees:
            found = self._proof(self.nest, tree, self.tree)
            if found is None:
                check_places(step.verb, self.nest, tree, self.nest, self.tree)
                return self.followed_by((step,), self.nest, tree)
            refused = refused or found
        assert refused is not None, "there is a tree, or the verb raises"
        raise IllegalSchedule(violation_of(step, refused))

    def _proof(self, nest: Nest, tree: Tree, known: Tree | None) -> Broken | None:
        # Only `promote` and `pack` change the nest, and every dependence they add has the new copy at one end: what
        # the two trees have in common holds no such statement and stays proven. Padding adds instances of the reader.
        pairs = unproven(nest.pairs_in_order, tree, known)
        return first_broken(tree, pairs, known) or unsafe_buffer(nest, tree, known)

    def followed_by(self, steps: tuple[Step, ...], nest: Nest, tree: Tree) -> Self:
        """The schedule after steps that are proven: what they made of the nest and of the tree."""
        new = object.__new__(type(self))
        new.given, new.source = self.given, self.source
        new.nest, new.tree, new.steps = nest, tree, (*self.steps, *steps)
        return new

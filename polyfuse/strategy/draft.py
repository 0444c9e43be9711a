"""Drafts: sequences of verbs without proofs, for pricing; the chosen one is repeated with proofs, verb by verb.

A proof of a tiled stencil takes tens of milliseconds, a rewrite one. A draft that turns out illegal when it is taken
is dropped, and the next best one taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from polyfuse.ir import Nest
from polyfuse.ir.tree import Loop, Tree, loops_around
from polyfuse.schedule import Schedule, binding, order, tiling
from polyfuse.schedule import affine_verb as affine
from polyfuse.schedule import fuse_verbs as fusion
from polyfuse.schedule.step import Step

Rewrite = Callable[[Nest, Tree, Step], Tree]

REWRITES: Mapping[str, Rewrite] = {
    "affine": lambda nest, tree, step: affine.affine(nest, tree, {n: str(v) for n, v in step.options}),
    "tile": lambda nest, tree, step: tiling.tile(nest, tree, str(step.args[0]), _numbers(step)),
    "split": lambda nest, tree, step: tiling.split(
        nest, tree, str(step.args[0]), str(step.args[1]), _last(step)
    ),
    "interchange": lambda nest, tree, step: order.interchange(nest, tree, *_names(step)),
    "reorder": lambda nest, tree, step: order.reorder(nest, tree, _names(step)[0], _names(step)[1:]),
    "skew": lambda nest, tree, step: order.skew(
        nest, tree, str(step.args[0]), str(step.args[1]), str(dict(step.options)["by"]), 1
    ),
    "distribute": lambda nest, tree, step: fusion.distribute(tree, *_names(step)),
    "bind": lambda nest, tree, step: binding.bind(
        nest, tree, str(step.args[0]), {n: str(v) for n, v in step.options}
    ),
    "unroll": lambda nest, tree, step: binding.unroll(nest, tree, *_names(step)),
    "vectorize": lambda nest, tree, step: binding.vectorize(nest, tree, *_names(step)),
}
"""The effect of each verb on a tree, without proofs."""


def _names(step: Step) -> tuple[str, ...]:
    return tuple(map(str, step.args))


def _numbers(step: Step) -> dict[str, int]:
    return {name: value for name, value in step.options if isinstance(value, int)}


def _last(step: Step) -> int:
    size = step.args[-1]
    assert isinstance(size, int), "a split names its size last"
    return size


@dataclass(frozen=True)
class Draft:
    """A tree that verbs would make, the verbs, and what a person should know about them."""

    nest: Nest
    tree: Tree
    steps: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()

    def do(self, verb: str, *args: object, **options: object) -> Draft:
        """One more verb, unproven."""
        step = Step(verb, args, tuple(options.items()))
        return replace(self, tree=REWRITES[verb](self.nest, self.tree, step), steps=(*self.steps, step))

    @property
    def name(self) -> str:
        """The verbs, as a wish calls the draft (candidates.py)."""
        return "; ".join(map(str, self.steps)) or "as written"

    def noted(self, *notes: str) -> Draft:
        """The draft with further remarks."""
        return replace(self, notes=(*self.notes, *notes))

    def loops(self, statement: str) -> tuple[Loop, ...]:
        """The loops around a statement, outermost first."""
        return loops_around(self.tree, statement)

    def taken(self, schedule: Schedule) -> Schedule:
        """The verbs applied to a schedule, each proven. Raises IllegalSchedule at the first that is not legal."""
        for step in self.steps:
            schedule = getattr(schedule, step.verb)(*step.args, **dict(step.options))
        return schedule

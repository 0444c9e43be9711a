"""Steps of a schedule: the verbs, a verb with its arguments, and the violation of a refused one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from inspect import signature

from polyfuse.analysis.clusters import unfit_clusters
from polyfuse.analysis.hardware_bindings import left_outside, misplaced
from polyfuse.analysis.lanes import unfit_lanes
from polyfuse.analysis.legality import Broken
from polyfuse.bilinear import Algorithm, to_text
from polyfuse.errors import InvalidSchedule
from polyfuse.errors.refusals import Instance, Violation
from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import Tree, parts, sequence
from polyfuse.layouts import Layout
from polyfuse.rewrite import Shares
from polyfuse.schedule.microkernel_verb import check_kept
from polyfuse.sets import first_pair, tuple_names

VERBS = (
    "tile",
    "split",
    "collapse",
    "separate",
    "interchange",
    "reorder",
    "skew",
    "shift",
    "reverse",
    "affine",
    "fuse",
    "sections",
    "join",
    "distribute",
    "move",
    "bind",
    "unroll",
    "vectorize",
    "prefetch",
    "stream",
    "microkernel",
    "promote",
    "pack",
    "synchronised",
)
"""Every verb a Schedule has."""


@dataclass(frozen=True)
class Step:
    """One verb with its arguments."""

    verb: str
    args: tuple[object, ...]
    options: tuple[tuple[str, object], ...]

    def renamed(self, names: Mapping[str, str]) -> Step:
        """The step with other names of statements and tensors as arguments."""
        args = tuple(names.get(each, each) if isinstance(each, str) else each for each in self.args)
        return replace(self, args=args)

    def __str__(self) -> str:
        parts = [*map(_written, self.args), *(f"{name}={_written(value)}" for name, value in self.options)]
        return f"{self.verb}({', '.join(parts)})"


def _written(value: object) -> str:
    """An argument as Python that makes it again, where polyfuse is imported as pf."""
    if isinstance(value, Algorithm):
        return f"pf.bilinear.from_text({value.name!r}, {to_text(value)!r}, {value.modulus})"
    if isinstance(value, Shares):
        return f"pf.rewrite.{value!r}"
    return f"pf.{value!r}" if isinstance(value, Layout) else repr(value)


def beside_defaults(verb: Callable[..., object], options: Mapping[str, object]) -> dict[str, object]:
    """The options that are not what a verb takes by itself: a step says no others.

    >>> beside_defaults(lambda loop, size=1, math="ieee": None, {"size": 4, "math": "ieee"})
    {'size': 4}
    """
    defaults = signature(verb).parameters
    return {name: value for name, value in options.items() if value != defaults[name].default}


def violation_of(step: Step, broken: Broken) -> Violation:
    """A step that would break a dependence, with two instances of it."""
    found = first_pair(broken.pairs)
    assert found is not None, "a broken dependence has a pair"
    sizes, source, sink = found
    first, second = tuple_names(broken.pairs)
    return Violation(
        verb=str(step),
        kind=broken.kind,
        source=Instance(first, source),
        sink=Instance(second, sink),
        why=broken.why,
        remedy=broken.remedy,
        sizes=sizes,
    )


def check_places(verb: str, nest: Nest, tree: Tree, nest_before: Nest, tree_before: Tree) -> None:
    """Raises InvalidSchedule if a verb has made a tree that no hardware has, or left a microkernel none.

    Each check is of one kernel, so only kernels that the verb has changed are asked. A verb that changes the nest may
    add an access to a tensor that a buffer of another kernel holds.
    """
    kept = set(map(id, parts(tree_before)))
    changed = tuple(part for part in parts(tree) if id(part) not in kept)
    if not changed:
        return
    new = sequence(changed)
    check_kept(verb, nest, new, nest_before, tree_before)
    fault = (
        misplaced(new)
        or left_outside(nest, new if nest is nest_before else tree)
        or unfit_lanes(nest, new)
        or unfit_clusters(nest, new)
    )
    if fault is not None:
        raise InvalidSchedule(f"{verb}: {fault}")

"""The steps of a product over windows: loops, and the short innermost one, which is unrolled.

    for c < 16: for r = max(0, 1 - p) … min(3, 29 - p): for s < 3: for q = max(0, 1 - s) … min(28, 29 - s): …

Each value of s may have bounds of q of its own: at the border of an image that is what padding is. Where isl does not
let s come to a value at all, that value's bounds are empty.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from polyfuse.codegen.looptree.index import mentions, substituted
from polyfuse.codegen.looptree.intervals import Interval, Ranges, interval
from polyfuse.codegen.looptree.nodes import Element, For
from polyfuse.codegen.looptree.product import movement
from polyfuse.schedule.microkernel_verb import MOST_WRITTEN_OUT


@dataclass(frozen=True)
class Steps:
    """The loops of steps that stay loops, and the values of the one that is written out, if any is."""

    loops: tuple[For, ...]
    inner: For | None
    values: range

    def first(self, value: int) -> dict[str, ast.expr]:
        """The variable of the loop that is written out, at a value."""
        return {} if self.inner is None else {self.inner.variable: ast.Constant(value)}


@dataclass(frozen=True)
class Bounds:
    """A loop's values at one step of the innermost loop of steps: from and up to, and those that are surely there."""

    low: ast.expr
    high: ast.expr
    sure: Interval


def steps_of(loops: Sequence[For], ranges: Ranges) -> Steps:
    """Loops of steps, outermost first, with the innermost one written out if it is short."""
    *outer, last = loops
    values = values_of(last, ranges)
    if values.low is None or values.high is None or values.high - values.low >= MOST_WRITTEN_OUT:
        return Steps(tuple(loops), None, range(1))
    return Steps(tuple(outer), last, range(values.low, values.high + 1))


def values_of(loop: For, ranges: Ranges) -> Interval:
    """Between which numbers a loop's variable is."""
    last = interval(loop.high, ranges).high
    return Interval(interval(loop.low, ranges).low, None if last is None else last - 1)


def is_box(loops: Sequence[For], varying: For, inner: For | None) -> bool:
    """True if no bound of a product's loops changes with another of them, but the varying loop's with the inner one."""
    return not any(
        mentions(bound, other.variable)
        for loop in loops
        for bound in (loop.low, loop.high)
        for other in loops
        if not (loop is varying and other is inner)
    )


def bounds_of(varying: For, steps: Steps, ranges: Ranges) -> list[Bounds]:
    """The bounds of a loop at each step that is written out, whether or not that step is there."""
    return [_bounds_at(varying, steps, value, ranges) for value in steps.values]


def _bounds_at(varying: For, steps: Steps, value: int, ranges: Ranges) -> Bounds:
    put = steps.first(value)
    low, high = (_folded(substituted(bound, put), ranges) for bound in (varying.low, varying.high))
    return Bounds(low, high, Interval(interval(low, ranges).high, interval(high, ranges).low))


def _folded(node: ast.expr, ranges: Ranges) -> ast.expr:
    """A number where only one is possible: min(14, 28 - 14*j) for j < 2 is 14."""
    value = interval(node, ranges).value
    return node if value is None else ast.Constant(value)


def where_present(bounds: Sequence[Bounds], steps: Steps, ranges: Ranges) -> list[Bounds]:
    """The bounds, empty where the loop that is written out does not get to a value."""
    return [_if_present(one, steps, value, ranges) for one, value in zip(bounds, steps.values, strict=True)]


def _if_present(bounds: Bounds, steps: Steps, value: int, ranges: Ranges) -> Bounds:
    loop = steps.inner
    if loop is None:
        return bounds
    first, end = interval(loop.low, ranges).high, interval(loop.high, ranges).low
    if first is not None and end is not None and first <= value < end:
        return bounds
    here = ast.Compare(loop.low, [ast.LtE(), ast.Lt()], [ast.Constant(value), loop.high])
    return Bounds(bounds.low, ast.IfExp(here, bounds.high, bounds.low), Interval())


def inner_movement(element: Element, steps: Steps) -> tuple[int, ...] | None:
    """The stride of an element with the unrolled loop."""
    return (0,) * len(element.subscripts) if steps.inner is None else movement(element, steps.inner)


def numbers(values: Sequence[int] | None) -> ast.expr:
    """Numbers as a tuple in source."""
    assert values is not None, "what has no movement was refused"
    return ast.Tuple([ast.Constant(value) for value in values])

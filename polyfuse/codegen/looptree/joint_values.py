"""Enumerate the joint values of index expressions under known guards.

    l < 10, not 1 <= l <= 8:  max(0, 1 - 6*l), min(6, 56 - 6*l)   ->   (1, 6) and (0, 2)

An interval of each says less: from 0 to 1, from 2 to 6.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from types import CodeType

from polyfuse.codegen.looptree.intervals import Interval, Ranges

MOST_TRIED = 1024
"""Values of loop variables that are tried: an image of 4096 pixels has 293 tiles of 14."""


@dataclass(frozen=True)
class Facts:
    """The facts at a place in the source: the ranges of loop variables, and the values of conditions."""

    ranges: Ranges = field(default_factory=dict)
    conditions: tuple[tuple[ast.expr, bool], ...] = ()

    def inside(self, variable: str, values: Interval) -> Facts:
        """The facts inside a loop with these values."""
        return replace(self, ranges={**self.ranges, variable: values})

    def where(self, condition: ast.expr, holds: bool) -> Facts:
        """The facts where a condition holds, or where it fails; a conjunction adds each of its conditions."""
        parts = [condition]
        if holds and isinstance(condition, ast.BoolOp) and isinstance(condition.op, ast.And):
            parts = condition.values
        return replace(self, conditions=(*self.conditions, *((part, holds) for part in parts)))


def cases(nodes: Sequence[ast.expr], facts: Facts) -> tuple[tuple[int, ...], ...] | None:
    """The tuples of values that expressions can have, in the order in which loops reach them; None if not known.

    There may be one more than there are: a loop inside others is taken to have all of its values in each of theirs.
    """
    names = sorted({name for node in nodes for name in _names(node)})
    ranges = [facts.ranges.get(name) for name in names]
    values = [
        range(each.low, each.high + 1)
        for each in ranges
        if each is not None and each.low is not None and each.high is not None
    ]
    if len(values) < len(names) or prod(map(len, values)) > MOST_TRIED:
        return None
    given = [(condition, holds) for condition, holds in facts.conditions if _names(condition) <= {*names}]
    asked = _compiled(ast.Tuple([*nodes, *(condition for condition, _ in given)]))
    found: dict[tuple[int, ...], None] = {}
    for point in product(*values):
        known = eval(
            asked, {"__builtins__": {}, "min": min, "max": max}, dict(zip(names, point, strict=True))
        )
        if all(bool(here) == holds for here, (_, holds) in zip(known[len(nodes) :], given, strict=True)):
            found[known[: len(nodes)]] = None
    return tuple(found)


def _names(node: ast.expr) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)} - {"min", "max"}


def _compiled(node: ast.expr) -> CodeType:
    return compile(ast.unparse(node), "<cases>", "eval")

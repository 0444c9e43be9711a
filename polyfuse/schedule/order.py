"""The verbs `interchange`, `reorder`, `skew`, `shift` and `reverse`: change the order of iterations."""

from __future__ import annotations

from dataclasses import replace

import islpy as isl

from polyfuse.errors import InvalidSchedule
from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import Loop, Tree, replace_node
from polyfuse.schedule.chains import chain_of, loop_named, rebuilt


def interchange(nest: Nest, tree: Tree, statement: str, first: str, second: str) -> Tree:
    """for i: for j: S  ->  for j: for i: S."""
    chain = list(chain_of(tree, statement, (first, second)))
    if first == second:
        raise InvalidSchedule(f"interchange({statement!r}): {first!r} is named twice")
    swapped = [chain[-1], *chain[1:-1], chain[0]]
    return replace_node(tree, chain[0], rebuilt(swapped, chain[-1].body))


def reorder(nest: Nest, tree: Tree, statement: str, names: tuple[str, ...]) -> Tree:
    """for i: for j: for k: S  ->  for k: for i: for j: S, given k, i, j."""
    chain = chain_of(tree, statement, names)
    if sorted(loop.name for loop in chain) != sorted(names):
        raise InvalidSchedule(
            f"reorder({statement!r}): the loops from {chain[0].name} to {chain[-1].name} are "
            f"{', '.join(loop.name for loop in chain)}; name each of them once"
        )
    by_name = {loop.name: loop for loop in chain}
    return replace_node(tree, chain[0], rebuilt([by_name[name] for name in names], chain[-1].body))


def skew(nest: Nest, tree: Tree, statement: str, loop: str, by: str, factor: int, per: int = 1) -> Tree:
    """for t: for i: S[t, i] at i  ->  for t: for i: S[t, i] at i + floor(factor * t / per)."""
    if _integer(per) < 1:
        raise InvalidSchedule(f"skew({statement!r}): per={per}, expected at least 1")
    inner = loop_named(tree, statement, loop)
    outer = chain_of(tree, statement, (by, loop))[0]
    if outer.name != by or outer is inner:
        raise InvalidSchedule(
            f"skew({statement!r}): {by} is not outside {loop}; a loop is skewed by one around it"
        )
    times = isl.Val(_integer(factor)).div(isl.Val(per))
    dates = tuple((name, date.add(outer.date(name).scale_val(times).floor())) for name, date in inner.dates)
    return replace_node(tree, inner, replace(inner, dates=dates))


def shift(nest: Nest, tree: Tree, statement: str, loop: str, amount: int) -> Tree:
    """for i: { S at i; T at i }  ->  for i: { S at i + amount; T at i }: one statement moves, the others stay."""
    found = loop_named(tree, statement, loop)
    dates = tuple(
        (name, date.add_constant_val(isl.Val(_integer(amount))) if name == statement else date)
        for name, date in found.dates
    )
    return replace_node(tree, found, replace(found, dates=dates))


def reverse(nest: Nest, tree: Tree, statement: str, loop: str) -> Tree:
    """for i = 0 … n - 1: S  ->  for i = -(n - 1) … 0: S[-i]."""
    found = loop_named(tree, statement, loop)
    return replace_node(tree, found, _negated(found))


def _negated(loop: Loop) -> Loop:
    return replace(loop, dates=tuple((name, date.neg()) for name, date in loop.dates))


def _integer(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidSchedule(f"expected an integer, not {value!r}")
    return value

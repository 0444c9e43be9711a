"""Loop trees under conditions."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from polyfuse.codegen.looptree.index import mentions
from polyfuse.codegen.looptree.nodes import Block, For, Guard, Node


def same(a: ast.expr, b: ast.expr) -> bool:
    """True if two expressions are the same text."""
    return ast.dump(a) == ast.dump(b)


def guarded(checks: list[ast.expr], body: Node) -> Node:
    """The body under all the checks; itself if there are none."""
    if not checks:
        return body
    return Guard(all_of(checks), body)


def all_of(conditions: Sequence[ast.expr]) -> ast.expr:
    """Some conditions, one or more, as one: a, b  ->  a and b."""
    return conditions[0] if len(conditions) == 1 else ast.BoolOp(ast.And(), list(conditions))


def conditions_around(node: Node) -> tuple[list[ast.expr], Node]:
    """The conditions around a node, each a part of what has to hold, and the node: if a and b: if c: S -> a, b, c, S"""
    match node:
        case Guard(condition, body, None):
            inner, leaf = conditions_around(body)
            return [*parts_of(condition), *inner], leaf
    return [], node


def parts_of(condition: ast.expr) -> list[ast.expr]:
    """Conditions that hold together: a and b -> a, b;  i < min(a, b) -> i < a, i < b;  max(a, b) < i -> a < i, b < i

    Others are one condition.
    """
    match condition:
        case ast.BoolOp(op=ast.And(), values=values):
            return [part for value in values for part in parts_of(value)]
        case ast.Compare(
            left, [ast.Lt() | ast.LtE() as less], [ast.Call(func=ast.Name(id="min"), args=most)]
        ):
            return [part for each in most for part in parts_of(ast.Compare(left, [less], [each]))]
        case ast.Compare(
            ast.Call(func=ast.Name(id="max"), args=least), [ast.Lt() | ast.LtE() as less], [right]
        ):
            return [ast.Compare(each, [less], [right]) for each in least]
    return [condition]


def elsewhere(condition: ast.expr, body: Node) -> Node:
    """The body where a condition does not hold."""
    if isinstance(condition, ast.Constant):
        return Block(()) if condition.value else body
    return Guard(ast.UnaryOp(ast.Not(), condition), body)


def decided_outside(loop: For) -> tuple[ast.expr, For, For | None] | None:
    """A condition that all values of a loop run under, the loop where it holds, and where not; None if there is none.

    for j: { if i < 61: A; else: B }   ->   if i < 61: { for j: A } else: { for j: B }
    """
    inside = loop.body
    if loop.bind is not None or not isinstance(inside, Guard) or mentions(inside.condition, loop.variable):
        return None
    other = None if inside.otherwise is None else replace(loop, body=inside.otherwise)
    return inside.condition, replace(loop, body=inside.body), other

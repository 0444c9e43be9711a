"""Loop trees under conditions."""

from __future__ import annotations

import ast
from dataclasses import replace

from polyfuse.codegen.index import mentions
from polyfuse.codegen.looptree import Block, For, Guard, Node


def same(a: ast.expr, b: ast.expr) -> bool:
    """Whether two expressions are the same text."""
    return ast.dump(a) == ast.dump(b)


def guarded(checks: list[ast.expr], body: Node) -> Node:
    """The body under all the checks; itself if there are none."""
    if not checks:
        return body
    return Guard(checks[0] if len(checks) == 1 else ast.BoolOp(ast.And(), checks), body)


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

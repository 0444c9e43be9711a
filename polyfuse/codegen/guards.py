"""Loop trees under conditions."""

from __future__ import annotations

import ast

from polyfuse.codegen.looptree import Block, Guard, Node


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

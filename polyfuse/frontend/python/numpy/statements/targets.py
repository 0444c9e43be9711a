"""Targets of assignments as syntax."""

from __future__ import annotations

import ast

from polyfuse.frontend.python.numpy.syntax import stored


def assignment_of(node: ast.stmt, target: ast.expr, value: ast.expr) -> ast.stmt:
    """`target = value`: the statement itself if these are what it has."""
    if isinstance(node, ast.Assign) and node.targets == [target] and node.value is value:
        return node
    if isinstance(node, ast.AugAssign):
        return ast.copy_location(ast.AugAssign(stored(target), node.op, value), node)
    return ast.copy_location(ast.Assign([target], value), node)


def loaded(target: ast.expr) -> ast.expr:
    """A target as the expression that reads it."""
    if isinstance(target, ast.Name):
        return ast.copy_location(ast.Name(target.id, ast.Load()), target)
    if isinstance(target, ast.Subscript):
        return ast.copy_location(ast.Subscript(target.value, target.slice, ast.Load()), target)
    return target


def base_of(target: ast.expr) -> ast.expr:
    """The array expression of a subscripted target; the target itself if it is none."""
    return target.value if isinstance(target, ast.Subscript) else target

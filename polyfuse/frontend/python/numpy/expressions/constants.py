"""Evaluate integers and conditions that are known when the function is read."""

from __future__ import annotations

import ast
from copy import deepcopy
from types import ModuleType

from polyfuse.frontend.python.numpy.expressions.evaluator import Evaluator
from polyfuse.frontend.python.numpy.syntax import constant, number


def known_integer(e: Evaluator, node: ast.expr) -> int | None:
    """The integer that an expression is when the function is read, by literals and numbers from outside."""
    frame = e.frame

    class Written(ast.NodeTransformer):
        def visit_Name(self, part: ast.Name) -> ast.expr:
            outside = frame.outside(part.id) if frame.found(part.id) is None else None
            return part if not isinstance(outside, int) or isinstance(outside, bool) else number(outside)

    made = Written().visit(deepcopy(e.program.aliases.written_out(node)))
    assert isinstance(made, ast.expr), "an expression stays one"
    return constant(made)


def with_literals(e: Evaluator, node: ast.expr) -> ast.expr:
    """An expression in which numbers from outside stand as literals: PI, np.inf."""
    frame = e.frame

    class Written(ast.NodeTransformer):
        def visit_Name(self, part: ast.Name) -> ast.expr:
            outside = frame.outside(part.id) if frame.found(part.id) is None else None
            return number(outside) if isinstance(outside, bool | int | float) else part

        def visit_Attribute(self, part: ast.Attribute) -> ast.expr:
            module = frame.outside(part.value.id) if isinstance(part.value, ast.Name) else None
            outside = getattr(module, part.attr, None) if isinstance(module, ModuleType) else None
            return number(outside) if isinstance(outside, bool | int | float) else part

    made = Written().visit(deepcopy(node))
    assert isinstance(made, ast.expr), "an expression stays one"
    return made


def decided(e: Evaluator, node: ast.expr) -> bool | None:
    """The truth of a condition on literals and numbers from outside; None if it depends on anything else."""
    allowed = (
        ast.Constant, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.BinOp,
        ast.cmpop, ast.boolop, ast.unaryop, ast.Add, ast.Sub, ast.Mult, ast.Mod, ast.FloorDiv,
    )  # fmt: skip
    made = with_literals(e, node)
    if not all(isinstance(part, allowed) for part in ast.walk(made)):
        return None
    try:
        return bool(eval(compile(ast.fix_missing_locations(ast.Expression(made)), "<condition>", "eval"), {}))
    except (TypeError, ValueError, ZeroDivisionError):
        return None

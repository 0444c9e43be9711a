"""A table: the function that lowers each kind of statement."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from polyfuse.frontend.python.numpy.frames import LocalFunction
from polyfuse.frontend.python.numpy.statements.assignments import assign
from polyfuse.frontend.python.numpy.statements.branches import branch
from polyfuse.frontend.python.numpy.statements.inlining import inline
from polyfuse.frontend.python.numpy.statements.loops import for_loop
from polyfuse.frontend.python.numpy.statements.lowerer import Lowerer, Rule, Rules
from polyfuse.frontend.python.numpy.statements.returns import early_return, give_back
from polyfuse.frontend.python.numpy.statements.updates import update
from polyfuse.frontend.python.numpy.syntax import name, placed
from polyfuse.frontend.python.numpy.values import Scalar, Static
from polyfuse.frontend.python.scope_names import MISSING


def _only_warns(lowerer: Lowerer, node: ast.With) -> bool:
    """True for `with np.errstate(…)`, which changes no value."""
    calls = [item.context_expr for item in node.items]
    return all(
        isinstance(call, ast.Call)
        and isinstance(found := lowerer.evaluator.value(call.func), Static)
        and found.value is np.errstate
        for call in calls
    )


def _assertion(lowerer: Lowerer, node: ast.Assert) -> None:
    """An assert on sizes at the top is left to the reader of elements; in an inlined function it must hold."""
    test = lowerer.evaluator.value(node.test)
    if isinstance(test, Static) and test.value:
        return
    if not isinstance(test, Scalar):
        lowerer.evaluator.refuse(node, f"{ast.unparse(node)} is not known to hold", "conditions on sizes")
    program = lowerer.program
    if lowerer.frame.is_first and not program.scope:
        made = ast.Assert(program.aliases.written_out(test.node), node.msg)
        program.emit(node if test.node is node.test else ast.copy_location(made, node))
        affine = program.geometry.here().affine
        if affine.is_condition(test.node):
            program.context = program.context.intersect(affine.condition(test.node).params())
        return
    if lowerer.frame.is_first:
        program.emit(node)
        return
    affine = program.geometry.here().affine
    written = placed(program.aliases.written_out(test.node), program.place)
    holds = affine.is_condition(written) and (
        program.geometry.here().domain.intersect_params(program.context).is_subset(affine.condition(written))
    )
    if not holds:
        lowerer.evaluator.refuse(
            node, f"{ast.unparse(node)} is not known to hold", "conditions on sizes that hold"
        )


def _bare_call(lowerer: Lowerer, node: ast.Expr, call: ast.Call) -> None:
    """f(x): for what it does to its arguments."""
    before = len(lowerer.program.block)
    value = lowerer.evaluator.value(call)
    is_same = isinstance(value, Scalar) and value.node is call
    if is_same and len(lowerer.program.block) == before and lowerer.frame.is_first:
        lowerer.program.emit(node)


def _always(lower: Callable[[Lowerer, Any], None]) -> Rule:
    """A rule that lowers every statement of its kind."""

    def rule(lowerer: Lowerer, node: Any) -> bool:
        lower(lowerer, node)
        return True

    return rule


def _annotated(lowerer: Lowerer, node: ast.AnnAssign) -> bool:
    """name: type = value, in the decorated function."""
    if not (lowerer.frame.is_first and isinstance(node.target, ast.Name) and node.value):
        return False
    lowerer.program.emit(node)
    lowerer.frame.variables[node.target.id] = Scalar(name(node.target.id), "fraction")
    return True


def _define(lowerer: Lowerer, node: ast.FunctionDef) -> None:
    lowerer.frame.variables[node.name] = Static(LocalFunction(node, lowerer.frame))


def _import(lowerer: Lowerer, node: ast.Import | ast.ImportFrom) -> bool:
    """import numpy as np, in a function: of modules that are loaded already, since reading a function runs nothing."""
    found: dict[str, object] = {}
    for part in node.names:
        own = part.asname or part.name.split(".")[0]
        if isinstance(node, ast.Import):
            found[own] = sys.modules.get(part.name if part.asname else own, MISSING)
        else:
            module = None if node.level else sys.modules.get(str(node.module))
            found[own] = getattr(module, part.name, MISSING)
    if MISSING in found.values():
        return False
    lowerer.frame.variables.update({own: Static(value) for own, value in found.items()})
    return True


def _expression(lowerer: Lowerer, node: ast.Expr) -> bool:
    """A call for what it does; a docstring in an inlined function."""
    if isinstance(node.value, ast.Call):
        _bare_call(lowerer, node, node.value)
        return True
    return isinstance(node.value, ast.Constant) and not lowerer.frame.is_first


def _pass(lowerer: Lowerer, node: ast.Pass) -> bool:
    return not lowerer.frame.is_first


def _with(lowerer: Lowerer, node: ast.With) -> bool:
    if not _only_warns(lowerer, node):
        return False
    lowerer.statements(node.body)
    return True


RULES = Rules(
    {
        ast.Assign: _always(assign),
        ast.AugAssign: _always(update),
        ast.AnnAssign: _annotated,
        ast.For: _always(for_loop),
        ast.If: _always(branch),
        ast.FunctionDef: _always(_define),
        ast.Return: _always(give_back),
        ast.Expr: _expression,
        ast.Pass: _pass,
        ast.Assert: _always(_assertion),
        ast.With: _with,
        ast.Import: _import,
        ast.ImportFrom: _import,
    },
    early_return,
    inline,
)

"""A table: the function that evaluates each kind of expression."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from polyfuse.frontend.python.numpy.expressions.calls import call
from polyfuse.frontend.python.numpy.expressions.comparisons import boolean, choice, comparison
from polyfuse.frontend.python.numpy.expressions.comprehensions import comprehension, generator
from polyfuse.frontend.python.numpy.expressions.evaluator import Evaluator, Rule
from polyfuse.frontend.python.numpy.expressions.indexing import subscript
from polyfuse.frontend.python.numpy.expressions.names import attribute, from_outside, named_value
from polyfuse.frontend.python.numpy.expressions.operators import binary, unary
from polyfuse.frontend.python.numpy.frames import LocalFunction
from polyfuse.frontend.python.numpy.values import Array, Scalar, Static, Value, weak_type


def _plain(evaluate: Callable[[Evaluator, Any], Value]) -> Rule:
    """A rule whose result goes nowhere yet."""
    return lambda e, node, into, hint: evaluate(e, node)


def _literal(e: Evaluator, node: ast.Constant) -> Value:
    match node.value:
        case bool() | int() | float():
            return Scalar(node, weak_type(node.value) or "integer")
        case complex():
            return from_outside(e, node, node.value)
    return Static(node.value)


def _tuple(e: Evaluator, node: ast.Tuple | ast.List) -> Value:
    return tuple(value for part in node.elts for value in e.parts(part))


def _function(e: Evaluator, node: ast.Lambda) -> Value:
    return Static(LocalFunction(node, e.frame))


def _operator(e: Evaluator, node: ast.BinOp, into: Array | None, hint: str | None) -> Value:
    """x op y; a matrix product is a call of np.matmul."""
    if not isinstance(node.op, ast.MatMult):
        return binary(e, node)
    left, right = e.value(node.left), e.value(node.right)
    product = e.calls(np.matmul)
    assert product is not None, "matmul is one of the calls"
    e.program.hint = hint
    made = ast.copy_location(ast.Call(node.left, [], []), node)
    return product(e, made, [left, right], {}, into)


RULES: Mapping[type[ast.expr], Rule] = {
    ast.Constant: _plain(_literal),
    ast.Name: _plain(named_value),
    ast.Tuple: _plain(_tuple),
    ast.List: _plain(_tuple),
    ast.Attribute: _plain(attribute),
    ast.Subscript: _plain(subscript),
    ast.UnaryOp: _plain(unary),
    ast.BinOp: _operator,
    ast.Compare: _plain(comparison),
    ast.BoolOp: _plain(boolean),
    ast.IfExp: _plain(choice),
    ast.Call: call,
    ast.Lambda: _plain(_function),
    ast.GeneratorExp: _plain(generator),
    ast.ListComp: _plain(comprehension),
}

"""Inline the functions that a function calls.

y = f(x)                     ->   the statements of f, with names of their own
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from polyfuse.frontend.python.numpy.expressions.constants import known_integer, with_literals
from polyfuse.frontend.python.numpy.expressions.evaluator import Evaluator
from polyfuse.frontend.python.numpy.frames import Frame, LocalFunction
from polyfuse.frontend.python.numpy.memory import new_variable
from polyfuse.frontend.python.numpy.statements.lowerer import Lowerer, Result
from polyfuse.frontend.python.numpy.stores import materialize
from polyfuse.frontend.python.numpy.syntax import number, placed
from polyfuse.frontend.python.numpy.values import BOOL, Array, Scalar, Static, Value
from polyfuse.frontend.python.source import source_of
from polyfuse.ir.number_types import is_complex, is_integer

DEEPEST = 16
"""Calls inside of calls: a function that calls itself ends here."""

WITHOUT_ELEMENTS = ("shape", "ndim", "dtype", "size")
"""The attributes of an array that read none of its elements."""


def inline(
    lowerer: Lowerer,
    expressions: Evaluator,
    node: ast.Call,
    function: Any,
    args: list[Value],
    named: dict[str, Value],
) -> Value:
    """The value of a call, whose statements are emitted here."""
    if lowerer.frame.depth >= DEEPEST:
        expressions.refuse(node, f"{DEEPEST} calls inside of calls", "functions that do not call themselves")
    if isinstance(function, LocalFunction):
        tree: ast.FunctionDef | ast.Lambda = function.node
        source, around = function.frame.source, function.frame
        label = getattr(tree, "name", "lambda")
        defaults: tuple[Any, ...] = ()
    else:
        source, around, label = source_of(function), None, function.__name__
        tree, defaults = source.tree, function.__defaults__ or ()
    inner = Frame(source, around=around, caller=lowerer.frame, call=node, label=label)
    given = _arguments(lowerer, expressions, node, tree, args, named, defaults)
    for parameter, value in given.items():
        if isinstance(value, Scalar) and is_integer(value.dtype):
            whole = known_integer(expressions, value.node)
            value = value if whole is None else Scalar(placed(number(whole), node), value.dtype)
        if isinstance(value, Scalar) and isinstance(value.node, ast.Name | ast.Attribute):
            value = replace(value, node=placed(with_literals(expressions, value.node), node))
        if isinstance(value, Scalar) and not isinstance(value.node, ast.Constant):
            value = _argument(lowerer, inner, parameter, value)
        elif isinstance(value, Array) and value.storage is None and _count(tree, parameter) > 1:
            value = materialize(lowerer.program, value, parameter) if value.mask is None else value
        inner.variables[parameter] = value
    body = [ast.copy_location(ast.Return(tree.body), node)] if isinstance(tree, ast.Lambda) else tree.body
    lowerer.frames.append(inner)
    lowerer.results.append(Result())
    outer, lowerer.evaluator.frame = lowerer.evaluator.frame, inner
    try:
        lowerer.statements(body)
    finally:
        lowerer.evaluator.frame = outer
        lowerer.frames.pop()
        result = lowerer.results.pop()
    return result.value


def _argument(lowerer: Lowerer, inner: Frame, parameter: str, value: Scalar) -> Scalar:
    """A number as an argument: by its name or its affine value, else kept in a variable."""
    names = lowerer.program.names
    if isinstance(value.node, ast.Name) and value.node.id in set(names.tensors) - names.locals:
        return value
    if is_complex(value.dtype):
        kept = new_variable(lowerer.program, value, parameter)
        assert isinstance(kept.node, ast.Tuple), "a complex number is a pair"
        own = [part.id for part in kept.node.elts if isinstance(part, ast.Name)]
        inner.names.update(zip((f"{parameter}.real", f"{parameter}.imag"), own, strict=True))
        return kept
    written = lowerer.program.aliases.written_out(value.node)
    if lowerer.program.geometry.is_affine(written):
        return Scalar(written, value.dtype)
    kept = new_variable(lowerer.program, value, parameter)
    if isinstance(kept.node, ast.Name):
        inner.names[parameter] = kept.node.id
    return kept


def _arguments(
    lowerer: Lowerer,
    expressions: Evaluator,
    node: ast.Call,
    tree: ast.FunctionDef | ast.Lambda,
    args: list[Value],
    named: dict[str, Value],
    defaults: tuple[Any, ...],
) -> dict[str, Value]:
    """The values of a function's parameters."""
    parameters = [arg.arg for arg in (*tree.args.posonlyargs, *tree.args.args)]
    only = [arg.arg for arg in tree.args.kwonlyargs]
    if tree.args.vararg or tree.args.kwarg or len(args) > len(parameters):
        expressions.refuse(node, f"{ast.unparse(node)}: these arguments", "plain parameters")
    given = dict(zip(parameters, args, strict=False))
    for word, value in named.items():
        if word not in (*parameters, *only) or word in given:
            expressions.refuse(node, f"{ast.unparse(node)}: the argument {word}", ", ".join(parameters))
        given[word] = value
    written = tree.args.defaults
    for parameter, default in zip(parameters[len(parameters) - len(written) :], written, strict=True):
        if parameter not in given:
            given[parameter] = _default(lowerer, expressions, default, defaults, written)
    for parameter, keyword in zip(only, tree.args.kw_defaults, strict=True):
        if parameter not in given and keyword is not None:
            given[parameter] = expressions.value(keyword)
    missing = [parameter for parameter in (*parameters, *only) if parameter not in given]
    if missing:
        expressions.refuse(node, f"{ast.unparse(node)}: no {', '.join(missing)} is given", "all parameters")
    return {parameter: given[parameter] for parameter in (*parameters, *only)}


def _default(
    lowerer: Lowerer,
    expressions: Evaluator,
    written: ast.expr,
    values: tuple[Any, ...],
    every: Sequence[ast.expr],
) -> Value:
    if not values:
        return expressions.value(written)
    value = values[[part is written for part in every].index(True)]
    if isinstance(value, bool | int | float):
        return Scalar(
            ast.copy_location(number(value), written),
            BOOL if isinstance(value, bool) else "integer" if isinstance(value, int) else "fraction",
        )
    return Static(value)


def _count(tree: ast.AST, variable: str) -> int:
    """How often a function reads a parameter, but for its shape, rank and type."""
    every = list(ast.walk(tree))
    known = {
        id(part.value) for part in every if isinstance(part, ast.Attribute) and part.attr in WITHOUT_ELEMENTS
    }
    known |= {
        id(arg)
        for part in every
        if isinstance(part, ast.Call)
        and isinstance(part.func, ast.Attribute)
        and part.func.attr == "result_type"
        for arg in part.args
    }
    return sum(isinstance(part, ast.Name) and part.id == variable and id(part) not in known for part in every)

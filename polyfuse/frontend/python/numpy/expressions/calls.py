"""Values of calls: functions of NumPy or Python, methods of arrays, functions that are inlined."""

from __future__ import annotations

import ast
from types import FunctionType
from typing import Any

import numpy as np

from polyfuse.errors import NotAffine
from polyfuse.frontend.python.numpy.broadcasting import converted
from polyfuse.frontend.python.numpy.expressions.comprehensions import CONSUMERS, comprehension
from polyfuse.frontend.python.numpy.expressions.evaluator import ALLOWED, Evaluator, rebuilt
from polyfuse.frontend.python.numpy.expressions.names import is_local
from polyfuse.frontend.python.numpy.frames import LocalFunction
from polyfuse.frontend.python.numpy.program import CALLED
from polyfuse.frontend.python.numpy.values import Array, Scalar, Static, Value, as_test, common_type
from polyfuse.frontend.python.scope_names import FUNCTIONS
from polyfuse.ir.number_types import ITEMSIZE, is_complex, is_integer, is_number, real_type


def call(e: Evaluator, node: ast.Call, into: Array | None, hint: str | None) -> Value:
    """f(…): a function of NumPy or Python, a method of an array, or a function that is inlined."""
    function: object = None
    before: list[Value] = []
    if isinstance(node.func, ast.Attribute):
        inner = e.value(node.func.value)
        if isinstance(inner, Array) or (isinstance(inner, Scalar) and is_complex(inner.dtype)):
            before = [inner]
            function = getattr(np.ndarray, node.func.attr, None)
            if e.calls(function) is None:
                e.refuse(node.func, f"{ast.unparse(node.func)}, a method that cannot be read", ALLOWED)
    if not before:
        called = e.value(node.func)
        function = called.value if isinstance(called, Static) else None
        function = getattr(function, "py_func", function)
    scalar_name = next((n for n, known in FUNCTIONS if any(function is one for one in known)), None)
    if any(k.arg is None for k in node.keywords):
        e.refuse(node, f"{ast.unparse(node)}: arguments by **", "plain arguments")
    if function is None:
        return e.unread(node.func, node)
    if function in (np.finfo, np.iinfo):
        return _limits(e, node, function)
    inlines = isinstance(function, FunctionType | LocalFunction) and e.calls(function) is None
    if not inlines and e.calls(function) is None and scalar_name is None:
        return e.unread(node.func, node)
    args = [*before, *(value for arg in node.args for value in _argument(e, arg, function))]
    named = {str(word.arg): e.value(word.value) for word in node.keywords}
    if inlines and str(getattr(function, "__module__", "")).partition(".")[0] == "numpy":
        return _of_numpy(e, node, function, args, named)
    if inlines:
        return e.inlined(e, node, function, args, named)
    plain = [value for value in args if isinstance(value, Scalar) and not is_complex(value.dtype)]
    if scalar_name is not None and len(plain) == len(args) and not named:
        return scalar_call(e, node, scalar_name, plain)
    call = e.calls(function)
    if call is None:
        e.refuse(node, f"{ast.unparse(node.func)} of arrays", ALLOWED)
    e.program.hint = hint
    return call(e, node, args, named, into)


def _argument(e: Evaluator, node: ast.expr, function: object) -> tuple[Value, ...]:
    """The values that an argument is: one, or those of *t."""
    if isinstance(node, ast.GeneratorExp) and any(function is each for each in CONSUMERS):
        return (comprehension(e, node),)
    return e.parts(node)


def _of_numpy(
    e: Evaluator, node: ast.Call, function: Any, args: list[Value], named: dict[str, Value]
) -> Value:
    """A function of NumPy without a rule, by its source; the call is refused where a line of that is not read."""
    try:
        return e.inlined(e, node, function, args, named)
    except NotAffine as error:
        e.refuse(node, f"{ast.unparse(node.func)} is not read: {error.why.partition(' (')[0]} in its source")


def _limits(e: Evaluator, node: ast.Call, function: Any) -> Value:
    """np.finfo(type), np.iinfo(type)."""
    values = [e.value(arg) for arg in node.args]
    known = values[0].value if len(values) == 1 and isinstance(values[0], Static) else None
    try:
        return Static(function(known))
    except (TypeError, ValueError):
        e.refuse(node, f"{ast.unparse(node)} of what is no type", "np.finfo(np.float64), np.finfo(x.dtype)")


def _is_strong_integer(value: Scalar) -> bool:
    """True for an integer of an array's type, in which arithmetic wraps."""
    return is_integer(value.dtype) and not is_number(value.dtype)


def scalar_call(e: Evaluator, node: ast.Call, called: str, args: list[Scalar]) -> Scalar:
    """A function of numbers, which the reader of single elements knows."""
    types = [arg.dtype for arg in args]
    if called == "float" and len(args) == 1 and _is_strong_integer(args[0]):
        made_float = converted(e.program, args[0], "float64")
        assert isinstance(made_float, Scalar), "a number is converted to a number"
        return Scalar(made_float.node, "fraction")
    if called in ITEMSIZE:
        dtype = called
    elif called in ("max", "min", "abs", "pow", "floor", "ceil", "floor_divide", "remainder"):
        dtype = common_type(types)
    elif called == "where":
        dtype = common_type(types[1:])
    elif called in ("len", "range"):
        dtype = "integer"
    else:
        dtype = real_type(common_type(types)) if types else "fraction"  # type: ignore[arg-type]
    nodes = [arg.node for arg in args]
    known = e.frame.is_first and not (isinstance(node.func, ast.Attribute) and is_local(e, node.func.value))
    function = node.func if known or called not in CALLED else e.program.function(called)
    if called in ("pow", "where") and not e.frame.is_first:
        made: ast.expr = (
            ast.BinOp(nodes[0], ast.Pow(), nodes[1])
            if called == "pow"
            else ast.IfExp(as_test(nodes[0], types[0]), nodes[1], nodes[2])
        )
        return Scalar(ast.copy_location(made, node), dtype)
    return Scalar(rebuilt(node, func=function, args=nodes), dtype)

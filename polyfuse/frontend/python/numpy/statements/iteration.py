"""The index, the bounds and the elements of a loop over range, reversed, enumerate, zip or an array."""

from __future__ import annotations

import ast

from polyfuse.frontend.python.numpy.statements.lowerer import Lowerer
from polyfuse.frontend.python.numpy.statements.variables import variable_of
from polyfuse.frontend.python.numpy.syntax import (
    constant,
    minus,
    name,
    number,
    plus,
    quotient,
    times,
)
from polyfuse.frontend.python.numpy.values import Array, Scalar, Static, Value


def loop_heads(
    lowerer: Lowerer, node: ast.For
) -> tuple[str, list[ast.expr], list[tuple[ast.expr, Value]]] | None:
    """(the index, the arguments of range, what is assigned first in the body) of a loop, if it is known."""
    target = node.target
    call = node.iter
    function = iterating_function(lowerer, call)
    if function in ("range", "prange") and isinstance(call, ast.Call) and isinstance(target, ast.Name):
        if (
            call.keywords
            or not 1 <= len(call.args) <= 3
            or any(isinstance(a, ast.Starred) for a in call.args)
        ):
            return None
        return target.id, [lowerer.evaluator.integer(arg) for arg in call.args], []
    if (
        function == "reversed"
        and isinstance(call, ast.Call)
        and iterating_function(lowerer, call.args[0]) in ("range", "prange")
    ):
        inner = call.args[0]
        assert isinstance(inner, ast.Call), "a call has a function"
        if isinstance(target, ast.Name):
            return target.id, _backwards(lowerer, inner), []
    if (
        function == "enumerate"
        and isinstance(call, ast.Call)
        and isinstance(target, ast.Tuple)
        and len(call.args) == 1
        and not call.keywords
        and iterating_function(lowerer, call.args[0]) not in ("zip", "enumerate")
    ):
        counter, element = target.elts
        if isinstance(counter, ast.Name):
            inside = _iterated(lowerer, call.args[0], counter.id)
            if inside is not None:
                return counter.id, [inside[0]], [(element, inside[1])]
    if function in ("zip", "enumerate") and isinstance(call, ast.Call) and isinstance(target, ast.Tuple):
        own = lowerer.program.fresh("k")
        inside = _iterated(lowerer, call, own)
        return None if inside is None else (own, [inside[0]], [(target, inside[1])])
    if function in (None, "other"):
        own = lowerer.program.fresh("k")
        inside = _iterated(lowerer, call, own)
        if inside is not None:
            return own, [inside[0]], [(target, inside[1])]
    return None


def _counted(lowerer: Lowerer, call: ast.Call, index: str) -> tuple[ast.expr, Value] | None:
    """(the length, the pair of counter and element) of enumerate(…)."""
    words = {str(word.arg): word.value for word in call.keywords}
    begin = call.args[1] if len(call.args) == 2 else words.get("start")
    inside = _iterated(lowerer, call.args[0], index)
    if inside is None:
        return None
    counter = name(variable_of(lowerer, index))
    if begin is not None:
        counter = plus(counter, lowerer.evaluator.integer(begin))
    return inside[0], (Scalar(counter, "integer"), inside[1])


def _zipped(lowerer: Lowerer, call: ast.Call, index: str) -> tuple[ast.expr, Value] | None:
    """(the smallest length, the tuple of elements) of zip(…)."""
    parts = [_iterated(lowerer, arg, index) for arg in call.args]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or not known:
        return None
    geometry = lowerer.program.geometry
    for length, _ in known:
        if all(geometry.at_most(length, other) for other, _ in known):
            return length, tuple(element for _, element in known)
    return lowerer.evaluator.refuse(
        call,
        f"{ast.unparse(call)}: which length is the smallest is not known",
        "equal lengths; assert N == M",
    )


def _iterated(lowerer: Lowerer, node: ast.expr, index: str) -> tuple[ast.expr, Value] | None:
    """(the length of what is iterated over, its element at an index)."""
    at = name(variable_of(lowerer, index))
    if iterating_function(lowerer, node) in ("range", "prange") and isinstance(node, ast.Call):
        args = [lowerer.evaluator.integer(arg) for arg in node.args]
        start = args[0] if len(args) > 1 else number(0)
        stop = args[1] if len(args) > 1 else args[0]
        step = constant(args[2]) if len(args) == 3 else 1
        if not step:
            return None
        distance = minus(stop, start) if step > 0 else minus(start, stop)
        length = quotient(plus(distance, number(abs(step) - 1)), abs(step))
        return length, Scalar(plus(times(number(step), at), start), "integer")
    if iterating_function(lowerer, node) == "enumerate" and isinstance(node, ast.Call):
        return _counted(lowerer, node, index)
    if iterating_function(lowerer, node) == "zip" and isinstance(node, ast.Call):
        return _zipped(lowerer, node, index)
    value = lowerer.evaluator.value(node)
    if not isinstance(value, Array) or value.mask is not None:
        return None
    rest = value.shape[1:]
    if not rest:
        return value.shape[0], Scalar(value.element((at,)), value.dtype)
    row = Array(rest, value.dtype, lambda i: value.element((at, *i)), value.storage)
    return value.shape[0], row


def iterating_function(lowerer: Lowerer, node: ast.expr) -> str | None:
    """The name of the loop's function: range, prange, reversed, enumerate, zip; None for another."""
    if not isinstance(node, ast.Call):
        return None
    value = lowerer.evaluator.value(node.func)
    found = value.value if isinstance(value, Static) else None
    builtin = {id(f): f.__name__ for f in (range, reversed, enumerate, zip)}
    if id(found) in builtin:
        return builtin[id(found)]
    is_prange = getattr(found, "__name__", "") == "prange" and str(
        getattr(found, "__module__", "")
    ).startswith("numba")
    return "prange" if is_prange else "other"


def _backwards(lowerer: Lowerer, call: ast.Call) -> list[ast.expr]:
    """The arguments of the range that reversed(range(…)) is."""
    args = [lowerer.evaluator.integer(arg) for arg in call.args]
    start = args[0] if len(args) > 1 else number(0)
    stop = args[1] if len(args) > 1 else args[0]
    step = constant(args[2]) if len(args) == 3 else 1
    if not step:
        lowerer.evaluator.refuse(call, f"{ast.unparse(call)} backwards", "a constant step")
    distance = minus(stop, start) if step > 0 else minus(start, stop)
    steps = quotient(plus(distance, number(abs(step) - 1)), abs(step))
    last = plus(start, times(number(step), minus(steps, number(1))))
    return [last, plus(start, number(-1 if step > 0 else 1)), number(-step)]

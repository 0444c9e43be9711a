"""Comprehensions over what is known when the function is read: tuples of their elements.

    sum(x[j + i] for i in (-1, 0, 1))   ->   0 + x[j - 1] + x[j] + x[j + 1]
    [2 * a for a in (x, y)]             ->   (2 * x, 2 * y)

Python evaluates the elements one after the other, from the left, with variables of their own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import numpy as np

from polyfuse.frontend.python.numpy.expressions.constants import decided, known_integer
from polyfuse.frontend.python.numpy.expressions.evaluator import Evaluator
from polyfuse.frontend.python.numpy.syntax import number
from polyfuse.frontend.python.numpy.values import Scalar, Static, Value, weak_type
from polyfuse.frontend.python.scope_names import MISSING

MOST_ELEMENTS = 64
"""Elements of a comprehension: each is written out."""

CONSUMERS = (sum, max, min, any, all)
"""The functions that take all elements of a generator at once."""

KNOWN = "tuples, and range of numbers that are known when the function is read"


def generator(e: Evaluator, node: ast.GeneratorExp) -> Value:
    """Refuse a generator that no function takes all elements of at once: it computes each when it is asked for."""
    e.refuse(node, f"{ast.unparse(node)}, a generator", "sum, max, min, any or all of one; a list")


def comprehension(e: Evaluator, node: ast.GeneratorExp | ast.ListComp) -> tuple[Value, ...]:
    """The elements of a comprehension as a tuple."""
    if any(isinstance(part, ast.Lambda) for part in ast.walk(node.elt)):
        e.refuse(
            node,
            f"{ast.unparse(node)}: a function that sees a comprehension's variables",
            "functions outside",
        )
    return tuple(_elements(e, node, 0))


def _elements(e: Evaluator, node: ast.GeneratorExp | ast.ListComp, depth: int) -> Iterator[Value]:
    """The elements for the values that the variables of the first loops have."""
    if depth == len(node.generators):
        yield e.value(node.elt)
        return
    loop = node.generators[depth]
    if loop.is_async:
        e.refuse(node, f"{ast.unparse(node)}: async for", "for")
    kept = dict(e.frame.variables)
    for value in _iterated(e, loop.iter):
        _bind(e, loop.target, value)
        if all(_holds(e, test) for test in loop.ifs):
            yield from _elements(e, node, depth + 1)
        e.frame.variables.clear()
        e.frame.variables.update(kept)


def _iterated(e: Evaluator, node: ast.expr) -> tuple[Value, ...]:
    """The values that a loop runs over."""
    if isinstance(node, ast.Call):
        called = e.value(node.func)
        if isinstance(called, Static) and called.value is range and not node.keywords:
            known = [known_integer(e, e.integer(arg)) for arg in node.args]
            numbers = [each for each in known if each is not None]
            if 1 <= len(numbers) == len(known) <= 3 and (len(numbers) < 3 or numbers[2]):
                values = range(*numbers)
                _check_few(e, node, len(values))
                return tuple(Scalar(ast.copy_location(number(each), node), "integer") for each in values)
            e.refuse(node, f"how many elements {ast.unparse(node)} has is not known here", KNOWN)
    found = e.value(node)
    if isinstance(found, Static) and isinstance(found.value, tuple | list):
        found = tuple(_from_outside(node, each) for each in found.value)
    if not isinstance(found, tuple):
        e.refuse(node, f"a comprehension over {ast.unparse(node)}", KNOWN)
    _check_few(e, node, len(found))
    return found


def _from_outside(node: ast.expr, element: object) -> Value:
    """An element of a tuple from outside of the function: numbers are literals here."""
    if isinstance(element, tuple | list):
        return tuple(_from_outside(node, each) for each in element)
    dtype = weak_type(element)
    if dtype is None or not isinstance(element, bool | int | float | np.bool | np.integer | np.floating):
        return Static(element)
    plain = element.item() if isinstance(element, np.generic) else element
    return Scalar(ast.copy_location(number(plain), node), dtype)


def _check_few(e: Evaluator, node: ast.expr, count: int) -> None:
    if count > MOST_ELEMENTS:
        why = f"{ast.unparse(node)} has {count} elements, which a comprehension writes out one by one"
        e.refuse(node, why, f"{MOST_ELEMENTS} elements at most, or a loop")


def _bind(e: Evaluator, target: ast.expr, value: Value) -> None:
    """Let the variables of a loop stand for one of its values."""
    match target:
        case ast.Name(id=variable):
            e.frame.variables[variable] = value
        case ast.Tuple(elts=targets) | ast.List(elts=targets) if (
            isinstance(value, tuple)
            and len(value) == len(targets)
            and not any(isinstance(each, ast.Starred) for each in targets)
        ):
            for each, part in zip(targets, value, strict=True):
                _bind(e, each, part)
        case _:
            e.refuse(
                target, f"{ast.unparse(target)} as a comprehension's variable", "names, and tuples of names"
            )


def _holds(e: Evaluator, test: ast.expr) -> bool:
    """Whether an element is there: its condition on numbers that are known."""
    value = e.value(test)
    known = value.value if isinstance(value, Static) else MISSING
    if isinstance(value, Scalar):
        truth = decided(e, value.node)
        known = MISSING if truth is None else truth
    if known is MISSING:
        e.refuse(test, f"whether {ast.unparse(test)} is not known here", "a condition on the variables alone")
    return bool(known)

"""Lower assignments to names, elements and slices.

y[:] = x + 1                 ->   for i0 in range(N): y[i0] = x[i0] + 1
y[idx] = x                   ->   for i0 in range(N): y[idx[i0]] = x[i0]
a = b = e                    ->   e is computed once
x[i], y[i] = y[i], x[i]      ->   both values are kept before one is stored
"""

from __future__ import annotations

import ast
from typing import NoReturn

from polyfuse.frontend.python.numpy.expressions.indexing import places_by_data, selected
from polyfuse.frontend.python.numpy.expressions.lists import number_or_array
from polyfuse.frontend.python.numpy.memory import new_variable
from polyfuse.frontend.python.numpy.scatters import store_at
from polyfuse.frontend.python.numpy.statements.array_makers import stays_as_written
from polyfuse.frontend.python.numpy.statements.lowerer import Lowerer
from polyfuse.frontend.python.numpy.statements.targets import assignment_of, base_of
from polyfuse.frontend.python.numpy.statements.variables import bind, is_free
from polyfuse.frontend.python.numpy.stores import as_stored, assignments, materialize, store
from polyfuse.frontend.python.numpy.syntax import constant, number, stored
from polyfuse.frontend.python.numpy.values import Array, Scalar, Static, Value, shape_text
from polyfuse.ir.number_types import is_complex


def assign(lowerer: Lowerer, node: ast.Assign) -> None:
    """target = … = value."""
    if lowerer.frame.is_first and stays_as_written(lowerer, node):
        return
    target = node.targets[0]
    if (
        len(node.targets) == 1
        and isinstance(target, ast.Subscript)
        and _stored_at_places(lowerer, node, target)
    ):
        return
    into = _view(lowerer, target) if len(node.targets) == 1 and isinstance(target, ast.Subscript) else None
    named = (
        isinstance(target, ast.Name)
        and target.id not in lowerer.frame.carried
        and is_free(lowerer, target.id)
    )
    lowerer.program.hint = target.id if named and isinstance(target, ast.Name) else None
    value = lowerer.evaluator.value(node.value, into)
    lowerer.program.hint = None
    if into is not None and value is into:
        return
    if len(node.targets) > 1 or isinstance(target, ast.Tuple | ast.List):
        if isinstance(value, Scalar) and not isinstance(value.node, ast.Constant | ast.Name):
            stem = next((t.id for t in node.targets if isinstance(t, ast.Name)), "value")
            value = new_variable(lowerer.program, value, f"{stem}_value")
        elif isinstance(value, Array) and value.storage is None:
            value = materialize(lowerer.program, value, "value")
    for one in node.targets:
        assign_one(lowerer, node, one, value)


def _view(lowerer: Lowerer, target: ast.Subscript) -> Array | None:
    """The view that a subscripted target is; None for one element."""
    base = lowerer.evaluator.value(target.value)
    if not isinstance(base, Array):
        return None
    found = selected(lowerer.evaluator, target, base)
    if not isinstance(found, Array):
        return None
    if found.storage is None:
        lowerer.evaluator.refuse(target, f"{ast.unparse(target)} is no array's memory", "a view of an array")
    return found


def _stored_at_places(lowerer: Lowerer, node: ast.Assign, target: ast.Subscript) -> bool:
    """True if it was x[idx] = value at places that data name, which is lowered then."""
    e = lowerer.evaluator
    base = e.value(target.value)
    if not isinstance(base, Array) or base.storage is None or base.mask is not None or is_complex(base.dtype):
        return False
    places = places_by_data(e, target)
    if not places or len(places) > base.rank:
        return False
    store_at(e, target, base, places, number_or_array(e, node.value, e.value(node.value)))
    lowerer.changed(base.storage)
    return True


def assign_one(lowerer: Lowerer, node: ast.stmt, target: ast.expr, value: Value) -> None:
    """Assign a value to one target."""
    match target:
        case ast.Name():
            bind(lowerer, node, target, value)
        case ast.Tuple() | ast.List():
            _assign_parts(lowerer, node, target, value)
        case ast.Subscript():
            view = _view(lowerer, target)
            if view is None:
                _assign_element(lowerer, node, target, value)
                return
            store(lowerer.program, view, number_or_array(lowerer.evaluator, target, value))
            lowerer.changed(view.storage)
        case ast.Attribute() if not lowerer.frame.is_first:
            lowerer.evaluator.refuse(
                target, f"{ast.unparse(target)} cannot be assigned", "variables and elements"
            )
        case _:
            lowerer.program.emit(node)


def _assign_element(lowerer: Lowerer, node: ast.stmt, target: ast.Subscript, value: Value) -> None:
    """A[i, j] = value."""
    base = lowerer.evaluator.value(target.value)
    if not isinstance(base, Array):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(value, Scalar):
            lowerer.program.emit(assignment_of(node, target, value.node))
            return
        lowerer.evaluator.refuse(
            target, f"{ast.unparse(target)} is no element of an array", "arrays made before"
        )
    element = selected(lowerer.evaluator, target, base)
    if isinstance(value, Array) and all(constant(e) == 1 for e in value.shape):
        value = Scalar(value.element(tuple(number(0) for _ in value.shape)), value.dtype)
    if not isinstance(value, Scalar):
        _refuse_element(lowerer, target, base, value)
    assert isinstance(element, Scalar), "this target is one element"
    left = target if element.node is target else element.node
    stored_node = left if left is target or is_complex(element.dtype) else stored(left)
    plain = as_stored(lowerer.program, value.node, value.dtype, element.dtype)
    if is_complex(element.dtype):
        for statement in assignments(lowerer.program, element.node, plain):
            lowerer.program.emit(statement)
    else:
        lowerer.program.emit(assignment_of(node, stored_node, plain))
    lowerer.changed(base.storage)


def _refuse_element(lowerer: Lowerer, target: ast.Subscript, base: Array, value: Value) -> NoReturn:
    """Say what is assigned to one element, and how more of them are named."""
    what = "what is no number"
    if isinstance(value, Array):
        what = f"an array of shape {shape_text(value.shape)}"
    elif isinstance(value, tuple):
        what = f"a tuple of {len(value)}"
    elif isinstance(value, Static):
        what = repr(value.value)
    lowerer.evaluator.refuse(
        target,
        f"{what} is assigned to one element, {ast.unparse(target)} of an array of shape {shape_text(base.shape)}",
        f"a number: one element of the array; or more elements as the target, {ast.unparse(target.value)}[:]",
    )


def _assign_parts(lowerer: Lowerer, node: ast.stmt, target: ast.Tuple | ast.List, value: Value) -> None:
    """a, b = values: numbers and formulas that a store could change are kept; a view shows what was stored."""
    if not isinstance(value, tuple):
        if isinstance(value, Array) and constant(value.shape[0]) == len(target.elts):
            value = tuple(
                selected(
                    lowerer.evaluator,
                    ast.copy_location(ast.Subscript(target, number(k), ast.Load()), target),
                    value,
                )
                for k in range(len(target.elts))
            )
        else:
            lowerer.evaluator.refuse(
                target, f"{ast.unparse(target)} is assigned what is no tuple", "as many values"
            )
    starred = [k for k, part in enumerate(target.elts) if isinstance(part, ast.Starred)]
    if len(starred) == 1 and len(value) >= len(target.elts) - 1:
        first, taken = starred[0], len(value) - len(target.elts) + 1
        value = (*value[:first], value[first : first + taken], *value[first + taken :])
        plain = [part.value if isinstance(part, ast.Starred) else part for part in target.elts]
        target = ast.copy_location(ast.Tuple(plain, ast.Store()), target)
    if len(value) != len(target.elts):
        lowerer.evaluator.refuse(
            target, f"{len(target.elts)} targets and {len(value)} values", "as many values as targets"
        )
    changed = {part.id for part in ast.walk(target) if isinstance(part, ast.Name)}
    stored_to = [base_of(part) for part in target.elts if isinstance(part, ast.Subscript)]
    bases = {part.id for part in stored_to if isinstance(part, ast.Name)}
    rebound = {part.id for part in target.elts if isinstance(part, ast.Name)} & lowerer.frame.carried
    storages, own = (
        {v.storage for v in map(lowerer.frame.found, names) if isinstance(v, Array) and v.storage}
        for names in (bases | rebound, rebound)
    )
    kept: list[Value] = []
    for part in value:
        read = set()
        if isinstance(part, Scalar):
            read = {inner.id for inner in ast.walk(part.node) if isinstance(inner, ast.Name)}
            if read & (changed | storages) or is_complex(part.dtype):
                part = new_variable(lowerer.program, part, "value")
        elif isinstance(part, Array) and (part.storage is None or part.storage in own):
            part = materialize(lowerer.program, part, "value")
        kept.append(part)
    for one, part in zip(target.elts, kept, strict=True):
        assign_one(lowerer, ast.copy_location(ast.Assign([one], node.value), node), one, part)  # type: ignore[attr-defined]
